//! CTA barriers.

use super::{Row, row};
use crate::decode::{Form, Inst, Taint, Ty};
use crate::error::Result;
use crate::exec::barrier::BARRIERS;
use crate::exec::lanes::{LANES, Lane, Run};
use crate::exec::{Cx, Flow};
use crate::finding::FindingKind;

pub(super) const ROWS: &[Row] = &[
    row("bar.sync", "named, with and without a thread count", sync),
    row("bar.arrive", "", arrive),
    row("bar.red", ".popc .and .or", reduce),
    row("bar.cta.sync", "as bar.sync", sync),
    row("bar.cta.arrive", "as bar.arrive", arrive),
    row("bar.cta.red", "as bar.red", reduce),
    row("barrier.sync", "as bar.sync; without .aligned lanes may arrive apart", sync),
    row("barrier.arrive", "as bar.arrive", arrive),
    row("barrier.red", "as bar.red", reduce),
    row("barrier.cta.sync", "as barrier.sync", sync),
    row("barrier.cta.arrive", "as barrier.arrive", arrive),
    row("barrier.cta.red", "as barrier.red", reduce),
    row("barrier.cluster.arrive", "of a cluster of one CTA", cluster),
    row("barrier.cluster.wait", "of a cluster of one CTA", cluster),
];

/// `bar` is aligned by definition, `barrier` by modifier.
fn aligned(f: &mut Form<'_, '_>) -> u32 {
    let modifier = f.flag("aligned");
    u32::from(modifier || f.inst.opcode.starts_with("bar."))
}

/// Details in `Inst::aux`: bit 0 aligned, bit 1 a thread count is given.
fn operands(f: &mut Form<'_, '_>) -> Result<()> {
    f.src(Ty::U32)?;
    Ok(())
}

fn sync(f: &mut Form<'_, '_>) -> Result<Run> {
    f.aux = aligned(f);
    operands(f)?;
    if f.remaining() > 0 {
        f.src(Ty::U32)?;
        f.aux |= 2;
    }
    f.taint = Taint::Own;
    Ok(sync_lanes)
}

fn arrive(f: &mut Form<'_, '_>) -> Result<Run> {
    f.aux = aligned(f) | 2;
    operands(f)?;
    f.src(Ty::U32)?;
    f.taint = Taint::Own;
    Ok(arrive_lanes)
}

fn reduce(f: &mut Form<'_, '_>) -> Result<Run> {
    f.aux = aligned(f);
    let Some((code, ty)) = f.choice(&[("popc", (0, Ty::U32)), ("and", (1, Ty::Pred)), ("or", (2, Ty::Pred))]) else {
        return f.unsupported(".popc, .and or .or is required");
    };
    f.ty()?;
    f.aux |= code << 4;
    f.dst(ty)?;
    f.src(Ty::U32)?;
    if f.remaining() > 1 {
        f.src(Ty::U32)?;
        f.aux |= 2;
    }
    f.src(Ty::Pred)?;
    f.taint = Taint::Own;
    Ok(reduce_lanes)
}

fn cluster(f: &mut Form<'_, '_>) -> Result<Run> {
    f.ignore(&["aligned", "acquire", "release", "relaxed"]);
    f.taint = Taint::Own;
    fn alone(_: &mut Cx<'_>, _: &Inst) -> Flow {
        Flow::Next
    }
    Ok(alone)
}

/// Barrier number and thread count (0 for all), checked; `None` after a finding.
fn which(cx: &mut Cx<'_>, inst: &Inst, first: usize) -> Option<(usize, u32)> {
    let lane = cx.mask.trailing_zeros();
    let read = |cx: &Cx<'_>, operand: usize| u32::read(&cx.warp.rows, inst.ops[operand])[lane as usize];
    let barrier = read(cx, first);
    let count = if inst.aux & 2 != 0 { read(cx, first + 1) } else { 0 };
    let wrong = if barrier as usize >= BARRIERS {
        format!("barrier {barrier} does not exist; 0 to {} do", BARRIERS - 1)
    } else if !count.is_multiple_of(LANES as u32) {
        format!("a thread count of {count} is not a multiple of the warp size")
    } else if count > cx.env.threads.next_multiple_of(LANES as u32) {
        format!("it waits for {count} threads; the CTA has {}", cx.env.threads)
    } else {
        return Some((barrier as usize, count));
    };
    cx.report(FindingKind::BarrierMisuse, lane, None, None, wrong);
    None
}

/// An aligned barrier needs the whole warp.
fn here(cx: &mut Cx<'_>, inst: &Inst) -> bool {
    if inst.aux & 1 == 0 {
        return true;
    }
    let needed = cx.needed(!0);
    cx.converged(needed)
}

fn sync_lanes(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    if !here(cx, inst) {
        return Flow::Park;
    }
    let Some((barrier, count)) = which(cx, inst, 0) else {
        return Flow::Next;
    };
    if cx.arrive(barrier, count, true) { Flow::Next } else { Flow::Block }
}

fn arrive_lanes(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    if !here(cx, inst) {
        return Flow::Park;
    }
    let Some((barrier, count)) = which(cx, inst, 0) else {
        return Flow::Next;
    };
    if count == 0 {
        cx.report(
            FindingKind::BarrierMisuse,
            cx.mask.trailing_zeros(),
            None,
            None,
            "bar.arrive with a thread count of 0".into(),
        );
        return Flow::Next;
    }
    cx.arrive(barrier, count, false);
    Flow::Next
}

/// Executed twice when it has to wait: on arrival, and again once the barrier is complete, to take the result.
fn reduce_lanes(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    if !here(cx, inst) {
        return Flow::Park;
    }
    let Some((barrier, count)) = which(cx, inst, 1) else {
        return Flow::Next;
    };
    if !cx.warp.takes_reduction {
        let given = cx.pred(inst, inst.count as usize - 1) & cx.mask;
        let state = &mut cx.cta.barriers[barrier];
        state.count += given.count_ones();
        state.all &= given == cx.mask;
        state.any |= given != 0;
        if !cx.arrive(barrier, count, true) {
            cx.warp.takes_reduction = true;
            return Flow::BlockHere;
        }
    }
    cx.warp.takes_reduction = false;
    cx.mark(inst, 0, 0);
    let result = cx.cta.barriers[barrier].result;
    match inst.aux >> 4 {
        0 => Lane::write(&mut cx.warp.rows, inst.ops[0], &[result.count; LANES], cx.mask),
        1 => cx.set_pred(inst.ops[0], if result.all { !0 } else { 0 }),
        _ => cx.set_pred(inst.ops[0], if result.any { !0 } else { 0 }),
    }
    Flow::Next
}
