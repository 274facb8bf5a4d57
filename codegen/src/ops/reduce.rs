//! Values of an accumulator's rows: sums over its columns, loading and storing them.

use super::example::memory;
use super::ldmatrix::show_product;
use super::mma::mma_abt;
use super::shared::shared;
use super::shared_element::LOAD_F32 as LOAD_SHARED_F32;
use super::{Effect, Family, OpDef, Space};
use crate::cost::Cost;
use crate::cuda::{Cx, Emit, Expr, Helper, prec};
use crate::dtype::Dtype;
use crate::handles::{Acc, AccessMode, Handle, Place, RowSums, Scalar, SharedTile, Writable, WritePart, bf16};
use crate::ir::{Attrs, Swizzle, Type};
use crate::trace::{emit, emit_stmt};

/// The ops of this file.
pub static FAMILY: Family =
    Family { name: "reduce", source: include_str!("reduce.rs"), ops: &[&SUM_COLS, &LOAD_ROWS, &STORE_ROWS] };

/// The sum of each row.
pub static SUM_COLS: OpDef = OpDef {
    name: "reduce.sum_cols",
    doc: "The sum over the columns of each row of an accumulator, scattered over the 4 lanes that hold the row.",
    signature: |s| {
        s.count(1)?;
        match s.operands[0] {
            Type::Acc { rows, .. } if rows == 16 || rows.is_multiple_of(32) => Ok(vec![Type::RowSums { rows }]),
            Type::Acc { rows, .. } => Err(format!("sums are of 16 rows or a multiple of 32, not of {rows}")),
            other => Err(format!("columns of an accumulator are summed, not of {other}")),
        }
    },
    min_capability: 70,
    effects: &[Effect::Exchange],
    emit: Emit::Stmt(print_sum_cols),
    cost: |c| {
        let elements = c.registers(c.operand(0));
        Cost { issue: elements + 7, flops: 32 * (elements + 4), ..Cost::NONE }
    },
    example: show_product,
};

static QUAD_SUM: Helper = Helper {
    name: "quad_sum",
    text: "\
// Sums two rows over the 4 lanes that hold them: even lanes return the sum of row `a`, odd ones that of row `b`.
__device__ __forceinline__ float quad_sum(float a, float b, int lane) {
  const bool odd = lane % 2;
  const float sum = (odd ? b : a) + __shfl_xor_sync(0xffffffffu, odd ? a : b, 1);
  return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
}",
};

static QUAD_SUM_4: Helper = Helper {
    name: "quad_sum",
    text: "\
// Sums four rows over the 4 lanes that hold them: lane t of the four returns the sum of row t.
__device__ __forceinline__ float quad_sum(float a, float b, float c, float d, int lane) {
  const bool odd = lane % 2, upper = lane % 4 / 2;
  const float low = (odd ? b : a) + __shfl_xor_sync(0xffffffffu, odd ? a : b, 1);
  const float high = (odd ? d : c) + __shfl_xor_sync(0xffffffffu, odd ? c : d, 1);
  return (upper ? high : low) + __shfl_xor_sync(0xffffffffu, upper ? low : high, 2);
}",
};

fn print_sum_cols(cx: &mut Cx<'_, '_>) {
    let Type::Acc { rows, cols } = cx.operand_type(0) else { return };
    let blocks = rows / 16;
    let lane = cx.lane();
    let sums = Expr::primary(cx.local("sums"));
    let dims = if blocks > 1 { format!("[{blocks}]") } else { String::new() };
    cx.line(&format!("float {sums}{dims}[4] = {{}};"));
    cx.unrolled("m", blocks, |cx, m| {
        cx.unrolled("n", cols / 8, |cx, n| {
            cx.unrolled("e", 4, |cx, e| {
                let index = if blocks > 1 { vec![m.clone(), n.clone(), e.clone()] } else { vec![n.clone(), e.clone()] };
                let term = cx.operand_at(0, &index);
                let sums = if blocks > 1 { sums.subscript(m) } else { sums.clone() };
                cx.line(&format!("{} += {term};", sums.subscript(e)));
            });
        });
    });
    let number = |n: u32| Expr::primary(n.to_string());
    // The two rows that a lane holds of a 16-row block.
    let halves = |block: &Expr| {
        let at = |e: u32| block.subscript(&number(e));
        [0, 2].map(|e| Expr::binary(prec::SUM, "+", &at(e), &at(e + 1)))
    };
    if blocks == 1 {
        cx.require(&QUAD_SUM);
        let [a, b] = halves(&sums);
        let name = cx.result(0, "row_sum");
        return cx.line(&format!("const float {name} = {};", Expr::call("quad_sum", &[&a, &b, &lane])));
    }
    cx.require(&QUAD_SUM_4);
    let quad = |first: &Expr, second: &Expr| {
        let ([a, b], [c, d]) = (halves(&sums.subscript(first)), halves(&sums.subscript(second)));
        Expr::call("quad_sum", &[&a, &b, &c, &d, &lane])
    };
    let name = cx.result(0, "row_sum");
    if blocks == 2 {
        return cx.line(&format!("const float {name} = {};", quad(&number(0), &number(1))));
    }
    cx.line(&format!("float {name}[{}];", blocks / 2));
    cx.unrolled("m", blocks / 2, |cx, m| {
        let first = Expr::binary(prec::PRODUCT, "*", &number(2), m);
        let second = Expr::binary(prec::SUM, "+", &first, &number(1));
        cx.line(&format!("{name}[{m}] = {};", quad(&first, &second)));
    });
}

/// Loads a value a row.
pub static LOAD_ROWS: OpDef = OpDef {
    name: "reduce.load_rows",
    doc: "The elements of a shared tile of one row of f32 as one value a row of an accumulator.",
    signature: |s| {
        s.count(1)?;
        let tile = s.tile(0)?;
        match (tile.dtype, tile.rows, tile.cols) {
            (Dtype::F32, 1, rows) if rows == 16 || rows.is_multiple_of(32) => Ok(vec![Type::RowSums { rows }]),
            (dtype, rows, cols) => Err(format!(
                "values of rows are loaded from a tile of 1 x 16 f32, or 1 x a multiple of 32, not {rows} x {cols} {dtype}"
            )),
        }
    },
    min_capability: 0,
    effects: &[Effect::Read(Space::Shared)],
    emit: Emit::Stmt(print_load_rows),
    cost: |c| {
        let registers = c.registers(c.result(0)).max(1);
        Cost { issue: registers, shared_read: 128 * registers, ..Cost::NONE }
    },
    example: || {
        let queries = shared::<bf16>([16, 128]).swizzle(Swizzle::Xor16);
        let keys = shared::<bf16>([16, 128]).per_warp().swizzle(Swizzle::Xor16);
        let scales = shared::<f32>([1, 16]).per_warp();
        let scores = mma_abt(keys.load_a(), queries.load_b()).sum_cols() * scales.load_rows();
        memory::<f32, WritePart>("scores").start().store_rows(scores, below(16));
    },
};

fn print_load_rows(cx: &mut Cx<'_, '_>) {
    let Type::RowSums { rows } = cx.result_type(0) else { return };
    cx.require(&LOAD_SHARED_F32);
    let from = cx.operand_named(0);
    let name = cx.result(0, "row_value");
    if rows <= 32 {
        let row = row_of(cx, rows, Some(&Expr::primary("0")));
        return cx.line(&format!("const float {name} = load_shared_float({from} + {row} * 4);"));
    }
    cx.line(&format!("float {name}[{}];", rows / 32));
    cx.unrolled("m", rows / 32, |cx, m| {
        let row = row_of(cx, rows, Some(m));
        cx.line(&format!("{name}[{m}] = load_shared_float({from} + {row} * 4);"));
    });
}

impl SharedTile<f32> {
    /// The elements of this tile of one row, of 16 f32 or a multiple of 32, as one value a row of an accumulator.
    #[track_caller]
    pub fn load_rows(self) -> RowSums {
        RowSums::from_id(emit(&LOAD_ROWS, &[self.id()], Attrs::none()))
    }
}

/// Stores a value a row.
pub static STORE_ROWS: OpDef = OpDef {
    name: "reduce.store_rows",
    doc: "Stores the value of row r at `place + r`, for the rows below `limit`.",
    signature: |s| {
        s.count(3)?;
        match *s.operands {
            [Type::Global(Dtype::F32), Type::RowSums { .. }, Type::Scalar(Dtype::I32)] => Ok(vec![]),
            [place, sums, limit] => {
                Err(format!("row sums are stored to f32 below an i32, not {sums} to {place} below {limit}"))
            }
            _ => unreachable!("counted above"),
        }
    },
    min_capability: 0,
    effects: &[Effect::Write(Space::Global)],
    emit: Emit::Stmt(print_store_rows),
    cost: |c| {
        let Type::RowSums { rows } = c.operand(1) else { return Cost::NONE };
        Cost { issue: 4, global_written: 4 * u64::from(rows), ..Cost::NONE }
    },
    example: show_product,
};

fn print_store_rows(cx: &mut Cx<'_, '_>) {
    let Type::RowSums { rows } = cx.operand_type(1) else { return };
    let lane = cx.lane();
    let limit = cx.operand(2);
    let limit = limit.at_least(prec::RELATION + 1);
    let place = cx.operand_named(0);
    if rows == 16 {
        let row = row_of(cx, rows, None);
        let sum = cx.operand_at(1, &[]);
        return cx.line(&format!("if ({lane} % 4 < 2 && {row} < {limit}) {place}[{row}] = {sum};"));
    }
    cx.unrolled("m", rows / 32, |cx, m| {
        let row = row_of(cx, rows, Some(m));
        let sum = if rows == 32 { cx.operand_at(1, &[]) } else { cx.operand_at(1, std::slice::from_ref(m)) };
        cx.line(&format!("if ({row} < {limit}) {place}[{row}] = {sum};"));
    });
}

/// Names the row whose value the lane holds, in the `m`-th 32 rows. Of 16 rows, every second pair of lanes repeats the
/// one before.
pub(super) fn row_of(cx: &mut Cx<'_, '_>, rows: u32, m: Option<&Expr>) -> Expr {
    let lane = cx.lane();
    let row = match m.filter(|_| rows > 16) {
        None => format!("{lane} / 4 + {lane} % 2 * 8"),
        Some(m) => {
            let within = format!("{lane} % 4 / 2 * 16 + {lane} % 2 * 8 + {lane} / 4");
            if rows == 32 { within } else { format!("{m} * 32 + {within}") }
        }
    };
    cx.name("lane_row", "int", &Expr::primary(row))
}

impl Acc {
    /// The sum over the columns of each row. The order of the additions is fixed.
    #[track_caller]
    pub fn sum_cols(self) -> RowSums {
        RowSums::from_id(emit(&SUM_COLS, &[self.id()], Attrs::none()))
    }
}

/// The rows below a limit: those of a tile that hold something.
#[derive(Clone, Copy, Debug)]
pub struct Below(pub(super) Scalar<i32>);

/// The rows (or columns) below `limit`; none if it is negative.
#[track_caller]
pub fn below(limit: impl Into<Scalar<i32>>) -> Below {
    Below(limit.into())
}

impl<A: AccessMode + Writable> Place<f32, A> {
    /// Stores the value of row r at the element r further, for the rows of `which`.
    #[track_caller]
    pub fn store_rows(self, sums: RowSums, which: Below) {
        emit_stmt(&STORE_ROWS, &[self.id(), sums.id(), which.0.id()], Attrs::none());
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
                reduce.sum_cols
                  float sums[4] = {};
                  #pragma unroll
                  for (int n = 0; n < 2; ++n) {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                      sums[e] += fmaxf(acc[n][e], 0.0f);
                    }
                  }
                  const float row_sum = quad_sum(sums[0] + sums[1], sums[2] + sums[3], lane);
                reduce.load_rows
                  const int lane_row = lane / 4 + lane % 2 * 8;
                  const float row_value = load_shared_float(tile2 + lane_row * 4);
                reduce.store_rows
                  const int lane_row = lane / 4 + lane % 2 * 8;
                  if (lane % 4 < 2 && lane_row < 16) scores[lane_row] = row_sum;
            "#]],
        );
    }
}
