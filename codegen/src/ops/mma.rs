//! Matrix products on the tensor cores, `mma.sync`.

use super::ldmatrix::{STEP_BYTES, print_a_step};
use super::{Effect, OpDef};
use crate::cuda::{Cx, Emit, Expr, Helper};
use crate::dtype::Dtype;
use crate::handles::{Acc, Element, Handle, MmaA, MmaB, SharedTile};
use crate::ir::{Attrs, Type, ValueId};
use crate::trace::emit;

/// `a * b^T` in f32.
pub static MMA_ABT: OpDef = OpDef {
    name: "mma.abt",
    doc: "The product of `a` (rows x depth) and the transpose of `b` (cols x depth), summed in f32; a left operand in \
          shared memory is loaded step by step.",
    signature: |s| {
        s.count(2)?;
        let (dtype, rows, depth) = match s.operands[0] {
            Type::A { dtype, rows, depth } => (dtype, rows, depth),
            _ => {
                let tile = s.tile(0)?;
                (tile.dtype, tile.rows, tile.cols)
            }
        };
        if dtype != Dtype::Bf16 {
            return Err(format!("matrix products of {dtype} are not supported: use bf16"));
        }
        if !rows.is_multiple_of(16) || !depth.is_multiple_of(16) {
            return Err(format!("the left operand has a multiple of 16 rows and columns, not {rows} x {depth}"));
        }
        match s.operands[1] {
            Type::B { dtype: other, cols, depth: same } if other == dtype && same == depth => {
                Ok(vec![Type::Acc { rows, cols }])
            }
            Type::B { dtype: other, cols, depth: k } => Err(format!(
                "the operands do not fit: {dtype} {rows} x {depth} and the transpose of {other} {cols} x {k}"
            )),
            other => Err(format!("the right operand is loaded by `load_b`, not {other}")),
        }
    },
    min_capability: 80,
    effects: &[Effect::Exchange],
    emit: Emit::Stmt(print_mma),
};

static BF16: Helper = Helper {
    name: "mma_bf16",
    text: "\
__device__ __forceinline__ void mma_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm(\"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\"
      : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3])
      : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]));
}",
};

fn print_mma(cx: &mut Cx<'_, '_>) {
    let Type::Acc { rows, cols } = cx.result_type(0) else { return };
    let Type::B { dtype, depth, .. } = cx.operand_type(1) else { return };
    cx.require(&BF16);
    let (blocks, steps) = (rows / 16, depth * dtype.size() as u32 / STEP_BYTES);
    let streamed = matches!(cx.operand_type(0), Type::Shared { .. });
    let a = if streamed { cx.operand_named(0, "from") } else { cx.operand(0) };
    let b = cx.operand_at(1, &[]);
    let acc = Expr::primary(cx.result(0, "acc"));
    let dims = if blocks > 1 { format!("[{blocks}]") } else { String::new() };
    cx.line(&format!("float {acc}{dims}[{}][4] = {{}};", cols / 8));
    cx.unrolled("m", blocks, |cx, m| {
        let row = |tile: &Expr| if blocks > 1 { tile.subscript(m) } else { tile.clone() };
        cx.unrolled("k", steps, |cx, k| {
            let fragment = if streamed {
                let fragment = Expr::primary(cx.local("fragment"));
                cx.line(&format!("unsigned {fragment}[4];"));
                let tile = cx.tile(0);
                print_a_step(cx, &a, tile, m, k, &fragment);
                fragment
            } else {
                row(&a).subscript(k)
            };
            cx.unrolled("n", cols / 8, |cx, n| {
                let (d, b) = (row(&acc).subscript(n), b.subscript(n).subscript(k));
                cx.line(&format!("mma_bf16({d}, {fragment}, {b});"));
            });
        });
    });
}

/// What may be the left operand of a matrix product.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a left operand of a matrix product of `{T}`",
    note = "give a tile in shared memory, or one loaded from it by `tile.load_a()`"
)]
pub trait LeftOperand<T>: Copy {
    /// The tile or fragment.
    fn operand(self) -> ValueId;
}

impl<T: Element> LeftOperand<T> for MmaA<T> {
    fn operand(self) -> ValueId {
        self.id()
    }
}

impl<T: Element> LeftOperand<T> for SharedTile<T> {
    fn operand(self) -> ValueId {
        self.id()
    }
}

/// The product of `a` (rows x depth) and the transpose of `b` (cols x depth), in f32. A tile in shared memory as `a`
/// is loaded step by step, which takes fewer registers than `load_a`.
#[track_caller]
pub fn mma_abt<T: Element>(a: impl LeftOperand<T>, b: MmaB<T>) -> Acc {
    Acc::from_id(emit(&MMA_ABT, &[a.operand(), b.id()], Attrs::none()))
}
