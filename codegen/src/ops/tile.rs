//! Register tiles: elementwise operators (the ops are those of [`super::arith`]) and column vectors.

use std::ops::{Add, Mul, Sub};

use super::example::memory;
use super::mma::mma_abt;
use super::reduce::below;
use super::shared::shared;
use super::{Effect, Family, OpDef, Space, arith};
use crate::cost::Cost;
use crate::cuda::{Cx, Emit, Expr, prec};
use crate::dtype::Dtype;
use crate::handles::{Acc, AccessMode, Cols, Handle, Place, Read, Readable, RowSums, Scalar, WritePart, bf16};
use crate::ir::{Attrs, Swizzle, Type};
use crate::ops::global::LOAD_X2_F32;
use crate::trace::emit;

/// The ops of this file.
pub static FAMILY: Family = Family { name: "tile", source: include_str!("tile.rs"), ops: &[&LOAD_COLS] };

/// Loads a column vector.
pub static LOAD_COLS: OpDef = OpDef {
    name: "tile.load_cols",
    doc: "`cols` consecutive f32 from a place, a multiple of 8 bytes, as one value a column of an accumulator.",
    signature: |s| {
        s.count(1)?;
        let cols = s.attrs.int("cols");
        if cols <= 0 || cols % 8 != 0 {
            return Err(format!("an accumulator has a multiple of 8 columns, not {cols}"));
        }
        match s.operands[0] {
            Type::Global(Dtype::F32) => Ok(vec![Type::Cols { cols: cols as u32 }]),
            other => Err(format!("a column vector is loaded from f32, not from {other}")),
        }
    },
    min_capability: 0,
    effects: &[Effect::Read(Space::Global)],
    emit: Emit::Stmt(|cx: &mut Cx<'_, '_>| {
        let Type::Cols { cols } = cx.result_type(0) else { return };
        cx.require(&LOAD_X2_F32);
        let place = cx.operand_named(0);
        let name = Expr::primary(cx.result(0, "cols"));
        let ty = cx.result_type(0);
        cx.array(&name.to_string(), ty);
        let lane = cx.lane();
        cx.unrolled("n", cols / 8, |cx, n| {
            let number = |n: u32| Expr::primary(n.to_string());
            let product = |a: &Expr, b: u32| Expr::binary(prec::PRODUCT, "*", a, &number(b));
            let column = product(&Expr::binary(prec::PRODUCT, "%", &lane, &number(4)), 2);
            let column = if cols > 8 { Expr::binary(prec::SUM, "+", &product(n, 8), &column) } else { column };
            let place = Expr::binary(prec::SUM, "+", &place, &column);
            cx.line(&format!("load_x2({}, {place});", name.subscript(n)));
        });
    }),
    cost: |c| {
        let registers = c.registers(c.result(0));
        Cost { issue: registers / 2, global_read: 4 * registers * 4, ..Cost::NONE }
    },
    example: || {
        let queries = shared::<bf16>([16, 128]).swizzle(Swizzle::Xor16);
        let keys = shared::<bf16>([16, 128]).per_warp().swizzle(Swizzle::Xor16);
        let w = memory::<f32, Read>("weights").start().load_cols(16);
        let scores = relu(mma_abt(keys.load_a(), queries.load_b())) * w;
        memory::<f32, WritePart>("scores").start().store_rows(scores.sum_cols(), below(16));
    },
};

impl<A: AccessMode + Readable> Place<f32, A> {
    /// The `cols` elements from here on, a multiple of 8 bytes, as one value a column of an accumulator.
    #[track_caller]
    pub fn load_cols(self, cols: i32) -> Cols {
        Cols::from_id(emit(&LOAD_COLS, &[self.id()], Attrs::none().with("cols", cols)))
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident;)*) => {$(
        operators! { @ $trait $method $op Acc Acc Acc }
        operators! { @ $trait $method $op Acc Cols Acc }
        operators! { @ $trait $method $op Acc (Scalar<f32>) Acc }
        operators! { @ $trait $method $op Cols Cols Cols }
        operators! { @ $trait $method $op Cols (Scalar<f32>) Cols }
        operators! { @ $trait $method $op RowSums RowSums RowSums }
        operators! { @ $trait $method $op RowSums (Scalar<f32>) RowSums }
    )*};
    (@ $trait:ident $method:ident $op:ident $left:ident ($right:ty) $out:ident) => {
        operators! { @ $trait $method $op $left [$right] $out }

        impl $trait<f32> for $left {
            type Output = $out;
            #[track_caller]
            fn $method(self, other: f32) -> $out {
                $trait::$method(self, Scalar::from(other))
            }
        }
    };
    (@ $trait:ident $method:ident $op:ident $left:ident $right:ident $out:ident) => {
        operators! { @ $trait $method $op $left [$right] $out }
    };
    (@ $trait:ident $method:ident $op:ident $left:ident [$right:ty] $out:ident) => {
        impl $trait<$right> for $left {
            type Output = $out;
            #[track_caller]
            fn $method(self, other: $right) -> $out {
                $out::from_id(emit(&arith::$op, &[self.id(), other.id()], Attrs::none()))
            }
        }
    };
}

operators! {
    Add add ADD;
    Sub sub SUB;
    Mul mul MUL;
}

/// What [`relu`] works on: f32 scalars and register tiles of f32.
#[diagnostic::on_unimplemented(message = "`relu` is of f32: a `Scalar<f32>` or a register tile, not `{Self}`")]
pub trait FloatValue: Handle {}

impl FloatValue for Scalar<f32> {}
impl FloatValue for Acc {}
impl FloatValue for Cols {}
impl FloatValue for RowSums {}

/// The larger of zero and each element; NaN becomes zero.
#[track_caller]
pub fn relu<V: FloatValue>(x: V) -> V {
    let zero = Scalar::from(0.0f32);
    V::from_id(emit(&arith::MAX, &[x.id(), zero.id()], Attrs::none()))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
                tile.load_cols
                  float cols[2][2];
                  #pragma unroll
                  for (int n = 0; n < 2; ++n) {
                    load_x2(cols[n], weights + (n * 8 + lane % 4 * 2));
                  }
            "#]],
        );
    }
}
