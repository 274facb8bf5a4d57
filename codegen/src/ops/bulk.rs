//! Bulk copies: runs of bytes that the copy engine moves, started by one thread. Loads complete on an mbarrier, stores
//! in groups that their thread waits for.

use super::example::{memory, rows};
use super::mbarrier::{MBarrier, address, check_barrier, if_first_thread, mbarriers};
use super::shared::shared;
use super::{Effect, Family, OpDef, Signature, Space, fence};
use crate::cost::{Cost, Costing};
use crate::cuda::{Cx, Emit, Expr, Helper, prec};
use crate::dtype::Dtype;
use crate::handles::{
    AccessMode, Element, Handle, Place, Read, Readable, Ring, Scalar, SharedTile, Writable, WritePart,
};
use crate::ir::{Attrs, Swizzle, Type};
use crate::trace::{emit_stmt, with};

/// The ops of this file.
pub static FAMILY: Family =
    Family { name: "bulk", source: include_str!("bulk.rs"), ops: &[&LOAD, &STORE, &COMMIT, &WAIT] };

/// What bulk copies move is a multiple of this, in bytes, and so are their addresses.
const UNIT: u32 = 16;

/// Starts a copy from global to shared memory.
pub static LOAD: OpDef = OpDef {
    name: "bulk.load",
    doc: "Starts copying a tile, or its first rows, from a place; an mbarrier counts the bytes when they have arrived. \
          Each lane that comes here starts a copy: one thread should. The place is a multiple of 16 bytes; the tile's rows \
          lie one behind the other, without a swizzle.",
    signature: |s| {
        if !matches!(s.operands.len(), 4 | 5) {
            return Err(format!("expected 4 or 5 operands, found {}", s.operands.len()));
        }
        copied(s)?;
        check_barrier(s, 2)?;
        rows_of(s, 4).map(|()| vec![])
    },
    min_capability: 90,
    effects: &[Effect::AsyncCopy, Effect::Read(Space::Global), Effect::Write(Space::Shared)],
    emit: Emit::Stmt(|cx| {
        cx.require(&LOAD_HELPER);
        let (to, from, barrier) = (cx.operand(0), cx.operand(1), address(cx, 2));
        let bytes = bytes(cx, 4);
        cx.line(&format!("bulk_load({to}, {from}, {bytes}, {barrier});"));
    }),
    cost: |c| {
        let bytes = tile_bytes(c);
        Cost { issue: 1, global_read: bytes, shared_written: bytes, ..Cost::NONE }
    },
    example: show_load,
};

static LOAD_HELPER: Helper = Helper {
    name: "bulk_load",
    text: "\
__device__ __forceinline__ void bulk_load(unsigned to, const void* from, int bytes, unsigned barrier) {
  asm volatile(\"cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\"
               :: \"r\"(to), \"l\"(from), \"r\"(bytes), \"r\"(barrier) : \"memory\");
}",
};

/// Starts a copy from shared to global memory.
pub static STORE: OpDef = OpDef {
    name: "bulk.store",
    doc: "Starts copying a tile, or its first rows, to a place. Each lane that comes here starts a copy: one thread \
          should. What other instructions have stored in the tile needs `fence.async_proxy` first, and the tile must not \
          change before the copy's group has been waited for.",
    signature: |s| {
        if !matches!(s.operands.len(), 2 | 3) {
            return Err(format!("expected 2 or 3 operands, found {}", s.operands.len()));
        }
        copied(s)?;
        rows_of(s, 2).map(|()| vec![])
    },
    min_capability: 90,
    effects: &[Effect::AsyncCopy, Effect::Read(Space::Shared), Effect::Write(Space::Global)],
    emit: Emit::Stmt(|cx| {
        cx.require(&STORE_HELPER);
        let (from, to) = (cx.operand(0), cx.operand(1));
        let bytes = bytes(cx, 2);
        cx.line(&format!("bulk_store({to}, {from}, {bytes});"));
    }),
    cost: |c| {
        let bytes = tile_bytes(c);
        Cost { issue: 1, global_written: bytes, shared_read: bytes, ..Cost::NONE }
    },
    example: show_store,
};

static STORE_HELPER: Helper = Helper {
    name: "bulk_store",
    text: "\
__device__ __forceinline__ void bulk_store(void* to, unsigned from, int bytes) {
  asm volatile(\"cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\" :: \"l\"(to), \"r\"(from), \"r\"(bytes) : \"memory\");
}",
};

/// Ends a group of stores.
pub static COMMIT: OpDef = OpDef {
    name: "bulk.commit",
    doc: "Ends a group of this thread's bulk stores; a group may be empty.",
    signature: |s| s.count(0).map(|()| vec![]),
    min_capability: 90,
    effects: &[Effect::AsyncCopy],
    emit: Emit::Stmt(|cx| {
        cx.require(&COMMIT_HELPER);
        cx.line("bulk_commit();");
    }),
    cost: |_| Cost::issue(1),
    example: show_store,
};

static COMMIT_HELPER: Helper = Helper {
    name: "bulk_commit",
    text: "\
__device__ __forceinline__ void bulk_commit() { asm volatile(\"cp.async.bulk.commit_group;\" ::: \"memory\"); }",
};

/// Waits for groups of stores.
pub static WAIT: OpDef = OpDef {
    name: "bulk.wait",
    doc: "Waits until at most `pending` of this thread's latest groups of bulk stores are in flight; after it their tiles \
          may change.",
    signature: |s| {
        s.count(0)?;
        match s.attrs.int("pending") {
            0.. => Ok(vec![]),
            other => Err(format!("{other} groups cannot be in flight")),
        }
    },
    min_capability: 90,
    effects: &[Effect::AsyncWait],
    emit: Emit::Stmt(|cx| {
        cx.require(&WAIT_HELPER);
        cx.line(&format!("bulk_wait<{}>();", cx.attr("pending")));
    }),
    cost: |_| Cost::issue(1),
    example: show_store,
};

static WAIT_HELPER: Helper = Helper {
    name: "bulk_wait",
    text: "\
template <int pending>
__device__ __forceinline__ void bulk_wait() {
  asm volatile(\"cp.async.bulk.wait_group %0;\" :: \"n\"(pending) : \"memory\");
}",
};

/// Two stages of 4 rows of 32 f32.
pub(super) fn example_ring() -> Ring<f32> {
    shared::<f32>([4, 32]).stages(2)
}

/// A thread copies a tile, and all threads wait for it.
fn show_load() {
    let tile = shared::<f32>([4, 32]);
    let full = mbarriers(1);
    if_first_thread(|| {
        full.init(1);
        fence::mbarrier_init();
        full.at(0).arrive_expect_tx(tile.bytes());
        tile.copy_bulk(rows::<f32, Read>("x").row(0), full.at(0));
    });
    super::barrier::cta_sync();
    full.at(0).wait(0);
}

/// All threads fill a tile, and one copies it out.
fn show_store() {
    let tile = shared::<f32>([4, 32]);
    tile.at(super::index::warp_id(), super::index::lane_id()).store(1.0f32);
    fence::async_proxy();
    super::barrier::cta_sync();
    if_first_thread(|| {
        tile.store_bulk(memory::<f32, WritePart>("out").start());
        commit_bulk();
        wait_bulk_all_but(0);
    });
}

/// Refuses a tile, operand 0, whose rows cannot be copied from or to the place at operand 1.
fn copied(s: &Signature<'_>) -> Result<(), String> {
    let tile = s.tile(0)?;
    match s.operands[1] {
        Type::Global(dtype) if dtype == tile.dtype => {}
        other => return Err(format!("a tile of {} and {other} do not match", tile.dtype)),
    }
    if tile.swizzle != Swizzle::None {
        return Err(format!(
            "a bulk copy keeps bytes in their order, and this tile's are permuted ({}): use `copy_async`, or a tensor map",
            tile.swizzle
        ));
    }
    match tile.row_bytes() {
        bytes if bytes.is_multiple_of(UNIT) => Ok(()),
        bytes => Err(format!("bulk copies move multiples of 16 bytes: a row of {bytes} bytes is none")),
    }
}

/// Refuses an operand `at`, if there is one, that does not count rows.
fn rows_of(s: &Signature<'_>, at: usize) -> Result<(), String> {
    match s.operands.get(at) {
        None | Some(Type::Scalar(Dtype::I32)) => Ok(()),
        Some(other) => Err(format!("a number of rows is an i32, not {other}")),
    }
}

/// The bytes copied: of the rows that operand `at` counts, or of the whole tile.
fn bytes(cx: &mut Cx<'_, '_>, at: usize) -> Expr {
    let tile = cx.tile(0);
    if cx.inst().operands.len() == at {
        return Expr::primary(tile.stage_bytes().to_string());
    }
    let rows = cx.operand(at);
    match rows.to_string().parse::<u32>() {
        Ok(rows) => Expr::primary((rows * tile.row_bytes()).to_string()),
        Err(_) => Expr::binary(prec::PRODUCT, "*", &rows, &Expr::primary(tile.row_bytes().to_string())),
    }
}

fn tile_bytes(c: &Costing<'_>) -> u64 {
    match c.operand(0) {
        Type::Shared { tile, .. } => c.kernel.tiles[tile.index()].stage_bytes().into(),
        _ => 0,
    }
}

impl<T: Element> SharedTile<T> {
    /// Bytes of the tile: what an mbarrier is to expect of its copy.
    #[track_caller]
    pub fn bytes(self) -> i32 {
        with(|b| b.tile(self.id()).map_or(0, |tile| tile.stage_bytes())) as i32
    }

    /// Starts copying this tile's rows, one after the other, from `place`, which must be a multiple of 16 bytes. `full`
    /// counts the bytes as they arrive, and must be told to expect them. Each lane that comes here starts a copy.
    #[track_caller]
    pub fn copy_bulk<A: AccessMode + Readable>(self, place: Place<T, A>, full: MBarrier) {
        let [array, index] = full.operands();
        emit_stmt(&LOAD, &[self.id(), place.id(), array, index], Attrs::none());
    }

    /// As [`SharedTile::copy_bulk`], of the first `rows` rows only.
    #[track_caller]
    pub fn copy_bulk_rows<A: AccessMode + Readable>(
        self,
        rows: impl Into<Scalar<i32>>,
        place: Place<T, A>,
        full: MBarrier,
    ) {
        let [array, index] = full.operands();
        emit_stmt(&LOAD, &[self.id(), place.id(), array, index, rows.into().id()], Attrs::none());
    }

    /// Starts copying this tile's rows, one after the other, to `place`, which must be a multiple of 16 bytes. Each lane
    /// that comes here starts a copy. [`fence::async_proxy`](super::fence::async_proxy) goes before it where the tile was
    /// filled by other instructions.
    #[track_caller]
    pub fn store_bulk<A: AccessMode + Writable>(self, place: Place<T, A>) {
        emit_stmt(&STORE, &[self.id(), place.id()], Attrs::none());
    }

    /// As [`SharedTile::store_bulk`], of the first `rows` rows only.
    #[track_caller]
    pub fn store_bulk_rows<A: AccessMode + Writable>(self, rows: impl Into<Scalar<i32>>, place: Place<T, A>) {
        emit_stmt(&STORE, &[self.id(), place.id(), rows.into().id()], Attrs::none());
    }
}

/// Ends a group of this thread's bulk stores; a group may be empty.
#[track_caller]
pub fn commit_bulk() {
    emit_stmt(&COMMIT, &[], Attrs::none());
}

/// Waits until at most `groups` of this thread's latest groups of bulk stores are in flight; the tiles of the others may
/// change after it.
#[track_caller]
pub fn wait_bulk_all_but(groups: i32) {
    emit_stmt(&WAIT, &[], Attrs::none().with("pending", groups));
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::ops::example::{kernel, rows};
    use crate::prelude::*;

    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
                bulk.load
                    bulk_load(tile0, x + 0 * x_stride, 512, tile1);
                bulk.store
                    bulk_store(out, tile0, 512);
                bulk.commit
                    bulk_commit();
                bulk.wait
                    bulk_wait<0>();
            "#]],
        );
    }

    #[track_caller]
    fn refused(body: impl FnOnce(), message: &str) {
        let errors = kernel("k", body).expect_err("must be refused").to_string();
        assert!(errors.contains(message), "{errors}");
    }

    #[test]
    fn tiles_that_bulk_copies_cannot_fill_are_refused() {
        let permuted = || {
            let tile = shared::<bf16>([16, 128]).swizzle(Xor16);
            tile.copy_bulk(rows::<bf16, Read>("k").row(0), mbarriers(1).at(0));
        };
        refused(permuted, "a bulk copy keeps bytes in their order, and this tile's are permuted (xor16)");
        let short = || shared::<bf16>([16, 4]).copy_bulk(rows::<bf16, Read>("k").row(0), mbarriers(1).at(0));
        refused(short, "bulk copies move multiples of 16 bytes: a row of 8 bytes is none");
    }
}
