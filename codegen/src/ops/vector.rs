//! Vectors of elements a lane: taking elements out, putting vectors together, packing f32 into e4m3.

use super::example::memory;
use super::index::lane_id;
use super::{Family, OpDef, Signature};
use crate::cost::Cost;
use crate::cuda::{Cx, Emit, Expr, Helper, ctype, prec};
use crate::dtype::Dtype;
use crate::handles::{Element, Handle, Read, Scalar, Vector, WritePart, bf16, e4m3};
use crate::ir::{Attrs, Type, ValueId};
use crate::loc::Loc;
use crate::trace::{emit, with};

/// The ops of this file.
pub static FAMILY: Family =
    Family { name: "vector", source: include_str!("vector.rs"), ops: &[&GET, &PACK, &PACK_E4M3] };

/// One element of a vector.
pub static GET: OpDef = OpDef {
    name: "vector.get",
    doc: "Element `index` of a vector.",
    signature: |s| {
        s.count(1)?;
        let index = s.attrs.int("index");
        match s.operands[0] {
            Type::Vector { dtype, len } if (0..i64::from(len)).contains(&index) => Ok(vec![Type::Scalar(dtype)]),
            Type::Vector { len, .. } => Err(format!("a vector of {len} has elements 0 to {}, not {index}", len - 1)),
            other => Err(format!("elements are taken from a vector, not from {other}")),
        }
    },
    min_capability: 0,
    effects: &[],
    emit: Emit::Expr(print_get),
    cost: |_| Cost::issue(1),
    example: show_elements,
};

/// Elements, packed as they lie in memory.
pub static PACK: OpDef = OpDef {
    name: "vector.pack",
    doc: "The vector of its operands, which are of one type and together 8 or 16 bytes.",
    signature: |s| {
        let Some(&Type::Scalar(dtype)) = s.operands.first() else {
            return Err("a vector is made of scalars".to_owned());
        };
        if s.operands.iter().any(|ty| *ty != Type::Scalar(dtype)) {
            return Err(format!("the elements of a vector have one type, here {dtype}"));
        }
        packed(dtype, s)
    },
    min_capability: 0,
    effects: &[],
    emit: Emit::Stmt(print_pack),
    cost: |c| Cost::issue(c.inst.operands.len() as u64),
    example: show_elements,
};

/// f32 packed into e4m3.
pub static PACK_E4M3: OpDef = OpDef {
    name: "vector.pack_e4m3",
    doc: "The vector of its f32 operands as e4m3, to nearest even, saturating at 448; 8 or 16 of them.",
    signature: |s| {
        if s.operands.iter().any(|ty| *ty != Type::Scalar(Dtype::F32)) {
            return Err("e4m3 is made from f32".to_owned());
        }
        packed(Dtype::E4m3, s)
    },
    min_capability: 89,
    effects: &[],
    emit: Emit::Stmt(print_pack_e4m3),
    cost: |c| Cost::issue(c.inst.operands.len() as u64 * 3 / 4),
    example: || {
        let x: [Scalar<f32>; 4] = memory::<f32, Read>("x").at(lane_id() * 4).load_vector(4).elements();
        let packed = Vector::saturating(&[x, x].concat());
        memory::<e4m3, WritePart>("y").at(lane_id() * 8).store_vector(packed);
    },
};

/// Four elements in reverse.
fn show_elements() {
    let [a, b, c, d] = memory::<bf16, Read>("x").at(lane_id() * 4).load_vector(4).elements();
    memory::<bf16, WritePart>("y").at(lane_id() * 4).store_vector(Vector::of(&[d, c, b, a]));
}

fn packed(dtype: Dtype, s: &Signature<'_>) -> Result<Vec<Type>, String> {
    let len = s.operands.len();
    match len * dtype.size() {
        8 | 16 => Ok(vec![Type::Vector { dtype, len: len as u32 }]),
        bytes => Err(format!("a vector has 8 or 16 bytes, not {len} elements of {dtype} ({bytes} bytes)")),
    }
}

/// Elements that share a 32-bit register.
fn elements_a_register(dtype: Dtype) -> usize {
    4 / dtype.size().min(4)
}

fn print_get(cx: &mut Cx<'_, '_>) -> Expr {
    let Some(dtype) = cx.operand_type(0).dtype() else { return Expr::primary("0") };
    let index = cx.attr("index") as usize;
    let shared = elements_a_register(dtype);
    let register = cx.operand_at(0, &[Expr::primary((index / shared).to_string())]);
    match (shared, index % shared * dtype.size() * 8) {
        (1, _) => register,
        (_, 0) => Expr::prefix(&format!("({})", ctype(dtype)), &register),
        (_, bits) => {
            let shifted = Expr::binary(prec::SHIFT, ">>", &register, &Expr::primary(bits.to_string()));
            Expr::prefix(&format!("({})", ctype(dtype)), &shifted)
        }
    }
}

fn print_pack(cx: &mut Cx<'_, '_>) {
    let ty = cx.result_type(0);
    let Some(dtype) = ty.dtype() else { return };
    let name = cx.result(0, "packed");
    cx.array(&name, ty);
    let shared = elements_a_register(dtype);
    for (register, start) in (0..cx.inst().operands.len()).step_by(shared).enumerate() {
        let part = |cx: &mut Cx<'_, '_>, i: usize| {
            let element = cx.operand(start + i);
            match (shared, i * dtype.size() * 8) {
                (1, _) => element,
                (_, 0) => Expr::prefix("(unsigned)", &element),
                (_, bits) => {
                    let wide = Expr::prefix("(unsigned)", &element);
                    Expr::binary(prec::SHIFT, "<<", &wide, &Expr::primary(bits.to_string()))
                }
            }
        };
        let mut value = part(cx, 0);
        for i in 1..shared {
            let next = part(cx, i);
            value = Expr::binary(prec::OR, "|", &value, &next);
        }
        cx.line(&format!("{name}[{register}] = {value};"));
    }
}

static TO_E4M3_X4: Helper = Helper {
    name: "to_e4m3_x4",
    text: "\
__device__ __forceinline__ unsigned to_e4m3_x4(float a, float b, float c, float d) {
  unsigned short low, high;
  asm(\"cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;\" : \"=h\"(low) : \"f\"(b), \"f\"(a));
  asm(\"cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;\" : \"=h\"(high) : \"f\"(d), \"f\"(c));
  return low | ((unsigned)high << 16);
}",
};

fn print_pack_e4m3(cx: &mut Cx<'_, '_>) {
    cx.require(&TO_E4M3_X4);
    let ty = cx.result_type(0);
    let name = cx.result(0, "packed");
    cx.array(&name, ty);
    for (register, start) in (0..cx.inst().operands.len()).step_by(4).enumerate() {
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| cx.operand(start + i));
        cx.line(&format!("{name}[{register}] = {};", Expr::call("to_e4m3_x4", &[&a, &b, &c, &d])));
    }
}

fn ids<T: Element>(elements: &[Scalar<T>]) -> Vec<ValueId> {
    elements.iter().map(|element| element.id()).collect()
}

impl<T: Element> Vector<T> {
    /// Element `index`, a number known when the kernel is traced.
    #[track_caller]
    pub fn get(self, index: usize) -> Scalar<T> {
        Scalar::from_id(emit(&GET, &[self.id()], Attrs::none().with("index", index as i64)))
    }

    /// All elements, in order.
    #[track_caller]
    pub fn elements<const N: usize>(self) -> [Scalar<T>; N] {
        let loc = Loc::caller();
        with(|b| match b.ty(self.id()) {
            Type::Vector { len, .. } if len as usize != N => {
                b.error(loc, format!("this vector has {len} elements, not {N}"), None);
            }
            _ => {}
        });
        std::array::from_fn(|index| self.get(index))
    }

    /// The vector of these elements, 8 or 16 bytes.
    #[track_caller]
    pub fn of(elements: &[Scalar<T>]) -> Self {
        Vector::from_id(emit(&PACK, &ids(elements), Attrs::none()))
    }
}

impl Vector<e4m3> {
    /// 8 or 16 f32 as e4m3: rounded to nearest even, saturating at 448.
    #[track_caller]
    pub fn saturating(elements: &[Scalar<f32>]) -> Self {
        Vector::from_id(emit(&PACK_E4M3, &ids(elements), Attrs::none()))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
                vector.get
                  const int lane = threadIdx.x % 32;
                  unsigned x_value[2];
                  load_x2(x_value, x + lane * 4);
                  unsigned packed[2];
                  packed[0] = (unsigned)(bf16)(x_value[1] >> 16) | ((unsigned)(bf16)x_value[1] << 16);
                  packed[1] = (unsigned)(bf16)(x_value[0] >> 16) | ((unsigned)(bf16)x_value[0] << 16);
                  store_x2(y + lane * 4, packed);
                vector.pack
                  unsigned packed[2];
                  packed[0] = (unsigned)(bf16)(x_value[1] >> 16) | ((unsigned)(bf16)x_value[1] << 16);
                  packed[1] = (unsigned)(bf16)(x_value[0] >> 16) | ((unsigned)(bf16)x_value[0] << 16);
                vector.pack_e4m3
                  unsigned packed[2];
                  packed[0] = to_e4m3_x4(x_2, x_3, x_4, x_5);
                  packed[1] = to_e4m3_x4(x_2, x_3, x_4, x_5);
            "#]],
        );
    }

    use expect_test::{Expect, expect};

    use crate::handles::Argument;
    use crate::ir::Phase;
    use crate::loc::Loc;
    use crate::prelude::*;
    use crate::target::Target;
    use crate::trace::{KernelSpec, TraceErrors, trace};

    fn kernel(body: impl FnOnce()) -> Result<crate::ir::Kernel, TraceErrors> {
        let spec = KernelSpec { name: "k", doc: "", warps: 1, ctas_per_sm: 1, loc: Loc::caller() };
        trace(spec, body)
    }

    fn argument<A: Argument>(name: &str) -> A {
        A::declare(name, Phase::AfterWait, Loc::caller())
    }

    fn check(body: impl FnOnce(), expected: Expect) {
        let cuda = kernel(body).unwrap().cuda(Target::Sm120a).unwrap().source;
        let (_, entry) = cuda.split_once("extern \"C\"").unwrap();
        expected.assert_eq(entry);
    }

    #[test]
    fn bf16_elements_are_halves_of_registers() {
        check(
            || {
                let x: Slice<bf16> = argument("x");
                let y: Slice<bf16, WritePart> = argument("y");
                let [a, b, c, d] = x.at(0).load_vector(4).elements();
                y.at(0).store_vector(Vector::of(&[d, c, b, a]));
            },
            expect![[r#"
                 __global__ void __launch_bounds__(32, 1)
                k(const bf16* x,
                  bf16* y) {
                  unsigned x_value[2];
                  load_x2(x_value, x + 0);
                  unsigned packed[2];
                  packed[0] = (unsigned)(bf16)(x_value[1] >> 16) | ((unsigned)(bf16)x_value[1] << 16);
                  packed[1] = (unsigned)(bf16)(x_value[0] >> 16) | ((unsigned)(bf16)x_value[0] << 16);
                  store_x2(y + 0, packed);
                }
            "#]],
        );
    }

    #[test]
    fn f32_becomes_e4m3_four_at_a_time() {
        check(
            || {
                let x: Slice<f32> = argument("x");
                let y: Slice<e4m3, WritePart> = argument("y");
                let [a, b, c, d] = x.at(0).load_vector(4).elements();
                y.at(0).store_vector(Vector::saturating(&[a, b, c, d, d, c, b, a]));
            },
            expect![[r#"
                 __global__ void __launch_bounds__(32, 1)
                k(const float* x,
                  e4m3* y) {
                  float x_value[4];
                  load_x4(x_value, x + 0);
                  const float x_2 = x_value[0];
                  const float x_3 = x_value[1];
                  const float x_4 = x_value[2];
                  const float x_5 = x_value[3];
                  unsigned packed[2];
                  packed[0] = to_e4m3_x4(x_2, x_3, x_4, x_5);
                  packed[1] = to_e4m3_x4(x_5, x_4, x_3, x_2);
                  store_x2(y + 0, packed);
                }
            "#]],
        );
    }

    #[test]
    fn sizes_and_indices_are_checked() {
        let errors = kernel(|| {
            let x: Slice<bf16> = argument("x");
            let v = x.at(0).load_vector(8);
            v.get(8);
            Vector::of(&[v.get(0); 3]);
            let _: [Scalar<bf16>; 4] = v.elements();
        })
        .unwrap_err()
        .to_string();
        for message in [
            "a vector of 8 has elements 0 to 7, not 8",
            "a vector has 8 or 16 bytes, not 3 elements of bf16 (6 bytes)",
            "this vector has 8 elements, not 4",
        ] {
            assert!(errors.contains(message), "{errors}");
        }
    }
}
