//! mbarriers: arrival counts with phases, in shared memory.

use super::{Row, row};
use crate::decode::{Form, Inst, Taint, Ty};
use crate::error::Result;
use crate::exec::access::{Intent, Space, Target};
use crate::exec::barrier::MBarrier;
use crate::exec::lanes::{LANES, Lane, Run};
use crate::exec::{Cx, Flow};
use crate::finding::FindingKind;
use crate::parse::ast::Operand;

pub(super) const ROWS: &[Row] = &[
    row("cp.async.mbarrier.arrive", ".noinc", cp_async_arrive),
    row("mbarrier.init", "", mbarrier_init),
    row("mbarrier.inval", "", mbarrier_inval),
    row("mbarrier.arrive", "with and without count and state", mbarrier_arrive),
    row("mbarrier.arrive.expect_tx", "", mbarrier_arrive_expect),
    row("mbarrier.arrive_drop", "", mbarrier_arrive_drop),
    row("mbarrier.expect_tx", "", mbarrier_expect),
    row("mbarrier.complete_tx", "", mbarrier_complete),
    row("mbarrier.test_wait", "by state and .parity", mbarrier_wait),
    row("mbarrier.try_wait", "by state and .parity, with a time limit", mbarrier_wait),
];

fn ignore_scopes(f: &mut Form<'_, '_>) {
    f.ignore(&[
        "shared",
        "shared::cta",
        "shared::cluster",
        "cta",
        "cluster",
        "release",
        "acquire",
        "relaxed",
        "acq_rel",
        "b64",
        "noComplete",
    ]);
}

/// The offsets and sizes of the operands of an mbarrier operation.
fn mbarrier_address(f: &mut Form<'_, '_>) -> Result<()> {
    ignore_scopes(f);
    f.taint = Taint::Own;
    f.address().map(|_| ())
}

/// The shared offset of each executing lane's mbarrier.
fn mbarrier_of(cx: &mut Cx<'_>, inst: &Inst, operand: usize, lane: u32) -> Option<u32> {
    let address = cx.addresses(inst.ops[operand], inst.kinds[operand].rows, inst.imm)[lane as usize];
    let space = if address >= crate::memory::SHARED_WINDOW { Space::Generic } else { Space::Shared };
    match cx.target(space, address, 8, Intent::Atomic, lane, &mut 0) {
        Some(Target::Shared(offset)) => Some(offset),
        _ => None,
    }
}

/// Reports an mbarrier that was never initialised.
pub(super) fn initialised(cx: &mut Cx<'_>, offset: u32, lane: u32) -> bool {
    let known = cx.cta.mbarriers.contains_key(&offset);
    if !known {
        let place = cx.shared_address(offset);
        cx.report(FindingKind::BarrierMisuse, lane, Some(place), None, "no mbarrier was initialised here".into());
    }
    known
}

pub(super) fn lanes_of(mask: u32) -> impl Iterator<Item = u32> {
    (0..LANES as u32).filter(move |l| mask >> l & 1 != 0)
}

fn mbarrier_init(f: &mut Form<'_, '_>) -> Result<Run> {
    mbarrier_address(f)?;
    f.src(Ty::U32)?;
    fn run(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
        for lane in lanes_of(cx.mask) {
            let Some(offset) = mbarrier_of(cx, inst, 0, lane) else {
                continue;
            };
            let count = u32::read(&cx.warp.rows, inst.ops[1])[lane as usize];
            if count == 0 || count >= 1 << 20 {
                let place = cx.shared_address(offset);
                let detail = format!("an mbarrier for {count} arrivals; 1 to 1048575 are accepted");
                cx.report(FindingKind::BarrierMisuse, lane, Some(place), None, detail);
                continue;
            }
            cx.mbarrier_written(offset, lane);
            cx.cta.mbarriers.insert(offset, MBarrier::new(count));
            cx.cta.progress += 1;
        }
        Flow::Next
    }
    Ok(run)
}

fn mbarrier_inval(f: &mut Form<'_, '_>) -> Result<Run> {
    mbarrier_address(f)?;
    fn run(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
        for lane in lanes_of(cx.mask) {
            let Some(offset) = mbarrier_of(cx, inst, 0, lane) else {
                continue;
            };
            if initialised(cx, offset, lane) {
                cx.mbarrier_written(offset, lane);
                cx.cta.mbarriers.remove(&offset);
            }
        }
        Flow::Next
    }
    Ok(run)
}

/// Arrival operations: `aux` bit 0 expects bytes, bit 1 drops, bit 2 arrives at all, bit 3 completes bytes, bit 4 has a value operand.
const EXPECTS: u32 = 1;
const DROPS: u32 = 2;
const ARRIVES: u32 = 4;
const COMPLETES: u32 = 8;
const HAS_VALUE: u32 = 16;

fn arrival(f: &mut Form<'_, '_>, what: u32) -> Result<Run> {
    if what & ARRIVES != 0 {
        match f.inst.operands.first() {
            Some(Operand::Address(..)) => f.dst_from(&Operand::Sink, Ty::B64)?,
            Some(state) => {
                f.operand()?;
                f.dst_from(state, Ty::B64)?;
            }
            None => return f.unsupported("an address is missing"),
        }
    } else {
        f.dst_from(&Operand::Sink, Ty::B64)?;
    }
    let drop = f.flag("expect_tx");
    mbarrier_address(f)?;
    f.aux = what | if drop { EXPECTS } else { 0 };
    if f.remaining() > 0 {
        f.src(Ty::U32)?;
        f.aux |= HAS_VALUE;
    }
    Ok(arrival_lanes)
}

fn mbarrier_arrive(f: &mut Form<'_, '_>) -> Result<Run> {
    arrival(f, ARRIVES)
}

fn mbarrier_arrive_expect(f: &mut Form<'_, '_>) -> Result<Run> {
    arrival(f, ARRIVES | EXPECTS)
}

fn mbarrier_arrive_drop(f: &mut Form<'_, '_>) -> Result<Run> {
    arrival(f, ARRIVES | DROPS)
}

fn mbarrier_expect(f: &mut Form<'_, '_>) -> Result<Run> {
    arrival(f, EXPECTS)
}

fn mbarrier_complete(f: &mut Form<'_, '_>) -> Result<Run> {
    arrival(f, COMPLETES)
}

fn arrival_lanes(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    let what = inst.aux;
    cx.mark(inst, 0, 0);
    for lane in lanes_of(cx.mask) {
        let Some(offset) = mbarrier_of(cx, inst, 1, lane) else {
            continue;
        };
        if !initialised(cx, offset, lane) {
            continue;
        }
        let value = if what & HAS_VALUE != 0 { u32::read(&cx.warp.rows, inst.ops[2])[lane as usize] } else { 1 };
        cx.mbarrier_released(offset, lane);
        let Some(barrier) = cx.cta.mbarriers.get_mut(&offset) else {
            continue;
        };
        let phase = barrier.phase;
        if what & EXPECTS != 0 {
            barrier.transactions += i64::from(value);
        }
        if what & COMPLETES != 0 {
            barrier.transactions -= i64::from(value);
        }
        let arrivals = if what & ARRIVES == 0 {
            0
        } else if what & EXPECTS != 0 {
            1
        } else {
            value
        };
        let missing = barrier.pending;
        barrier.pending = missing.saturating_sub(arrivals);
        if what & DROPS != 0 {
            barrier.expected = barrier.expected.saturating_sub(arrivals);
        }
        let expected = barrier.expected;
        if arrivals > missing {
            let place = cx.shared_address(offset);
            let detail = format!("{arrivals} arrivals at an mbarrier that waits for {missing} more of {expected}");
            cx.report(FindingKind::BarrierMisuse, lane, Some(place), None, detail);
        }
        cx.settle(offset);
        u64::write(&mut cx.warp.rows, inst.ops[0], &[phase.into(); LANES], 1 << lane);
    }
    Flow::Next
}

fn mbarrier_wait(f: &mut Form<'_, '_>) -> Result<Run> {
    let parity = f.flag("parity");
    f.dst(Ty::Pred)?;
    mbarrier_address(f)?;
    f.src(if parity { Ty::U32 } else { Ty::B64 })?;
    if f.remaining() > 0 {
        // A time limit: the emulator's waits poll anyway.
        f.operand()?;
    }
    f.aux = parity.into();
    Ok(wait_lanes)
}

fn wait_lanes(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    let mut done = 0u32;
    let mut seen: Vec<(u32, u32)> = Vec::new();
    for lane in lanes_of(cx.mask) {
        let Some(offset) = mbarrier_of(cx, inst, 1, lane) else {
            continue;
        };
        if !initialised(cx, offset, lane) {
            // Let the loop end: the finding says what is wrong.
            done |= 1 << lane;
            continue;
        }
        cx.mbarrier_used(offset, lane);
        let phase = cx.cta.mbarriers[&offset].phase;
        let complete = if inst.aux == 1 {
            phase & 1 != u32::read(&cx.warp.rows, inst.ops[2])[lane as usize] & 1
        } else {
            u64::from(phase) != u64::read(&cx.warp.rows, inst.ops[2])[lane as usize]
        };
        if complete {
            done |= 1 << lane;
            match seen.iter_mut().find(|(o, _)| *o == offset) {
                Some((_, lanes)) => *lanes |= 1 << lane,
                None => seen.push((offset, 1 << lane)),
            }
        }
    }
    for (offset, lanes) in seen {
        cx.mbarrier_acquired(offset, lanes);
    }
    cx.mark(inst, 0, 0);
    cx.set_pred(inst.ops[0], done);
    if done & cx.mask == cx.mask { Flow::Next } else { Flow::Yield }
}

fn cp_async_arrive(f: &mut Form<'_, '_>) -> Result<Run> {
    f.aux = f.flag("noinc").into();
    mbarrier_address(f)?;
    fn run(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
        for lane in lanes_of(cx.mask) {
            let Some(offset) = mbarrier_of(cx, inst, 0, lane) else {
                continue;
            };
            if !initialised(cx, offset, lane) {
                continue;
            }
            if inst.aux == 0
                && let Some(barrier) = cx.cta.mbarriers.get_mut(&offset)
            {
                // Without .noinc the arrival is one more than the barrier's count.
                barrier.pending += 1;
            }
            cx.arrive_after_copies(offset, lane);
        }
        Flow::Next
    }
    Ok(run)
}
