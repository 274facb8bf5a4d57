//! The largest value over the rows of a tile.

use super::example::output;
use super::ldmatrix::product;
use super::reduce::{Below, below, row_of};
use super::tile::relu;
use super::{Effect, Family, OpDef};
use crate::cost::Cost;
use crate::cuda::{Cx, Emit, Expr, Helper, prec};
use crate::dtype::Dtype;
use crate::handles::{Handle, RowSums, Scalar};
use crate::ir::{Attrs, Type};
use crate::trace::emit;

/// The ops of this file.
pub static FAMILY: Family = Family { name: "row_max", source: include_str!("row_max.rs"), ops: &[&MAX_ROWS] };

/// The largest value over some rows.
pub static MAX_ROWS: OpDef = OpDef {
    name: "row_max",
    doc: "The largest value of the rows below `limit`, on every lane of the warp; -inf without such a row, and NaN \
          counts as nothing.",
    signature: |s| {
        s.count(2)?;
        match *s.operands {
            [Type::RowSums { .. }, Type::Scalar(Dtype::I32)] => Ok(vec![Type::Scalar(Dtype::F32)]),
            [sums, limit] => Err(format!("the maximum is over row sums below an i32, not over {sums} below {limit}")),
            _ => unreachable!("counted above"),
        }
    },
    min_capability: 70,
    effects: &[Effect::Exchange],
    emit: Emit::Stmt(print_max_rows),
    cost: |c| Cost { issue: 12 + 3 * c.registers(c.operand(0)), ..Cost::NONE },
    example: || output(relu(product()).sum_cols().max_rows(below(10))),
};

static WARP_MAX: Helper = Helper {
    name: "warp_max",
    text: "\
// The largest value that a lane of the warp holds; NaN counts as nothing.
__device__ __forceinline__ float warp_max(float x) {
  #pragma unroll
  for (int by = 16; by > 0; by /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, by));
  return x;
}",
};

const MINUS_INFINITY: &str = "__int_as_float(0xff800000)";

fn print_max_rows(cx: &mut Cx<'_, '_>) {
    let Type::RowSums { rows } = cx.operand_type(0) else { return };
    cx.require(&WARP_MAX);
    let limit = cx.operand(1);
    let limit = limit.at_least(prec::RELATION + 1);
    if rows <= 32 {
        let row = row_of(cx, rows, (rows == 32).then_some(&Expr::primary("0")));
        let sum = cx.operand_at(0, &[]);
        let name = cx.result(0, "largest");
        return cx.line(&format!("const float {name} = warp_max({row} < {limit} ? {sum} : {MINUS_INFINITY});"));
    }
    let largest = cx.local("largest_of_lane");
    cx.line(&format!("float {largest} = {MINUS_INFINITY};"));
    cx.unrolled("m", rows / 32, |cx, m| {
        let row = row_of(cx, rows, Some(m));
        let sum = cx.operand_at(0, std::slice::from_ref(m));
        cx.line(&format!("if ({row} < {limit}) {largest} = fmaxf({largest}, {sum});"));
    });
    let name = cx.result(0, "largest");
    cx.line(&format!("const float {name} = warp_max({largest});"));
}

impl RowSums {
    /// The largest value of the rows of `which`, on every lane of the warp; -inf without such a row, and NaN counts as
    /// nothing.
    #[track_caller]
    pub fn max_rows(self, which: Below) -> Scalar<f32> {
        Scalar::from_id(emit(&MAX_ROWS, &[self.id(), which.0.id()], Attrs::none()))
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
                row_max
                  const int lane_row = lane / 4 + lane % 2 * 8;
                  const float largest = warp_max(lane_row < 10 ? row_sum : __int_as_float(0xff800000));
            "#]],
        );
    }
}
