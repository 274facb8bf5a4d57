//! Single elements of shared tiles: loads, stores and atomic additions by any lane.

use super::example::output;
use super::index::lane_id;
use super::shared::shared;
use super::{Effect, Family, OpDef, Signature, Space};
use crate::cost::Cost;
use crate::cuda::{Cx, Emit, Expr, Helper, prec};
use crate::dtype::Dtype;
use crate::handles::{Arithmetic, Element, Handle, Integer, Scalar, SharedTile, Stored};
use crate::ir::{Attrs, Swizzle, Type, ValueId};
use crate::loc::Loc;
use crate::trace::{emit, emit_stmt, with};

/// The ops of this file.
pub static FAMILY: Family =
    Family { name: "shared_element", source: include_str!("shared_element.rs"), ops: &[&LOAD, &STORE, &ATOMIC_ADD] };

fn show() {
    let counts = shared::<i32>([2, 64]);
    counts.at(0, lane_id()).store(0);
    let before = counts.at(1, lane_id()).atomic_add(1);
    output(before + counts.at(0, 3).load());
}

/// Loads an element.
pub static LOAD: OpDef = OpDef {
    name: "shared.load",
    doc: "The element at (row, column) of a tile.",
    signature: |s| {
        s.count(3)?;
        Ok(vec![Type::Scalar(element(s)?)])
    },
    min_capability: 0,
    effects: &[Effect::Read(Space::Shared)],
    emit: Emit::Stmt(|cx| {
        let Some(dtype) = cx.result_type(0).dtype() else { return };
        cx.require(if dtype == Dtype::F32 { &LOAD_F32 } else { &LOAD_U32 });
        let address = address(cx);
        let name = cx.result(0, "element");
        let (c, load) = text(dtype, "load_shared");
        cx.line(&format!("const {c} {name} = {load}({address});"));
    }),
    cost: |c| Cost { issue: 1, shared_read: c.bytes(c.result(0)), ..Cost::NONE },
    example: show,
};

/// Stores an element.
pub static STORE: OpDef = OpDef {
    name: "shared.store",
    doc: "Stores a value at (row, column) of a tile.",
    signature: |s| {
        s.count(4)?;
        stored(s).map(|_| vec![])
    },
    min_capability: 0,
    effects: &[Effect::Write(Space::Shared)],
    emit: Emit::Stmt(|cx| {
        let Some(dtype) = cx.operand_type(3).dtype() else { return };
        cx.require(if dtype == Dtype::F32 { &STORE_F32 } else { &STORE_U32 });
        let (address, value) = (address(cx), cx.operand(3));
        let (_, store) = text(dtype, "store_shared");
        cx.line(&format!("{store}({address}, {value});"));
    }),
    cost: |c| Cost { issue: 1, shared_written: c.bytes(c.operand(3)), ..Cost::NONE },
    example: show,
};

/// Adds to an element, atomically.
pub static ATOMIC_ADD: OpDef = OpDef {
    name: "shared.atomic_add",
    doc: "Adds a value to the element at (row, column) of a tile, as one step, and returns what was there before.",
    signature: |s| {
        s.count(4)?;
        match stored(s)? {
            dtype @ (Dtype::I32 | Dtype::U32) => Ok(vec![Type::Scalar(dtype)]),
            other => Err(format!("atomic additions are of i32 and u32, not of {other}")),
        }
    },
    min_capability: 0,
    effects: &[Effect::Read(Space::Shared), Effect::Write(Space::Shared)],
    emit: Emit::Stmt(|cx| {
        cx.require(&ATOMIC_ADD_U32);
        let Some(dtype) = cx.result_type(0).dtype() else { return };
        let (address, value) = (address(cx), cx.operand(3));
        let name = cx.result(0, "before");
        let (c, _) = text(dtype, "");
        cx.line(&format!("const {c} {name} = atomic_add_shared({address}, {value});"));
    }),
    cost: |c| {
        let bytes = c.bytes(c.result(0));
        Cost { issue: 1, shared_read: bytes, shared_written: bytes, ..Cost::NONE }
    },
    example: show,
};

fn element(s: &Signature<'_>) -> Result<Dtype, String> {
    let dtype = s.tile(0)?.dtype;
    if dtype.size() != 4 {
        return Err(format!("single elements are of 4 bytes (i32, u32, f32), not {dtype}"));
    }
    match s.operands[1..3] {
        [Type::Scalar(Dtype::I32), Type::Scalar(Dtype::I32)] => Ok(dtype),
        _ => Err("row and column are i32".to_owned()),
    }
}

fn stored(s: &Signature<'_>) -> Result<Dtype, String> {
    let dtype = element(s)?;
    match s.operands[3] {
        Type::Scalar(value) if value == dtype => Ok(dtype),
        other => Err(format!("a tile of {dtype} does not take {other}")),
    }
}

/// The type in CUDA, and the function that handles it.
fn text(dtype: Dtype, function: &str) -> (&'static str, String) {
    match dtype {
        Dtype::F32 => ("float", format!("{function}_float")),
        Dtype::I32 => ("int", function.to_owned()),
        _ => ("unsigned", function.to_owned()),
    }
}

static LOAD_U32: Helper = Helper {
    name: "load_shared",
    text: "\
__device__ __forceinline__ unsigned load_shared(unsigned from) {
  unsigned v;
  asm volatile(\"ld.shared.u32 %0, [%1];\" : \"=r\"(v) : \"r\"(from) : \"memory\");
  return v;
}",
};

pub(super) static LOAD_F32: Helper = Helper {
    name: "load_shared_float",
    text: "\
__device__ __forceinline__ float load_shared_float(unsigned from) {
  float v;
  asm volatile(\"ld.shared.f32 %0, [%1];\" : \"=f\"(v) : \"r\"(from) : \"memory\");
  return v;
}",
};

static STORE_U32: Helper = Helper {
    name: "store_shared",
    text: "\
__device__ __forceinline__ void store_shared(unsigned to, unsigned v) {
  asm volatile(\"st.shared.u32 [%0], %1;\" :: \"r\"(to), \"r\"(v) : \"memory\");
}",
};

static STORE_F32: Helper = Helper {
    name: "store_shared_float",
    text: "\
__device__ __forceinline__ void store_shared_float(unsigned to, float v) {
  asm volatile(\"st.shared.f32 [%0], %1;\" :: \"r\"(to), \"f\"(v) : \"memory\");
}",
};

static ATOMIC_ADD_U32: Helper = Helper {
    name: "atomic_add_shared",
    text: "\
__device__ __forceinline__ unsigned atomic_add_shared(unsigned to, unsigned v) {
  unsigned before;
  asm volatile(\"atom.shared.add.u32 %0, [%1], %2;\" : \"=r\"(before) : \"r\"(to), \"r\"(v) : \"memory\");
  return before;
}",
};

/// The address of the element at operands 1 (row) and 2 (column) of the tile that operand 0 names.
pub(super) fn address(cx: &mut Cx<'_, '_>) -> Expr {
    let tile = cx.tile(0);
    let number = |n: u32| Expr::primary(n.to_string());
    let plus = |a: &Expr, b: &Expr| match b.to_string().as_str() {
        "0" => a.clone(),
        _ => Expr::binary(prec::SUM, "+", a, b),
    };
    let times = |a: &Expr, n: u32| match a.to_string().parse::<u32>() {
        Ok(a) => number(a * n),
        Err(_) => Expr::binary(prec::PRODUCT, "*", a, &number(n)),
    };
    let (base, row) = (cx.operand(0), cx.operand(1));
    let column = times(&cx.operand(2), tile.dtype.size() as u32);
    let column = match tile.swizzle {
        Swizzle::None => column,
        Swizzle::Xor16 => {
            let phase = Expr::binary(prec::PRODUCT, "%", &row, &number(8));
            Expr::binary(prec::XOR, "^", &column, &times(&phase, 16))
        }
    };
    plus(&plus(&base, &times(&row, tile.row_bytes())), &column)
}

/// An element of a tile in shared memory.
#[derive(Clone, Copy)]
pub struct SharedElement<T> {
    tile: SharedTile<T>,
    row: ValueId,
    column: ValueId,
}

impl<T: Element> SharedTile<T> {
    /// The element at `row`, `column`; single ones are loaded and stored if they have 4 bytes.
    #[track_caller]
    pub fn at(self, row: impl Into<Scalar<i32>>, column: impl Into<Scalar<i32>>) -> SharedElement<T> {
        let (row, column, loc) = (row.into().id(), column.into().id(), Loc::caller());
        with(|b| {
            if let Some((rows, cols)) = b.tile(self.id()).map(|tile| (tile.rows, tile.cols)) {
                b.check_index(row, rows, self.id(), "row", loc);
                b.check_index(column, cols, self.id(), "column", loc);
            }
        });
        SharedElement { tile: self, row, column }
    }
}

impl<T> SharedElement<T> {
    /// The element as operands.
    pub(super) fn operands(self) -> [ValueId; 3] {
        [self.tile.id(), self.row, self.column]
    }
}

impl<T: Arithmetic> SharedElement<T> {
    /// What is there.
    #[track_caller]
    pub fn load(self) -> Scalar<T> {
        Scalar::from_id(emit(&LOAD, &self.operands(), Attrs::none()))
    }

    /// Stores `value`.
    #[track_caller]
    pub fn store(self, value: impl Stored<T>) {
        emit_stmt(&STORE, &[self.tile.id(), self.row, self.column, value.stored().id()], Attrs::none());
    }

    /// Adds `value` as one step that no other thread's interleaves with; returns what was there before.
    #[track_caller]
    pub fn atomic_add(self, value: impl Into<Scalar<T>>) -> Scalar<T>
    where
        T: Integer,
    {
        let operands = [self.tile.id(), self.row, self.column, value.into().id()];
        Scalar::from_id(emit(&ATOMIC_ADD, &operands, Attrs::none()))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::loc::Loc;
    use crate::prelude::*;
    use crate::target::Target;
    use crate::trace::{KernelSpec, trace};

    fn spec() -> KernelSpec {
        KernelSpec { name: "k", doc: "", warps: 1, ctas_per_sm: 1, loc: Loc::caller() }
    }

    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
                shared.load
                  const int element = load_shared(tile0 + 12);
                shared.store
                  store_shared(tile0 + lane * 4, 0);
                shared.atomic_add
                  const int before = atomic_add_shared(tile0 + 256 + lane * 4, 1);
            "#]],
        );
    }

    #[test]
    fn elements_are_addressed_by_row_and_column() {
        let kernel = trace(spec(), || {
            let counts = shared::<u32>([2, 64]);
            let sums = shared::<f32>([8, 32]).swizzle(Xor16);
            let lane = lane::id();
            counts.at(0, lane).store(0u32);
            let before = counts.at(1, lane).atomic_add(1u32);
            counts.at(1, 3).store(before);
            sums.at(lane % 8, 5).store(sums.at(0, lane).load());
        });
        let cuda = kernel.unwrap().cuda(Target::Sm120a).unwrap().source;
        let (_, entry) = cuda.split_once("extern \"C\"").unwrap();
        expect![[r#"
             __global__ void __launch_bounds__(32, 1)
            k() {
              extern __shared__ __align__(1024) unsigned char shared_memory[];
              const unsigned shared = (unsigned)__cvta_generic_to_shared(shared_memory);
              const int lane = threadIdx.x % 32;
              const unsigned tile0 = shared;  // u32 [2][64]
              const unsigned tile1 = shared + 1024;  // f32 [8][32], xor16
              store_shared(tile0 + lane * 4, 0u);
              const unsigned before = atomic_add_shared(tile0 + 256 + lane * 4, 1u);
              store_shared(tile0 + 256 + 12, before);
              const float element = load_shared_float(tile1 + ((lane * 4) ^ (0 % 8 * 16)));
              store_shared_float(tile1 + lane % 8 * 128 + (20 ^ (lane % 8 % 8 * 16)), element);
            }
        "#]]
        .assert_eq(entry);
    }

    #[test]
    fn elements_of_other_sizes_are_refused() {
        let errors = trace(spec(), || {
            shared::<i64>([8, 32]).at(0, 0).load();
        });
        let message = errors.unwrap_err().to_string();
        assert!(message.contains("single elements are of 4 bytes (i32, u32, f32), not i64"), "{message}");
    }
}
