//! Matrix products of a warpgroup, `wgmma`: four warps together, the right operand read from shared memory by the tensor
//! cores while the warps go on.
//!
//! A product is started, its group ended by [`commit`], and its result had from [`Pending::wait`]: the type says that
//! nobody looks earlier. What the tensor cores read in shared memory goes through the async proxy: what was stored there
//! by other instructions, `cp.async` among them, needs `fence::async_proxy` and a barrier.

use super::cp_async::commit as commit_copies;
use super::cp_async::wait_all_but;
use super::example::{memory, rows};
use super::reduce::below;
use super::shared::shared;
use super::{Effect, Family, OpDef, Scope, Space, barrier, fence};
use crate::cost::Cost;
use crate::cuda::{Cx, Emit, Expr, Helper, prec};
use crate::dtype::Dtype;
use crate::handles::{Acc, Element, Handle, MmaA, Read, SharedTile, WritePart, e4m3};
use crate::ir::{Attrs, Swizzle, Type, ValueId};
use crate::trace::{emit, emit_stmt};

/// The ops of this file.
pub static FAMILY: Family =
    Family { name: "wgmma", source: include_str!("wgmma.rs"), ops: &[&PRODUCT, &COMMIT, &WAIT] };

/// Bytes of a row of the right operand, and of what its swizzle permutes.
const ROW_BYTES: u32 = 128;

/// Bytes of depth that one instruction takes.
const STEP_BYTES: u32 = 32;

/// Most columns of a result: its registers are half as many.
const MOST_COLS: u32 = 64;

/// Starts `a * b^T`.
pub static PRODUCT: OpDef = OpDef {
    name: "wgmma.product",
    doc: "Starts the product of each warp's 16 rows of `a`, in registers, and the transpose of the tile `b` of the CTA, \
          whose rows of 128 bytes lie under `Xor16`, summed in f32 (e4m3 products to about 13 bits). The four warps of a \
          warpgroup start it together; it begins with the fence that orders its registers.",
    signature: |s| {
        s.count(2)?;
        let Type::A { dtype: Dtype::E4m3, rows: 16, depth } = s.operands[0] else {
            return Err(format!("the left operand is 16 rows of e4m3 a warp, by `load_a`, not {}", s.operands[0]));
        };
        let tile = s.tile(1)?;
        let fits = tile.dtype == Dtype::E4m3 && tile.row_bytes() == ROW_BYTES && tile.cols == depth;
        if !fits || tile.swizzle != Swizzle::Xor16 {
            return Err(format!(
                "the right operand is a tile of rows of 128 e4m3 under `Xor16`, of the depth of the left, not {} x {} {}, {}",
                tile.rows, tile.cols, tile.dtype, tile.swizzle
            ));
        }
        if tile.copies > 1 {
            return Err("the four warps read one tile: it cannot be `per_warp`".to_owned());
        }
        if !matches!(tile.rows, 16 | 32 | MOST_COLS) {
            return Err(format!("the right operand has 16, 32 or 64 rows, not {}", tile.rows));
        }
        if !s.warps.is_multiple_of(4) {
            return Err(format!("a warpgroup is 4 warps: a CTA of {} has a part of one", s.warps));
        }
        Ok(vec![Type::Acc { rows: 16, cols: tile.rows }])
    },
    min_capability: 90,
    effects: &[Effect::Exchange, Effect::AsyncCopy, Effect::Read(Space::Shared)],
    emit: Emit::Stmt(print_product),
    cost: |c| {
        let (Type::Acc { rows, cols }, Type::A { dtype, depth, .. }) = (c.result(0), c.operand(0)) else {
            return Cost::NONE;
        };
        let (rows, cols, depth) = (u64::from(rows), u64::from(cols), u64::from(depth));
        let mma = depth * dtype.size() as u64 / u64::from(STEP_BYTES);
        // A quarter of what the warpgroup reads.
        let shared_read = cols * u64::from(ROW_BYTES) / 4;
        Cost { issue: mma + 1, mma, flops: 2 * rows * cols * depth, shared_read, ..Cost::NONE }
    },
    example: show,
};

/// Ends a group of products.
pub static COMMIT: OpDef = OpDef {
    name: "wgmma.commit",
    doc: "Ends a group of the warpgroup's products.",
    signature: |s| s.count(0).map(|()| vec![]),
    min_capability: 90,
    effects: &[Effect::AsyncCopy],
    emit: Emit::Stmt(|cx| {
        cx.require(&COMMIT_HELPER);
        cx.line("wgmma_commit();");
    }),
    cost: |_| Cost::issue(1),
    example: show,
};

static COMMIT_HELPER: Helper = Helper {
    name: "wgmma_commit",
    text: "\
__device__ __forceinline__ void wgmma_commit() { asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\"); }",
};

/// Waits for a product.
pub static WAIT: OpDef = OpDef {
    name: "wgmma.wait",
    doc: "Waits until at most `pending` of the warpgroup's latest groups of products are in flight, and gives the result \
          of a product that is in none of them.",
    signature: |s| {
        s.count(1)?;
        match (s.operands[0], s.attrs.int("pending")) {
            (Type::Acc { rows, cols }, 0..) => Ok(vec![Type::Acc { rows, cols }]),
            (Type::Acc { .. }, other) => Err(format!("{other} groups cannot be in flight")),
            (other, _) => Err(format!("products are waited for, not {other}")),
        }
    },
    min_capability: 90,
    effects: &[Effect::AsyncWait, Effect::Barrier(Scope::Warp)],
    emit: Emit::Stmt(|cx| {
        cx.require(&WAIT_HELPER);
        let Type::Acc { cols, .. } = cx.result_type(0) else { return };
        let (acc, pending) = (cx.operand_at(0, &[]), cx.attr("pending"));
        cx.line(&format!("wgmma_wait<{pending}>({acc});"));
        let name = cx.result(0, "product");
        cx.line(&format!("const float (&{name})[{}][4] = {acc};", cols / 8));
    }),
    cost: |_| Cost::issue(1),
    example: show,
};

static WAIT_HELPER: Helper = Helper {
    name: "wgmma_wait",
    text: "\
// What waits for a product also hands over its registers: the compiler cannot see who writes them.
template <int pending, int blocks>
__device__ __forceinline__ void wgmma_wait(float (&d)[blocks][4]) {
  asm volatile(\"wgmma.wait_group.sync.aligned %0;\" :: \"n\"(pending) : \"memory\");
  #pragma unroll
  for (int n = 0; n < blocks; ++n) {
    asm volatile(\"\" : \"+f\"(d[n][0]), \"+f\"(d[n][1]), \"+f\"(d[n][2]), \"+f\"(d[n][3]) :: \"memory\");
  }
}",
};

static FENCE_HELPER: Helper = Helper {
    name: "wgmma_fence",
    text: "\
// What the registers hold is written before the products that start after this.
template <int blocks>
__device__ __forceinline__ void wgmma_fence(float (&d)[blocks][4]) {
  #pragma unroll
  for (int n = 0; n < blocks; ++n) {
    asm volatile(\"\" : \"+f\"(d[n][0]), \"+f\"(d[n][1]), \"+f\"(d[n][2]), \"+f\"(d[n][3]) :: \"memory\");
  }
  asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");
}",
};

static OPERAND_HELPER: Helper = Helper {
    name: "wgmma_operand",
    text: "\
// Describes a tile of rows of 128 bytes whose 16-byte chunks are permuted by row: 8 rows are 1,024 bytes.
__device__ __forceinline__ unsigned long long wgmma_operand(unsigned tile) {
  return (tile & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}",
};

static E4M3_N16: Helper = Helper {
    name: "wgmma_e4m3",
    text: "\
__device__ __forceinline__ void wgmma_e4m3(float (&d)[2][4], const unsigned (&a)[4], unsigned long long b, int accumulate) {
  asm volatile(
      \"{ .reg .pred p; setp.ne.b32 p, %13, 0; wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 \"
      \"{%0, %1, %2, %3, %4, %5, %6, %7}, \"
      \"{%8, %9, %10, %11}, %12, p, 1, 1; }\"
      : \"+f\"(d[0][0]), \"+f\"(d[0][1]), \"+f\"(d[0][2]), \"+f\"(d[0][3]),
        \"+f\"(d[1][0]), \"+f\"(d[1][1]), \"+f\"(d[1][2]), \"+f\"(d[1][3])
      : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b), \"r\"(accumulate) : \"memory\");
}",
};

static E4M3_N32: Helper = Helper {
    name: "wgmma_e4m3",
    text: "\
__device__ __forceinline__ void wgmma_e4m3(float (&d)[4][4], const unsigned (&a)[4], unsigned long long b, int accumulate) {
  asm volatile(
      \"{ .reg .pred p; setp.ne.b32 p, %21, 0; wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 \"
      \"{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, \"
      \"{%16, %17, %18, %19}, %20, p, 1, 1; }\"
      : \"+f\"(d[0][0]), \"+f\"(d[0][1]), \"+f\"(d[0][2]), \"+f\"(d[0][3]),
        \"+f\"(d[1][0]), \"+f\"(d[1][1]), \"+f\"(d[1][2]), \"+f\"(d[1][3]),
        \"+f\"(d[2][0]), \"+f\"(d[2][1]), \"+f\"(d[2][2]), \"+f\"(d[2][3]),
        \"+f\"(d[3][0]), \"+f\"(d[3][1]), \"+f\"(d[3][2]), \"+f\"(d[3][3])
      : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b), \"r\"(accumulate) : \"memory\");
}",
};

static E4M3_N64: Helper = Helper {
    name: "wgmma_e4m3",
    text: "\
__device__ __forceinline__ void wgmma_e4m3(float (&d)[8][4], const unsigned (&a)[4], unsigned long long b, int accumulate) {
  asm volatile(
      \"{ .reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 \"
      \"{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, \"
      \"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, \"
      \"{%32, %33, %34, %35}, %36, p, 1, 1; }\"
      : \"+f\"(d[0][0]), \"+f\"(d[0][1]), \"+f\"(d[0][2]), \"+f\"(d[0][3]),
        \"+f\"(d[1][0]), \"+f\"(d[1][1]), \"+f\"(d[1][2]), \"+f\"(d[1][3]),
        \"+f\"(d[2][0]), \"+f\"(d[2][1]), \"+f\"(d[2][2]), \"+f\"(d[2][3]),
        \"+f\"(d[3][0]), \"+f\"(d[3][1]), \"+f\"(d[3][2]), \"+f\"(d[3][3]),
        \"+f\"(d[4][0]), \"+f\"(d[4][1]), \"+f\"(d[4][2]), \"+f\"(d[4][3]),
        \"+f\"(d[5][0]), \"+f\"(d[5][1]), \"+f\"(d[5][2]), \"+f\"(d[5][3]),
        \"+f\"(d[6][0]), \"+f\"(d[6][1]), \"+f\"(d[6][2]), \"+f\"(d[6][3]),
        \"+f\"(d[7][0]), \"+f\"(d[7][1]), \"+f\"(d[7][2]), \"+f\"(d[7][3])
      : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b), \"r\"(accumulate) : \"memory\");
}",
};

fn print_product(cx: &mut Cx<'_, '_>) {
    let (Type::Acc { cols, .. }, Type::A { dtype, depth, .. }) = (cx.result_type(0), cx.operand_type(0)) else {
        return;
    };
    let multiply = match cols {
        16 => &E4M3_N16,
        32 => &E4M3_N32,
        _ => &E4M3_N64,
    };
    for helper in [&FENCE_HELPER, &OPERAND_HELPER, multiply] {
        cx.require(helper);
    }
    let (a, tile) = (cx.operand_at(0, &[]), cx.operand(1));
    let acc = Expr::primary(cx.result(0, "acc"));
    cx.line(&format!("float {acc}[{}][4] = {{}};", cols / 8));
    cx.line(&format!("wgmma_fence({acc});"));
    let operand = Expr::call("wgmma_operand", &[&tile]);
    cx.unrolled("k", depth * dtype.size() as u32 / STEP_BYTES, |cx, k| {
        // Descriptors count in units of 16 bytes.
        let step = Expr::binary(prec::PRODUCT, "*", k, &Expr::primary((STEP_BYTES / 16).to_string()));
        let b = Expr::binary(prec::SUM, "+", &operand, &step);
        cx.line(&format!("{}({acc}, {}, {b}, {k});", multiply.name, a.subscript(k)));
    });
}

/// A product that has been started: its result is had by waiting for it.
#[derive(Clone, Copy, Debug)]
#[must_use = "a product that nobody waits for is lost"]
pub struct Pending {
    id: ValueId,
}

/// Starts the product of each warp's 16 rows of `a` and the transpose of `b`, of 16, 32 or 64 rows of 128 e4m3 under
/// `Xor16`. The four warps of a warpgroup start it together. What other instructions stored in `b` needs
/// [`fence::async_proxy`](super::fence::async_proxy), then a barrier; `b` must not change before the wait.
#[track_caller]
pub fn product<T: Element>(a: MmaA<T>, b: SharedTile<T>) -> Pending {
    Pending { id: emit(&PRODUCT, &[a.id(), b.id()], Attrs::none()) }
}

/// Ends a group of the warpgroup's products.
#[track_caller]
pub fn commit() {
    emit_stmt(&COMMIT, &[], Attrs::none());
}

impl Pending {
    /// Waits until at most `groups` of the latest groups of products are in flight; this product must be in an earlier one.
    #[track_caller]
    pub fn wait_all_but(self, groups: i32) -> Acc {
        Acc::from_id(emit(&WAIT, &[self.id], Attrs::none().with("pending", groups)))
    }
}

/// Each warp multiplies its 16 keys with 16 queries that the CTA shares.
fn show() {
    let queries = shared::<e4m3>([16, 128]).swizzle(Swizzle::Xor16);
    let keys = shared::<e4m3>([16, 128]).per_warp().swizzle(Swizzle::Xor16);
    queries.copy_async(rows::<e4m3, Read>("q").row(0));
    commit_copies();
    wait_all_but(0);
    fence::async_proxy();
    barrier::cta_sync();
    let pending = product(keys.load_a(), queries);
    commit();
    let dots = pending.wait_all_but(0);
    memory::<f32, WritePart>("scores").start().store_rows(dots.sum_cols(), below(16));
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::example::kernel;
    use crate::ir::Swizzle;
    use crate::prelude::*;
    use crate::target::Target;

    #[test]
    fn operands_that_the_tensor_cores_cannot_read_are_refused() {
        let refusal = |rows: i32, cols: i32, swizzle: Swizzle| {
            let kernel = kernel("k", move || {
                let keys = shared::<e4m3>([16, cols]).per_warp();
                let _ = wgmma::product(keys.load_a(), shared::<e4m3>([rows, cols]).swizzle(swizzle));
            });
            kernel.unwrap_err().to_string()
        };
        assert!(refusal(16, 128, Swizzle::None).contains("under `Xor16`"));
        assert!(refusal(16, 256, Swizzle::Xor16).contains("not 16 x 256 e4m3, xor16"));
        assert!(refusal(24, 128, Swizzle::Xor16).contains("16, 32 or 64 rows, not 24"));
    }

    #[test]
    fn targets_without_warpgroups_refuse_them() {
        let kernel = kernel("k", super::show).unwrap();
        assert!(kernel.cuda(Target::Sm90a).is_ok());
        let refusal = kernel.cuda(Target::Sm120a).unwrap_err().to_string();
        assert!(
            refusal.contains("`wgmma.product` is of sm_90a alone, and sm_120a has no such instruction"),
            "{refusal}"
        );
    }

    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
                wgmma.product
                  float acc[2][4] = {};
                  wgmma_fence(acc);
                  #pragma unroll
                  for (int k = 0; k < 4; ++k) {
                    wgmma_e4m3(acc, a[k], wgmma_operand(tile0) + k * 2, k);
                  }
                wgmma.commit
                  wgmma_commit();
                wgmma.wait
                  wgmma_wait<0>(acc);
                  const float (&product)[2][4] = acc;
            "#]],
        );
    }
}
