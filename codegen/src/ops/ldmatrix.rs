//! Loading MMA operands from shared memory with `ldmatrix`.
//!
//! `ldmatrix.x4` loads four 8 x 8 matrices of 16-bit elements: lanes `8i..8i+8` give the addresses of the rows of
//! matrix `i`, and lane `l` receives elements `2(l % 4)`, `2(l % 4) + 1` of row `l / 4` of each.

use super::example::memory;
use super::mma::mma_abt;
use super::reduce::below;
use super::shared::{chunk_address, shared};
use super::tile::relu;
use super::{Effect, Family, OpDef, Signature, Space};
use crate::cost::{Cost, Costing};
use crate::cuda::{Cx, Emit, Expr, Helper, prec};
use crate::dtype::Dtype;
use crate::handles::{Acc, Element, Handle, MmaA, MmaB, SharedTile, WritePart, bf16};
use crate::ir::{self, Attrs, Swizzle, Type};
use crate::trace::emit;

/// Bytes of depth that one MMA takes.
pub(super) const STEP_BYTES: u32 = 32;

/// The ops of this file.
pub static FAMILY: Family = Family { name: "ldmatrix", source: include_str!("ldmatrix.rs"), ops: &[&LOAD_A, &LOAD_B] };

/// Loads a tile as left operand.
pub static LOAD_A: OpDef = OpDef {
    name: "ldmatrix.a",
    doc: "A tile of `rows x depth` elements as the left operand of a matrix product.",
    signature: |s| {
        let (dtype, rows, depth) = operand(s, 16)?;
        Ok(vec![Type::A { dtype, rows, depth }])
    },
    min_capability: 75,
    effects: &[Effect::Read(Space::Shared)],
    emit: Emit::Stmt(print_a),
    cost,
    example: show_product,
};

/// Loads a tile as right operand.
pub static LOAD_B: OpDef = OpDef {
    name: "ldmatrix.b",
    doc: "A tile of `cols x depth` elements as the right operand, transposed, of a matrix product.",
    signature: |s| {
        let (dtype, cols, depth) = operand(s, 8)?;
        Ok(vec![Type::B { dtype, cols, depth }])
    },
    min_capability: 75,
    effects: &[Effect::Read(Space::Shared)],
    emit: Emit::Stmt(print_b),
    cost,
    example: show_product,
};

fn cost(c: &Costing<'_>) -> Cost {
    let bytes = c.bytes(c.result(0));
    Cost { issue: bytes.div_ceil(512), shared_read: bytes, ..Cost::NONE }
}

/// Each warp multiplies its 16 keys with 16 queries.
pub(super) fn product() -> Acc {
    let queries = shared::<bf16>([16, 128]).swizzle(Swizzle::Xor16);
    let keys = shared::<bf16>([16, 128]).per_warp().swizzle(Swizzle::Xor16);
    mma_abt(keys.load_a(), queries.load_b())
}

/// [`product`], summed over queries and stored.
pub(super) fn show_product() {
    let dots = product();
    memory::<f32, WritePart>("scores").start().store_rows(relu(dots).sum_cols(), below(16));
}

fn operand(s: &Signature<'_>, granule: u32) -> Result<(Dtype, u32, u32), String> {
    s.count(1)?;
    let tile = s.tile(0)?;
    let (dtype, rows, cols) = (tile.dtype, tile.rows, tile.cols);
    if !matches!(dtype, Dtype::Bf16 | Dtype::F16 | Dtype::E4m3) {
        return Err(format!("matrix products take bf16, f16 or e4m3, not {dtype}"));
    }
    let depth = STEP_BYTES / dtype.size() as u32;
    if !rows.is_multiple_of(granule) || !cols.is_multiple_of(depth) {
        return Err(format!(
            "this operand takes a multiple of {granule} rows and of {depth} columns of {dtype}, not {rows} x {cols}"
        ));
    }
    Ok((dtype, rows, cols))
}

static X4: Helper = Helper {
    name: "ldmatrix_x4",
    text: "\
__device__ __forceinline__ void ldmatrix_x4(unsigned (&v)[4], unsigned from) {
  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\"
               : \"=r\"(v[0]), \"=r\"(v[1]), \"=r\"(v[2]), \"=r\"(v[3]) : \"r\"(from) : \"memory\");
}",
};

static PAIR: Helper = Helper {
    name: "ldmatrix_x4",
    text: "\
__device__ __forceinline__ void ldmatrix_x4(unsigned (&v)[2], unsigned (&w)[2], unsigned from) {
  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\"
               : \"=r\"(v[0]), \"=r\"(v[1]), \"=r\"(w[0]), \"=r\"(w[1]) : \"r\"(from) : \"memory\");
}",
};

static X2: Helper = Helper {
    name: "ldmatrix_x2",
    text: "\
__device__ __forceinline__ void ldmatrix_x2(unsigned (&v)[2], unsigned from) {
  asm volatile(\"ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\"
               : \"=r\"(v[0]), \"=r\"(v[1]) : \"r\"(from) : \"memory\");
}",
};

fn number(n: u32) -> Expr {
    Expr::primary(n.to_string())
}

fn binary(level: u8, operator: &str, a: &Expr, b: u32) -> Expr {
    Expr::binary(level, operator, a, &number(b))
}

/// Names the address of the chunk that the lane gives for the first step of depth.
fn first_address(cx: &mut Cx<'_, '_>, row: &Expr, chunk: &Expr) -> Expr {
    let tile = cx.tile(0);
    let base = cx.operand(0);
    let phase = binary(prec::PRODUCT, "%", &cx.lane(), 8);
    let address = chunk_address(&base, tile, row, &phase, chunk);
    cx.name(&format!("{}_lane", tile.name), "unsigned", &address)
}

/// The address for step `k`, of `bytes` bytes: where chunks are permuted, those of a row differ in the bits of the step.
fn step_address(tile: &ir::SharedTile, first: &Expr, k: &Expr, bytes: u32) -> Expr {
    if k.to_string() == "0" {
        return first.clone();
    }
    let step = binary(prec::PRODUCT, "*", k, bytes);
    match tile.swizzle {
        Swizzle::None => Expr::binary(prec::SUM, "+", first, &step),
        Swizzle::Xor16 => Expr::binary(prec::XOR, "^", first, &step),
    }
}

fn print_a(cx: &mut Cx<'_, '_>) {
    cx.require(&X4);
    let tile = cx.tile(0);
    let lane = cx.lane();
    let (row, chunk) = (binary(prec::PRODUCT, "%", &lane, 16), binary(prec::PRODUCT, "/", &lane, 16));
    let first = first_address(cx, &row, &chunk);
    let name = Expr::primary(cx.result(0, "a"));
    let ty = cx.result_type(0);
    cx.array(&name.to_string(), ty);
    let (blocks, steps) = (tile.rows / 16, tile.row_bytes() / STEP_BYTES);
    cx.unrolled("m", blocks, |cx, m| {
        let fragment = if blocks > 1 { name.subscript(m) } else { name.clone() };
        cx.unrolled("k", steps, |cx, k| {
            let address = step_address(tile, &first, k, STEP_BYTES);
            let address = if blocks > 1 {
                Expr::binary(prec::SUM, "+", &address, &binary(prec::PRODUCT, "*", m, 16 * tile.row_bytes()))
            } else {
                address
            };
            cx.line(&format!("ldmatrix_x4({}, {address});", fragment.subscript(k)));
        });
    });
}

fn print_b(cx: &mut Cx<'_, '_>) {
    let tile = cx.tile(0);
    let lane = cx.lane();
    let steps = tile.row_bytes() / STEP_BYTES;
    // One x4 loads the fragments of two steps, and an odd last step takes an x2.
    let row = binary(prec::PRODUCT, "%", &lane, 8);
    let matrix = binary(prec::PRODUCT, "/", &lane, 8);
    let pairs = steps.is_multiple_of(2);
    let chunk = if pairs { matrix } else { binary(prec::PRODUCT, "%", &matrix, 2) };
    let first = first_address(cx, &row, &chunk);
    let name = Expr::primary(cx.result(0, "b"));
    let ty = cx.result_type(0);
    cx.array(&name.to_string(), ty);
    cx.unrolled("n", tile.rows / 8, |cx, n| {
        let fragment = name.subscript(n);
        let at = |address: Expr| {
            if n.to_string() == "0" {
                return address;
            }
            Expr::binary(prec::SUM, "+", &address, &binary(prec::PRODUCT, "*", n, 8 * tile.row_bytes()))
        };
        if pairs {
            cx.require(&PAIR);
            cx.unrolled("k", steps / 2, |cx, k| {
                let address = at(step_address(tile, &first, k, 2 * STEP_BYTES));
                let even = if k.to_string() == "0" { number(0) } else { binary(prec::PRODUCT, "*", k, 2) };
                let odd = if k.to_string() == "0" { number(1) } else { binary(prec::SUM, "+", &even, 1) };
                let (even, odd) = (fragment.subscript(&even), fragment.subscript(&odd));
                cx.line(&format!("ldmatrix_x4({even}, {odd}, {address});"));
            });
        } else {
            cx.require(&X2);
            cx.unrolled("k", steps, |cx, k| {
                let address = at(step_address(tile, &first, k, STEP_BYTES));
                cx.line(&format!("ldmatrix_x2({}, {address});", fragment.subscript(k)));
            });
        }
    });
}

impl<T: Element> SharedTile<T> {
    /// This tile, `rows x depth`, as the left operand of a matrix product, in registers of the warp.
    #[track_caller]
    pub fn load_a(self) -> MmaA<T> {
        MmaA::from_id(emit(&LOAD_A, &[self.id()], Attrs::none()))
    }

    /// This tile, `cols x depth`, as the right operand, transposed, of a matrix product, in registers of the warp.
    #[track_caller]
    pub fn load_b(self) -> MmaB<T> {
        MmaB::from_id(emit(&LOAD_B, &[self.id()], Attrs::none()))
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
                ldmatrix.a
                  const unsigned tile1_lane = tile1 + lane % 16 * 256 + ((lane / 16) ^ (lane % 8)) * 16;
                  unsigned a[8][4];
                  #pragma unroll
                  for (int k = 0; k < 8; ++k) {
                    ldmatrix_x4(a[k], tile1_lane ^ (k * 32));
                  }
                ldmatrix.b
                  const unsigned tile0_lane = tile0 + lane % 8 * 256 + ((lane / 8) ^ (lane % 8)) * 16;
                  unsigned b[2][8][2];
                  #pragma unroll
                  for (int n = 0; n < 2; ++n) {
                    #pragma unroll
                    for (int k = 0; k < 4; ++k) {
                      ldmatrix_x4(b[n][k * 2], b[n][k * 2 + 1], (tile0_lane ^ (k * 64)) + n * 2048);
                    }
                  }
            "#]],
        );
    }
}
