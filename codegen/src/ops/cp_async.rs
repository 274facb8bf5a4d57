//! Asynchronous copies from global to shared memory, in groups that are waited for.

use super::barrier::warp_sync;
use super::example::rows;
use super::index::{cta_x, warp_id};
use super::shared::{chunk_address, shared};
use super::{Effect, Family, OpDef, Space};
use crate::cost::Cost;
use crate::cuda::{Cx, Emit, Expr, Helper, prec};
use crate::handles::{AccessMode, Element, Handle, Place, Read, Readable, SharedTile, bf16};
use crate::ir::{Attrs, Swizzle, Type};
use crate::trace::emit_stmt;

/// Bytes a lane copies at once.
const CHUNK: u32 = 16;

/// The ops of this file.
pub static FAMILY: Family =
    Family { name: "cp_async", source: include_str!("cp_async.rs"), ops: &[&COPY, &COMMIT, &WAIT] };

/// Starts copying a tile.
pub static COPY: OpDef = OpDef {
    name: "cp_async.tile",
    doc: "Starts copying a tile's worth of consecutive elements from a place, which must be a multiple of 16 bytes; \
          the lanes of the warp share the work if each warp has its own tile, else the threads of the CTA do.",
    signature: |s| {
        s.count(2)?;
        let tile = s.tile(0)?;
        match s.operands[1] {
            Type::Global(dtype) if dtype == tile.dtype => {}
            other => return Err(format!("a tile of {} is not copied from {other}", tile.dtype)),
        }
        match tile.row_bytes() {
            bytes if bytes.is_multiple_of(CHUNK) => Ok(vec![]),
            bytes => Err(format!("asynchronous copies move 16 bytes: a row of {bytes} bytes cannot be split so")),
        }
    },
    min_capability: 80,
    effects: &[Effect::AsyncCopy, Effect::Read(Space::Global), Effect::Write(Space::Shared)],
    emit: Emit::Stmt(print_copy),
    cost: |c| {
        let Type::Shared { tile, .. } = c.operand(0) else { return Cost::NONE };
        let tile = &c.kernel.tiles[tile.index()];
        let warps = if tile.copies > 1 { 1 } else { u64::from(c.kernel.warps) };
        let bytes = u64::from(tile.stage_bytes()) / warps;
        let copies = bytes.div_ceil(32 * u64::from(CHUNK));
        Cost { issue: copies + copies.min(8), global_read: bytes, shared_written: bytes, ..Cost::NONE }
    },
    example: show_copy,
};

/// Each warp copies 16 rows of 128 bf16.
fn show_copy() {
    let tile = shared::<bf16>([16, 128]).per_warp().swizzle(Swizzle::Xor16);
    tile.copy_async(rows::<bf16, Read>("k").row(cta_x() * 4 + warp_id()));
    commit();
    wait_all_but(0);
    warp_sync();
}

static COPY_HELPER: Helper = Helper {
    name: "cp_async_16",
    text: "\
__device__ __forceinline__ void cp_async_16(unsigned to, const void* from) {
  asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16;\" :: \"r\"(to), \"l\"(from) : \"memory\");
}",
};

static COPY_XOR16: Helper = Helper {
    name: "copy_tile_xor16",
    text: "\
// Starts copying `rows` consecutive rows into a tile whose 16-byte chunks are permuted: `workers` threads share the work.
template <int rows, int row_bytes, int workers>
__device__ __forceinline__ void copy_tile_xor16(unsigned to, const void* from, int worker) {
  constexpr int chunks = row_bytes / 16;  // of a row
  constexpr int step = workers / chunks;  // rows a turn
  const int row = worker / chunks, chunk = worker % chunks;
  const unsigned first = to + row * row_bytes + (chunk ^ row % 8) * 16;
  const char* source = (const char*)from + worker * 16;
  #pragma unroll
  for (int i = 0; i < rows / step; ++i) {
#if __CUDA_ARCH__ < 1000
    cp_async_16((first ^ i * step % 8 * 16) + i * step * row_bytes, source + i * step * row_bytes);
#else  // for which the assembler would add one constant four times
    cp_async_16((first ^ i * step % 8 * 16) + i * step * row_bytes, source);
    source += step * row_bytes;
#endif
  }
}",
};

fn print_copy(cx: &mut Cx<'_, '_>) {
    cx.require(&COPY_HELPER);
    let tile = cx.tile(0);
    let (worker, workers) = if tile.copies > 1 { (cx.lane(), 32) } else { (cx.thread(), cx.kernel().threads()) };
    let (rows, row_bytes) = (tile.rows, tile.row_bytes());
    let step = workers * CHUNK / row_bytes;
    if tile.swizzle == Swizzle::Xor16 && step.is_power_of_two() && rows.is_multiple_of(step) {
        cx.require(&COPY_XOR16);
        let (to, from) = (cx.operand(0), cx.operand(1));
        return cx.line(&format!("copy_tile_xor16<{rows}, {row_bytes}, {workers}>({to}, {from}, {worker});"));
    }
    let to = cx.operand_named(0);
    let from = cx.operand_named(1);
    let number = |n: u32| Expr::primary(n.to_string());
    let times = |e: &Expr, n: u32| Expr::binary(prec::PRODUCT, "*", e, &number(n));
    let over = |e: &Expr, n: u32| Expr::binary(prec::PRODUCT, "/", e, &number(n));
    let modulo = |e: &Expr, n: u32| Expr::binary(prec::PRODUCT, "%", e, &number(n));
    let plus = |a: &Expr, b: &Expr| Expr::binary(prec::SUM, "+", a, b);

    let chunks = tile.stage_bytes() / CHUNK;
    let chunks_of_row = tile.row_bytes() / CHUNK;
    let elements = CHUNK / tile.dtype.size() as u32;
    cx.unrolled("j", chunks.div_ceil(workers), |cx, i| {
        let index = if chunks > workers { plus(&times(i, workers), &worker) } else { worker.clone() };
        let chunk = cx.name("chunk", "int", &index);
        let row = cx.name("row", "int", &over(&chunk, chunks_of_row));
        let address = chunk_address(&to, tile, &row, &modulo(&row, 8), &modulo(&chunk, chunks_of_row));
        let source = plus(&from, &times(&chunk, elements));
        let guard = if chunks.is_multiple_of(workers) { String::new() } else { format!("if ({chunk} < {chunks}) ") };
        cx.line(&format!("{guard}cp_async_16({address}, {source});"));
    });
}

/// Ends a group of copies.
pub static COMMIT: OpDef = OpDef {
    name: "cp_async.commit",
    doc: "Ends a group of this thread's asynchronous copies; a group may be empty.",
    signature: |s| s.count(0).map(|()| vec![]),
    min_capability: 80,
    effects: &[Effect::AsyncCopy],
    emit: Emit::Stmt(|cx| {
        cx.require(&COMMIT_HELPER);
        cx.line("cp_async_commit();");
    }),
    cost: |_| Cost::issue(1),
    example: show_copy,
};

static COMMIT_HELPER: Helper = Helper {
    name: "cp_async_commit",
    text: "\
__device__ __forceinline__ void cp_async_commit() { asm volatile(\"cp.async.commit_group;\" ::: \"memory\"); }",
};

/// Waits for groups of copies.
pub static WAIT: OpDef = OpDef {
    name: "cp_async.wait",
    doc: "Waits until at most `pending` of this thread's latest groups are in flight; other threads see what was \
          copied only after a barrier.",
    signature: |s| {
        s.count(0)?;
        match s.attrs.int("pending") {
            0.. => Ok(vec![]),
            other => Err(format!("{other} groups cannot be in flight")),
        }
    },
    min_capability: 80,
    effects: &[Effect::AsyncWait],
    emit: Emit::Stmt(|cx| {
        cx.require(&WAIT_HELPER);
        cx.line(&format!("cp_async_wait<{}>();", cx.attr("pending")));
    }),
    cost: |_| Cost::issue(1),
    example: show_copy,
};

static WAIT_HELPER: Helper = Helper {
    name: "cp_async_wait",
    text: "\
template <int pending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile(\"cp.async.wait_group %0;\" :: \"n\"(pending) : \"memory\");
}",
};

impl<T: Element> SharedTile<T> {
    /// Starts copying this tile's rows, one after the other, from `place`, which must be a multiple of 16 bytes. The
    /// warp does it for its own tile, the CTA for a tile it shares.
    #[track_caller]
    pub fn copy_async<A: AccessMode + Readable>(self, place: Place<T, A>) {
        emit_stmt(&COPY, &[self.id(), place.id()], Attrs::none());
    }
}

/// Ends a group of this thread's asynchronous copies; a group may be empty.
#[track_caller]
pub fn commit() {
    emit_stmt(&COMMIT, &[], Attrs::none());
}

/// Waits until at most `groups` of this thread's latest groups of copies are in flight. A barrier must follow before
/// other threads' copies are read.
#[track_caller]
pub fn wait_all_but(groups: i32) {
    emit_stmt(&WAIT, &[], Attrs::none().with("pending", groups));
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
                cp_async.tile
                  copy_tile_xor16<16, 256, 32>(tile0, k + (unsigned)((int)blockIdx.x * 4 + warp) * k_stride, lane);
                cp_async.commit
                  cp_async_commit();
                cp_async.wait
                  cp_async_wait<0>();
            "#]],
        );
    }
}
