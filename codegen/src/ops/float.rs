//! Functions of f32, and its bits.

use super::example::{inputs, output};
use super::{Family, OpDef, Signature};
use crate::cost::elementwise;
use crate::cuda::{Cx, Emit, Expr};
use crate::dtype::Dtype;
use crate::handles::{Handle, Scalar};
use crate::ir::{Attrs, Type};
use crate::trace::emit;

/// The ops of this file.
pub static FAMILY: Family =
    Family { name: "float", source: include_str!("float.rs"), ops: &[&ABS, &SQRT, &RSQRT, &BITS, &FROM_BITS] };

fn from_to(s: &Signature<'_>, from: Dtype, to: Dtype) -> Result<Vec<Type>, String> {
    s.count(1)?;
    match s.operands[0] {
        Type::Scalar(dtype) if dtype == from => Ok(vec![Type::Scalar(to)]),
        other => Err(format!("a function of {from}, not of {other}")),
    }
}

fn call(cx: &mut Cx<'_, '_>, function: &str) -> Expr {
    let x = cx.operand(0);
    Expr::call(function, &[&x])
}

macro_rules! functions {
    ($($(#[doc = $doc:literal])* $op:ident $name:literal $method:ident ($from:ty: $from_dtype:ident) -> ($to:ty: $to_dtype:ident) $cuda:literal;)*) => {
        $(
            $(#[doc = $doc])*
            pub static $op: OpDef = OpDef {
                name: $name,
                doc: concat!($($doc),*),
                signature: |s| from_to(s, Dtype::$from_dtype, Dtype::$to_dtype),
                min_capability: 0,
                effects: &[],
                emit: Emit::Expr(|cx| call(cx, $cuda)),
                cost: |c| elementwise(c, 1),
                example: || {
                    let [x] = inputs::<$from, 1>();
                    output(x.$method());
                },
            };

            impl Scalar<$from> {
                $(#[doc = $doc])*
                #[track_caller]
                pub fn $method(self) -> Scalar<$to> {
                    Scalar::from_id(emit(&$op, &[self.id()], Attrs::none()))
                }
            }
        )*
    };
}

functions! {
    /// The magnitude.
    ABS "float.abs" abs (f32: F32) -> (f32: F32) "fabsf";
    /// The square root, correctly rounded.
    SQRT "float.sqrt" sqrt (f32: F32) -> (f32: F32) "sqrtf";
    /// The reciprocal of the square root, to within 2 units in the last place.
    RSQRT "float.rsqrt" rsqrt (f32: F32) -> (f32: F32) "rsqrtf";
    /// The bits of an f32.
    BITS "float.bits" bits (f32: F32) -> (u32: U32) "__float_as_uint";
    /// The f32 that has these bits.
    FROM_BITS "float.from_bits" as_float (u32: U32) -> (f32: F32) "__uint_as_float";
}

#[cfg(test)]
mod tests {
    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
            float.abs
              *out = fabsf(x);
            float.sqrt
              *out = sqrtf(x);
            float.rsqrt
              *out = rsqrtf(x);
            float.bits
              *out = __float_as_uint(x);
            float.from_bits
              *out = __uint_as_float(x);
        "#]],
        );
    }

    use expect_test::expect;

    use crate::handles::Argument;
    use crate::ir::Phase;
    use crate::loc::Loc;
    use crate::prelude::*;
    use crate::target::Target;
    use crate::trace::{KernelSpec, trace};

    #[test]
    fn functions_print_as_the_cuda_ones() {
        let spec = KernelSpec { name: "k", doc: "", warps: 1, ctas_per_sm: 1, loc: Loc::caller() };
        let kernel = trace(spec, || {
            let x = Slice::<f32>::declare("x", Phase::AfterWait, Loc::caller());
            let y = Slice::<f32, WritePart>::declare("y", Phase::AfterWait, Loc::caller());
            let v = x.at(0).load();
            y.at(0).store(v.abs().sqrt() * v.rsqrt());
            y.at(1).store((v.bits() + 1u32).as_float());
        });
        let cuda = kernel.unwrap().cuda(Target::Sm120a).unwrap().source;
        let (_, entry) = cuda.split_once("extern \"C\"").unwrap();
        expect![[r#"
             __global__ void __launch_bounds__(32, 1)
            k(const float* x,
              float* y) {
              const float x_value = load(x + 0);
              y[0] = sqrtf(fabsf(x_value)) * rsqrtf(x_value);
              y[1] = __uint_as_float(__float_as_uint(x_value) + 1);
            }
        "#]]
        .assert_eq(entry);
    }
}
