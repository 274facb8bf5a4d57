//! Matrix products on the tensor cores, `mma.sync`.

use super::ldmatrix::{STEP_BYTES, show_product};
use super::{Effect, Family, OpDef};
use crate::cost::Cost;
use crate::cuda::{Cx, Emit, Expr, Helper};
use crate::dtype::Dtype;
use crate::handles::{Acc, Element, Handle, MmaA, MmaB};
use crate::ir::{Attrs, Type};
use crate::trace::emit;

/// The ops of this file.
pub static FAMILY: Family = Family { name: "mma", source: include_str!("mma.rs"), ops: &[&MMA_ABT] };

/// `a * b^T` in f32.
pub static MMA_ABT: OpDef = OpDef {
    name: "mma.abt",
    doc: "The product of `a` (rows x depth) and the transpose of `b` (cols x depth), summed in f32.",
    signature: |s| {
        s.count(2)?;
        let Type::A { dtype, rows, depth } = s.operands[0] else {
            return Err(format!("the left operand is loaded by `load_a`, not {}", s.operands[0]));
        };
        if !matches!(dtype, Dtype::Bf16 | Dtype::E4m3) {
            return Err(format!("matrix products of {dtype} are not supported: use bf16 or e4m3"));
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
    cost: |c| {
        let (Type::Acc { rows, cols }, Type::B { dtype, depth, .. }) = (c.result(0), c.operand(1)) else {
            return Cost::NONE;
        };
        let (rows, cols, depth) = (u64::from(rows), u64::from(cols), u64::from(depth));
        let mma = (rows / 16) * (cols / 8) * (depth * dtype.size() as u64 / u64::from(STEP_BYTES));
        Cost { issue: mma, mma, flops: 2 * rows * cols * depth, ..Cost::NONE }
    },
    example: show_product,
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

static E4M3: Helper = Helper {
    name: "mma_e4m3",
    text: "\
__device__ __forceinline__ void mma_e4m3(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm(\"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\"
      : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3])
      : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]));
}",
};

fn print_mma(cx: &mut Cx<'_, '_>) {
    let Type::Acc { rows, cols } = cx.result_type(0) else { return };
    let Type::B { dtype, depth, .. } = cx.operand_type(1) else { return };
    let helper = if dtype == Dtype::E4m3 { &E4M3 } else { &BF16 };
    cx.require(helper);
    let (blocks, steps) = (rows / 16, depth * dtype.size() as u32 / STEP_BYTES);
    let a = cx.operand_at(0, &[]);
    let b = cx.operand_at(1, &[]);
    let acc = Expr::primary(cx.result(0, "acc"));
    let dims = if blocks > 1 { format!("[{blocks}]") } else { String::new() };
    cx.line(&format!("float {acc}{dims}[{}][4] = {{}};", cols / 8));
    cx.unrolled("m", blocks, |cx, m| {
        let row = |tile: &Expr| if blocks > 1 { tile.subscript(m) } else { tile.clone() };
        cx.unrolled("k", steps, |cx, k| {
            let fragment = row(&a).subscript(k);
            cx.unrolled("n", cols / 8, |cx, n| {
                let (d, b) = (row(&acc).subscript(n), b.subscript(n).subscript(k));
                cx.line(&format!("{}({d}, {fragment}, {b});", helper.name));
            });
        });
    });
}

/// The product of `a` (rows x depth) and the transpose of `b` (cols x depth), in f32.
#[track_caller]
pub fn mma_abt<T: Element>(a: MmaA<T>, b: MmaB<T>) -> Acc {
    Acc::from_id(emit(&MMA_ABT, &[a.id(), b.id()], Attrs::none()))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::example::{kernel, memory};
    use crate::prelude::*;
    use crate::target::Target;

    #[test]
    fn e4m3_takes_32_of_the_depth_a_step() {
        let kernel = kernel("k", || {
            let queries = shared::<e4m3>([8, 128]).swizzle(Xor16);
            let keys = shared::<e4m3>([16, 128]).per_warp().swizzle(Xor16);
            let scores = memory::<f32, WritePart>("scores").start();
            scores.store_rows(mma_abt(keys.load_a(), queries.load_b()).sum_cols(), below(16));
        });
        let source = kernel.unwrap().cuda(Target::Sm120a).unwrap().source;
        assert!(source.contains("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"), "{source}");
        assert!(source.contains("for (int k = 0; k < 4; ++k) {\n    mma_e4m3(acc[0], a[k], b[0][k]);"), "{source}");
    }

    #[test]
    fn other_types_and_unequal_depths_are_refused() {
        let message = |body: fn()| kernel("k", body).unwrap_err().to_string();
        let f16_product = message(|| {
            let tile = shared::<f16>([16, 64]);
            mma_abt(tile.load_a(), tile.load_b());
        });
        assert!(f16_product.contains("matrix products of f16 are not supported: use bf16 or e4m3"), "{f16_product}");
        let depths = message(|| {
            mma_abt(shared::<bf16>([16, 64]).load_a(), shared::<bf16>([16, 128]).load_b());
        });
        assert!(depths.contains("bf16 16 x 64 and the transpose of bf16 16 x 128"), "{depths}");
    }

    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
                mma.abt
                  float acc[2][4] = {};
                  #pragma unroll
                  for (int k = 0; k < 8; ++k) {
                    #pragma unroll
                    for (int n = 0; n < 2; ++n) {
                      mma_bf16(acc[n], a[k], b[n][k]);
                    }
                  }
            "#]],
        );
    }
}
