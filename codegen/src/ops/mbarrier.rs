//! mbarriers: barriers in shared memory that count arrivals and copied bytes, phase by phase.

use super::bulk;
use super::fence;
use super::index::thread_id;
use super::shared::print_declaration;
use super::{Effect, Family, OpDef, Scope, Signature, Space};
use crate::cost::Cost;
use crate::cuda::{Cx, Emit, Expr, Helper, prec};
use crate::dtype::Dtype;
use crate::handles::{Handle, MBarriers, Scalar};
use crate::ir::{self, Attrs, Type, ValueId};
use crate::loc::Loc;
use crate::trace::control::Traced;
use crate::trace::{emit_stmt, with};

/// The ops of this file.
pub static FAMILY: Family = Family {
    name: "mbarrier",
    source: include_str!("mbarrier.rs"),
    ops: &[&ARRAY, &INIT, &ARRIVE, &ARRIVE_EXPECT, &ARRIVE_AFTER_COPIES, &WAIT],
};

/// Bytes of an mbarrier.
const SIZE: u32 = 8;
/// Most arrivals, and most bytes, that a phase counts.
const MOST: i64 = (1 << 20) - 1;

/// mbarriers in shared memory.
pub static ARRAY: OpDef = OpDef {
    name: "mbarrier.array",
    doc: "The mbarriers that lie in the shared-memory tile numbered `tile`, one a row: this warp's, if each warp has its \
          own.",
    signature: |s| {
        s.count(0)?;
        let index = s.attrs.int("tile");
        match usize::try_from(index).ok().and_then(|i| s.tiles.get(i)) {
            Some(tile) if is_array(tile) => Ok(vec![Type::Shared { tile: ir::TileId(index as u16), staged: false }]),
            _ => Err(format!("tile {index} does not hold mbarriers")),
        }
    },
    min_capability: 80,
    effects: &[],
    emit: Emit::Stmt(|cx| {
        let Type::Shared { tile, .. } = cx.result_type(0) else { return };
        let count = cx.kernel().tiles[tile.index()].rows;
        print_declaration(cx, &format!("{count} mbarrier{}", if count == 1 { "" } else { "s" }));
    }),
    cost: |_| Cost::NONE,
    example: show,
};

/// Makes an mbarrier ready.
pub static INIT: OpDef = OpDef {
    name: "mbarrier.init",
    doc: "Makes an mbarrier ready: in its phase 0, each phase complete after `arrivals` arrivals and the bytes that they \
          expect. One thread does it, and others use the mbarrier only after a barrier.",
    signature: |s| {
        s.count(2)?;
        barrier(s)?;
        match s.attrs.int("arrivals") {
            1..=MOST => Ok(vec![]),
            other => Err(format!("a phase of an mbarrier has 1 to {MOST} arrivals, not {other}")),
        }
    },
    min_capability: 80,
    effects: &[Effect::Write(Space::Shared)],
    emit: Emit::Stmt(|cx| {
        cx.require(&INIT_HELPER);
        let (barrier, arrivals) = (address(cx, 0), cx.attr("arrivals"));
        cx.line(&format!("mbarrier_init({barrier}, {arrivals});"));
    }),
    cost: |_| Cost::issue(1),
    example: show,
};

static INIT_HELPER: Helper = Helper {
    name: "mbarrier_init",
    text: "\
__device__ __forceinline__ void mbarrier_init(unsigned barrier, int arrivals) {
  asm volatile(\"mbarrier.init.shared::cta.b64 [%0], %1;\" :: \"r\"(barrier), \"r\"(arrivals) : \"memory\");
}",
};

/// Arrives.
pub static ARRIVE: OpDef = OpDef {
    name: "mbarrier.arrive",
    doc: "Arrives at an mbarrier, once for each lane: what the lane did before is seen by whoever waits for this phase.",
    signature: |s| {
        s.count(2)?;
        barrier(s).map(|()| vec![])
    },
    min_capability: 80,
    effects: &[Effect::Arrive],
    emit: Emit::Stmt(|cx| {
        cx.require(&ARRIVE_HELPER);
        let barrier = address(cx, 0);
        cx.line(&format!("mbarrier_arrive({barrier});"));
    }),
    cost: |_| Cost::issue(1),
    example: show,
};

static ARRIVE_HELPER: Helper = Helper {
    name: "mbarrier_arrive",
    text: "\
__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
  asm volatile(\"mbarrier.arrive.shared::cta.b64 _, [%0];\" :: \"r\"(barrier) : \"memory\");
}",
};

/// Arrives, and expects bytes.
pub static ARRIVE_EXPECT: OpDef = OpDef {
    name: "mbarrier.arrive_expect_tx",
    doc: "Arrives at an mbarrier, once for each lane, and makes its phase wait for so many more bytes of bulk copies.",
    signature: |s| {
        s.count(3)?;
        barrier(s)?;
        match s.operands[2] {
            Type::Scalar(Dtype::I32) => Ok(vec![]),
            other => Err(format!("a number of bytes is an i32, not {other}")),
        }
    },
    min_capability: 90,
    effects: &[Effect::Arrive],
    emit: Emit::Stmt(|cx| {
        cx.require(&ARRIVE_EXPECT_HELPER);
        let (barrier, bytes) = (address(cx, 0), cx.operand(2));
        cx.line(&format!("mbarrier_arrive_expect_tx({barrier}, {bytes});"));
    }),
    cost: |_| Cost::issue(1),
    example: show,
};

static ARRIVE_EXPECT_HELPER: Helper = Helper {
    name: "mbarrier_arrive_expect_tx",
    text: "\
__device__ __forceinline__ void mbarrier_arrive_expect_tx(unsigned barrier, int bytes) {
  asm volatile(\"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\" :: \"r\"(barrier), \"r\"(bytes) : \"memory\");
}",
};

/// Arrives once the thread's copies are there.
pub static ARRIVE_AFTER_COPIES: OpDef = OpDef {
    name: "mbarrier.arrive_after_copies",
    doc: "Arrives at an mbarrier, once for each lane, when the `cp_async` copies that the lane has started are complete; \
          the lane goes on at once.",
    signature: |s| {
        s.count(2)?;
        barrier(s).map(|()| vec![])
    },
    min_capability: 80,
    effects: &[Effect::Arrive, Effect::AsyncCopy],
    emit: Emit::Stmt(|cx| {
        cx.require(&ARRIVE_AFTER_COPIES_HELPER);
        let barrier = address(cx, 0);
        cx.line(&format!("mbarrier_arrive_after_copies({barrier});"));
    }),
    cost: |_| Cost::issue(1),
    example: || {
        let full = mbarriers(1);
        full.at(0).arrive_after_copies();
    },
};

static ARRIVE_AFTER_COPIES_HELPER: Helper = Helper {
    name: "mbarrier_arrive_after_copies",
    text: "\
__device__ __forceinline__ void mbarrier_arrive_after_copies(unsigned barrier) {
  asm volatile(\"cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\" :: \"r\"(barrier) : \"memory\");
}",
};

/// Waits for a phase.
pub static WAIT: OpDef = OpDef {
    name: "mbarrier.wait",
    doc: "Waits until the phase of this parity is complete: phase 0 has parity 0, the next 1, then 0 again. What was done \
          before the arrivals is seen after it, and so are the bytes of copies that the phase expected. The phase before \
          the first counts as complete: waiting for parity 1 of a new mbarrier returns at once.",
    signature: |s| {
        s.count(3)?;
        barrier(s)?;
        match s.operands[2] {
            Type::Scalar(Dtype::I32) => Ok(vec![]),
            other => Err(format!("a parity is an i32, 0 or 1, not {other}")),
        }
    },
    min_capability: 80,
    effects: &[Effect::Barrier(Scope::Warps), Effect::AsyncWait],
    emit: Emit::Stmt(|cx| {
        cx.require(&WAIT_HELPER);
        let (barrier, parity) = (address(cx, 0), cx.operand(2));
        cx.line(&format!("mbarrier_wait({barrier}, {parity});"));
    }),
    cost: |_| Cost::issue(2),
    example: show,
};

static WAIT_HELPER: Helper = Helper {
    name: "mbarrier_wait",
    text: "\
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, int parity) {
  int done = 0;
  while (!done) {
    asm volatile(\"{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.s32 %0, 1, 0, p; }\"
                 : \"=r\"(done) : \"r\"(barrier), \"r\"(parity) : \"memory\");
  }
}",
};

/// A thread fills a ring of two stages by bulk copies, and all threads wait for each.
fn show() {
    let (full, empty) = (mbarriers(2), mbarriers(2));
    if_first_thread(|| {
        full.init(1);
        empty.init(128);
        fence::mbarrier_init();
    });
    super::barrier::cta_sync();
    let at = PipelineState::start();
    let ring = bulk::example_ring();
    if_first_thread(|| {
        empty.at(at.stage).wait(at.parity ^ 1);
        full.at(at.stage).arrive_expect_tx(ring.stage(at.stage).bytes());
        ring.stage(at.stage)
            .copy_bulk(super::example::rows::<f32, crate::handles::Read>("x").row(0), full.at(at.stage));
    });
    full.at(at.stage).wait(at.parity);
    empty.at(at.stage).arrive();
}

/// `if thread::id() == 0 { body }`.
pub(super) fn if_first_thread(body: impl FnOnce()) {
    let loc = Loc::caller();
    let first = thread_id().eq(0);
    with(|b| b.begin_if(first.id(), loc));
    body();
    with(|b| b.end_if(loc));
}

fn is_array(tile: &ir::SharedTile) -> bool {
    tile.dtype == Dtype::U64 && tile.cols == 1
}

/// Refuses operands 0 and 1 that are not mbarriers and an index.
fn barrier(s: &Signature<'_>) -> Result<(), String> {
    check_barrier(s, 0)
}

/// Refuses operands `at` and `at + 1` that are not mbarriers and an index.
pub(super) fn check_barrier(s: &Signature<'_>, at: usize) -> Result<(), String> {
    if !is_array(s.tile(at)?) {
        return Err("expected mbarriers, found a tile".to_owned());
    }
    match s.operands[at + 1] {
        Type::Scalar(Dtype::I32) => Ok(()),
        other => Err(format!("mbarriers are numbered by an i32, not {other}")),
    }
}

/// The address of the mbarrier that operands `at` and `at + 1` name.
pub(super) fn address(cx: &mut Cx<'_, '_>, at: usize) -> Expr {
    let number = |n: u32| Expr::primary(n.to_string());
    let (array, index) = (cx.operand(at), cx.operand(at + 1));
    let offset = match index.to_string().parse::<u32>() {
        Ok(0) => return array,
        Ok(index) => number(index * SIZE),
        Err(_) => Expr::binary(prec::PRODUCT, "*", &index, &number(SIZE)),
    };
    Expr::binary(prec::SUM, "+", &array, &offset)
}

/// An mbarrier.
#[derive(Clone, Copy)]
pub struct MBarrier {
    array: ValueId,
    index: ValueId,
}

/// Declares `count` mbarriers in shared memory. One thread must [`init`](MBarriers::init) them before their first use.
#[track_caller]
pub fn mbarriers(count: i32) -> MBarriers {
    let loc = Loc::caller();
    MBarriers::from_id(with(|b| {
        if count < 1 {
            b.error(loc, format!("there is at least one mbarrier in an array of them, not {count}"), None);
        }
        b.shared_memory(&ARRAY, Dtype::U64, count.max(1), 1, loc)
    }))
}

impl MBarriers {
    /// The mbarrier of this index, 0 up to their number.
    #[track_caller]
    pub fn at(self, index: impl Into<Scalar<i32>>) -> MBarrier {
        let (index, loc) = (index.into().id(), Loc::caller());
        with(|b| {
            if let (Some(at), Some(tile)) = (b.literal(index), b.tile(self.id()))
                && !(0..i64::from(tile.rows)).contains(&at)
            {
                let message = format!("there are {} mbarriers here, numbered from 0: none is {at}", tile.rows);
                b.error(loc, message, None);
            }
        });
        MBarrier { array: self.id(), index }
    }

    /// As many for each warp instead of these for the CTA.
    #[track_caller]
    pub fn per_warp(self) -> Self {
        with(|b| {
            let warps = b.warps();
            b.alter_tile(self.id(), |tile| tile.copies = warps);
        });
        self
    }

    /// Makes all of them ready, in phase 0: each phase is complete after `arrivals` arrivals, and once the bytes that
    /// they expect have been copied. One thread does it; the others use them after a barrier, and bulk copies after
    /// [`fence::mbarrier_init`](super::fence::mbarrier_init) as well.
    #[track_caller]
    pub fn init(self, arrivals: i32) {
        let count = with(|b| b.tile(self.id()).map_or(0, |tile| tile.rows));
        for index in 0..count as i32 {
            self.at(index).init(arrivals);
        }
    }
}

impl MBarrier {
    /// The mbarrier as operands.
    pub(super) fn operands(self) -> [ValueId; 2] {
        [self.array, self.index]
    }

    /// Makes this one ready: see [`MBarriers::init`].
    #[track_caller]
    pub fn init(self, arrivals: i32) {
        emit_stmt(&INIT, &self.operands(), Attrs::none().with("arrivals", arrivals));
    }

    /// Arrives, once for each lane that comes here.
    #[track_caller]
    pub fn arrive(self) {
        emit_stmt(&ARRIVE, &self.operands(), Attrs::none());
    }

    /// Arrives, once for each lane that comes here, and makes the phase wait for `bytes` more bytes of bulk copies.
    #[track_caller]
    pub fn arrive_expect_tx(self, bytes: impl Into<Scalar<i32>>) {
        let (bytes, loc) = (bytes.into().id(), Loc::caller());
        with(|b| {
            if let Some(known) = b.literal(bytes)
                && !(0..=MOST).contains(&known)
            {
                b.error(loc, format!("a phase of an mbarrier counts up to {MOST} bytes, not {known}"), None);
            }
        });
        let [array, index] = self.operands();
        emit_stmt(&ARRIVE_EXPECT, &[array, index, bytes], Attrs::none());
    }

    /// Arrives, once for each lane that comes here, when the copies that it started by `copy_async` are complete.
    #[track_caller]
    pub fn arrive_after_copies(self) {
        emit_stmt(&ARRIVE_AFTER_COPIES, &self.operands(), Attrs::none());
    }

    /// Waits until the phase of this parity is complete: 0 for the first, 1 for the second, then 0 again. Of a new
    /// mbarrier, the phase of parity 1 counts as complete.
    #[track_caller]
    pub fn wait(self, parity: impl Into<Scalar<i32>>) {
        let [array, index] = self.operands();
        emit_stmt(&WAIT, &[array, index, parity.into().id()], Attrs::none());
    }
}

/// Where a warp is in a ring of stages: which stage comes next, and the parity of its mbarrier's phase.
///
/// Whoever consumes a stage waits for `parity` of the mbarrier that says it is full. Whoever fills it waits for
/// `parity ^ 1` of the one that says it is empty, which lets the first round pass.
#[derive(Clone, Copy)]
pub struct PipelineState {
    /// The stage, 0 up to their number.
    pub stage: Scalar<i32>,
    /// 0 in the first round through the ring, 1 in the second, then 0 again.
    pub parity: Scalar<i32>,
}

impl PipelineState {
    /// Stage 0, in the first round.
    #[track_caller]
    pub fn start() -> Self {
        PipelineState { stage: Scalar::from(0), parity: Scalar::from(0) }
    }

    /// One stage further, of `stages`.
    #[must_use]
    #[track_caller]
    pub fn advance(self, stages: i32) -> Self {
        let next = self.stage + 1;
        let wraps = next.eq(stages);
        with(|b| {
            b.name(next.id(), "next_stage");
            b.name(wraps.id(), "wraps");
        });
        PipelineState { stage: wraps.select(0, next), parity: wraps.select(self.parity ^ 1, self.parity) }
    }
}

impl Traced for PipelineState {
    fn visit(&mut self, name: &str, f: &mut dyn FnMut(&str, &mut ValueId)) {
        self.stage.visit(&format!("{name}_stage"), f);
        self.parity.visit(&format!("{name}_parity"), f);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::ops::example::kernel;
    use crate::prelude::*;

    #[test]
    fn examples() {
        super::super::example::check(
            &super::FAMILY,
            expect![[r#"
                mbarrier.array
                  const unsigned tile0 = shared;  // 2 mbarriers
                  const unsigned tile1 = shared + 128;  // 2 mbarriers
                mbarrier.init
                    mbarrier_init(tile0, 1);
                    mbarrier_init(tile0 + 8, 1);
                    mbarrier_init(tile1, 128);
                    mbarrier_init(tile1 + 8, 128);
                mbarrier.arrive
                  mbarrier_arrive(tile1);
                mbarrier.arrive_expect_tx
                    mbarrier_arrive_expect_tx(tile0, 512);
                mbarrier.arrive_after_copies
                  mbarrier_arrive_after_copies(tile0);
                mbarrier.wait
                    mbarrier_wait(tile1, 0 ^ 1);
                  mbarrier_wait(tile0, 0);
            "#]],
        );
    }

    #[track_caller]
    fn refused(body: impl FnOnce(), message: &str) {
        let errors = kernel("k", body).expect_err("must be refused").to_string();
        assert!(errors.contains(message), "{errors}");
    }

    #[test]
    fn mistakes_are_refused_with_their_numbers() {
        refused(|| mbarriers(2).at(2).arrive(), "there are 2 mbarriers here, numbered from 0: none is 2");
        refused(|| mbarriers(0).init(1), "there is at least one mbarrier in an array of them, not 0");
        refused(|| mbarriers(1).init(0), "a phase of an mbarrier has 1 to 1048575 arrivals, not 0");
        let bytes = "a phase of an mbarrier counts up to 1048575 bytes, not 1048576";
        refused(|| mbarriers(1).at(0).arrive_expect_tx(1 << 20), bytes);
    }
}
