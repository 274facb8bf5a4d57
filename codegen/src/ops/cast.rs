//! Conversions between element types.

use super::arith::number;
use super::example::{inputs, output};
use super::{Family, OpDef};
use crate::cost::elementwise as elementwise_cost;
use crate::cuda::{Cx, Emit, Expr, Helper, ctype};
use crate::dtype::Dtype;
use crate::handles::{Element, Handle, Scalar};
use crate::ir::{Attrs, Type};
use crate::trace::emit;

/// The ops of this file.
pub static FAMILY: Family = Family { name: "cast", source: include_str!("cast.rs"), ops: &[&CAST] };

/// Conversion.
pub static CAST: OpDef = OpDef {
    name: "cast",
    doc: "The value as type `to`: integers wrap, floats round to nearest even, float to integer truncates.",
    signature: |s| {
        s.count(1)?;
        let to = s.attrs.dtype("to").ok_or("a cast needs its type `to`")?;
        match s.operands[0] {
            Type::Scalar(from) if convertible(from, to) => Ok(vec![Type::Scalar(to)]),
            other => Err(format!("{other} cannot be converted to {to}")),
        }
    },
    min_capability: 0,
    effects: &[],
    emit: Emit::Expr(cast),
    cost: |c| elementwise_cost(c, 0),
    example: || {
        let [a] = inputs::<i32, 1>();
        output(a.to::<f32>());
    },
};

fn convertible(from: Dtype, to: Dtype) -> bool {
    let native = |dtype| number(dtype) || matches!(dtype, Dtype::Bool | Dtype::U8);
    (native(from) && native(to)) || matches!((from, to), (Dtype::Bf16, Dtype::F32) | (Dtype::F32, Dtype::Bf16))
}

static BF16_TO_F32: Helper = Helper {
    name: "to_float",
    text: "\
__device__ __forceinline__ float to_float(bf16 x) { return __int_as_float((unsigned)x << 16); }",
};

static F32_TO_BF16: Helper = Helper {
    name: "to_bf16",
    text: "\
__device__ __forceinline__ bf16 to_bf16(float x) {
  bf16 y;
  asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(y) : \"f\"(x));
  return y;
}",
};

fn cast(cx: &mut Cx<'_, '_>) -> Expr {
    let x = cx.operand(0);
    let (from, to) = (cx.operand_type(0).dtype(), cx.result_type(0).dtype());
    match (from, to) {
        (Some(Dtype::Bf16), Some(Dtype::F32)) => {
            cx.require(&BF16_TO_F32);
            Expr::call("to_float", &[&x])
        }
        (Some(Dtype::F32), Some(Dtype::Bf16)) => {
            cx.require(&F32_TO_BF16);
            Expr::call("to_bf16", &[&x])
        }
        (_, Some(to)) => Expr::prefix(&format!("({})", ctype(to)), &x),
        _ => x,
    }
}

impl<T: Element> Scalar<T> {
    /// The value as another type: integers wrap, floats round to nearest even, float to integer truncates.
    #[track_caller]
    pub fn to<U: Element>(self) -> Scalar<U> {
        if T::DTYPE == U::DTYPE {
            return Scalar::from_id(self.id());
        }
        Scalar::from_id(emit(&CAST, &[self.id()], Attrs::none().with("to", U::DTYPE)))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
            cast
              *out = (float)x;
        "#]],
        );
    }
}
