//! Loading MMA operands from shared memory with `ldmatrix`.
//!
//! `ldmatrix.x4` loads four 8 x 8 matrices of 16-bit elements: lanes `8i..8i+8` give the addresses of the rows of
//! matrix `i`, and lane `l` receives elements `2(l % 4)`, `2(l % 4) + 1` of row `l / 4` of each.

use super::shared::chunk_address;
use super::{Effect, OpDef, Signature, Space};
use crate::cuda::{Cx, Emit, Expr, Helper, prec};
use crate::dtype::Dtype;
use crate::handles::{Element, Handle, MmaA, MmaB, SharedTile};
use crate::ir::{self, Attrs, Type};
use crate::trace::emit;

/// Bytes of depth that one MMA takes.
pub(super) const STEP_BYTES: u32 = 32;

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
};

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
__device__ __forceinline__ void ldmatrix_x4(unsigned& a, unsigned& b, unsigned& c, unsigned& d, unsigned from) {
  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\"
               : \"=r\"(a), \"=r\"(b), \"=r\"(c), \"=r\"(d) : \"r\"(from) : \"memory\");
}",
};

static X2: Helper = Helper {
    name: "ldmatrix_x2",
    text: "\
__device__ __forceinline__ void ldmatrix_x2(unsigned& a, unsigned& b, unsigned from) {
  asm volatile(\"ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\"
               : \"=r\"(a), \"=r\"(b) : \"r\"(from) : \"memory\");
}",
};

fn number(n: u32) -> Expr {
    Expr::primary(n.to_string())
}

fn binary(level: u8, operator: &str, a: &Expr, b: u32) -> Expr {
    Expr::binary(level, operator, a, &number(b))
}

/// `start * scale + rest`, shortened where `start` is 0.
fn affine(start: &Expr, scale: u32, rest: &Expr) -> Expr {
    if start.to_string() == "0" {
        return rest.clone();
    }
    let scaled = if scale == 1 { start.clone() } else { binary(prec::PRODUCT, "*", start, scale) };
    Expr::binary(prec::SUM, "+", &scaled, rest)
}

/// Prints the load of the left operand's fragment for rows `16 m ..` and depth step `k` into `into[0..4]`.
pub(super) fn print_a_step(cx: &mut Cx<'_, '_>, base: &Expr, tile: &ir::SharedTile, m: &Expr, k: &Expr, into: &Expr) {
    cx.require(&X4);
    let lane = cx.lane();
    let row = affine(m, 16, &binary(prec::PRODUCT, "%", &lane, 16));
    let chunk = affine(k, 2, &binary(prec::PRODUCT, "/", &lane, 16));
    let address = chunk_address(base, tile, &row, &binary(prec::PRODUCT, "%", &lane, 8), &chunk);
    let [a, b, c, d] = [0, 1, 2, 3].map(|i| into.subscript(&number(i)));
    let address = cx.name("address", "unsigned", &address);
    cx.line(&format!("ldmatrix_x4({a}, {b}, {c}, {d}, {address});"));
}

fn print_a(cx: &mut Cx<'_, '_>) {
    let tile = cx.tile(0);
    let base = cx.operand_named(0, "from");
    let name = cx.result(0, "a");
    let ty = cx.result_type(0);
    cx.array(&name, ty);
    let steps = tile.row_bytes() / STEP_BYTES;
    let blocks = tile.rows / 16;
    cx.unrolled("m", blocks, |cx, m| {
        cx.unrolled("k", steps, |cx, k| {
            let fragment = Expr::primary(&name);
            let fragment = if blocks > 1 { fragment.subscript(m) } else { fragment };
            print_a_step(cx, &base, tile, m, k, &fragment.subscript(k));
        });
    });
}

fn print_b(cx: &mut Cx<'_, '_>) {
    let tile = cx.tile(0);
    let base = cx.operand_named(0, "from");
    let name = Expr::primary(cx.result(0, "b"));
    let ty = cx.result_type(0);
    cx.array(&name.to_string(), ty);
    let lane = cx.lane();
    let steps = tile.row_bytes() / STEP_BYTES;
    let pairs = steps.is_multiple_of(2);
    cx.require(if pairs { &X4 } else { &X2 });
    cx.unrolled("n", tile.rows / 8, |cx, n| {
        let phase = binary(prec::PRODUCT, "%", &lane, 8);
        let row = affine(n, 8, &phase);
        let address = |i: &Expr, chunks: u32| {
            let matrix = binary(prec::PRODUCT, "/", &lane, 8);
            let matrix = if chunks == 2 { binary(prec::PRODUCT, "%", &matrix, 2) } else { matrix };
            chunk_address(&base, tile, &row, &phase, &affine(i, chunks, &matrix))
        };
        let fragment = name.subscript(n);
        if pairs {
            cx.unrolled("j", steps / 2, |cx, i| {
                let even = fragment.subscript(&affine(i, 2, &number(0)));
                let even = if i.to_string() == "0" { even } else { fragment.subscript(&binary(prec::PRODUCT, "*", i, 2)) };
                let odd = fragment.subscript(&affine(i, 2, &number(1)));
                let registers = [(&even, 0), (&even, 1), (&odd, 0), (&odd, 1)];
                let registers = registers.map(|(half, r)| half.subscript(&number(r)).to_string()).join(", ");
                let address = cx.name("address", "unsigned", &address(i, 4));
                cx.line(&format!("ldmatrix_x4({registers}, {address});"));
            });
        } else {
            cx.unrolled("k", steps, |cx, k| {
                let [a, b] = [0, 1].map(|r| fragment.subscript(k).subscript(&number(r)));
                let address = cx.name("address", "unsigned", &address(k, 2));
                cx.line(&format!("ldmatrix_x2({a}, {b}, {address});"));
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
