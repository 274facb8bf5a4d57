//! Exchanges inside a warp.

use super::{Row, row};
use crate::decode::{Form, Inst, Taint, Ty};
use crate::error::Result;
use crate::exec::lanes::{LANES, Lane, Run};
use crate::exec::{Cx, Flow};
use crate::finding::FindingKind;
use crate::parse::ast::Operand;

pub(super) const ROWS: &[Row] = &[
    row("shfl.sync", ".up .down .bfly .idx, b32, with and without predicate", shfl),
    row("vote.sync", ".all .any .uni .ballot", vote),
    row("match.any.sync", "b32 b64", match_any),
    row("match.all.sync", "b32 b64, with predicate", match_all),
    row("redux.sync", ".add .min .max of u32 s32; .and .or .xor of b32; .min .max of f32", redux),
    row("activemask", "b32", activemask),
    row("elect.sync", "", elect),
    row("bar.warp.sync", "", warp_sync),
];

/// The member mask in an operand. Lanes must name themselves, and all of them the same members.
fn member_mask(cx: &mut Cx<'_>, inst: &Inst, operand: usize) -> u32 {
    let masks: [u32; LANES] = Lane::read(&cx.warp.rows, inst.ops[operand]);
    let first = cx.mask.trailing_zeros();
    let members = masks[first as usize];
    let mut executing = (0..LANES as u32).filter(|l| cx.mask >> l & 1 != 0);
    let wrong = executing.find(|&lane| masks[lane as usize] != members || members >> lane & 1 == 0);
    if let Some(lane) = wrong {
        let own = masks[lane as usize];
        let detail =
            format!("lane {lane} is not in its own member mask {own:#010x}, or names other members than lane {first}");
        cx.report(FindingKind::DivergentCollective, lane, None, None, detail);
    }
    members
}

/// The members of an exchange, all here but those that may have ended; `None` to wait for them.
fn members(cx: &mut Cx<'_>, inst: &Inst, operand: usize) -> Option<u32> {
    let members = member_mask(cx, inst, operand);
    let needed = cx.needed(members);
    cx.converged(needed).then_some(members)
}

/// One undefined input makes the result of every lane undefined.
fn collective_taint(cx: &mut Cx<'_>, inst: &Inst, source: usize) {
    if cx.warp.tainted {
        let lanes = if cx.undefined_lanes(inst, source) & cx.mask != 0 { cx.mask } else { 0 };
        for operand in (0..inst.count as usize).filter(|&i| inst.kinds[i].written) {
            cx.mark(inst, operand, lanes);
        }
    }
}

fn shfl(f: &mut Form<'_, '_>) -> Result<Run> {
    let Some(mode) = f.choice(&[("up", 0), ("down", 1), ("bfly", 2), ("idx", 3)]) else {
        return f.unsupported(".up, .down, .bfly or .idx is required");
    };
    let ty = f.ty()?;
    if ty.bytes() != 4 {
        return f.unsupported("b32 is supported");
    }
    match f.operand()? {
        Operand::Pair(d, p) => {
            f.dst_from(d, ty)?;
            f.dst_from(p, Ty::Pred)?;
        }
        single => {
            f.dst_from(single, ty)?;
            f.dst_from(&Operand::Sink, Ty::Pred)?;
        }
    }
    f.src(ty)?;
    f.src(Ty::U32)?;
    f.src(Ty::U32)?;
    f.src(Ty::U32)?;
    f.aux = mode;
    f.taint = Taint::Own;
    Ok(shuffle)
}

fn shuffle(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    if members(cx, inst, 5).is_none() {
        return Flow::Park;
    }
    let rows = &cx.warp.rows;
    let (a, b, c): ([u32; LANES], [u32; LANES], [u32; LANES]) =
        (Lane::read(rows, inst.ops[2]), Lane::read(rows, inst.ops[3]), Lane::read(rows, inst.ops[4]));
    let (mut out, mut valid, mut sources) = ([0u32; LANES], 0u32, [0u32; LANES]);
    let mut absent = None;
    for lane in 0..LANES as u32 {
        let i = lane as usize;
        let (distance, clamp, segment) = (b[i] & 31, c[i] & 31, c[i] >> 8 & 31);
        let highest = lane & segment | clamp & !segment;
        let (from, inside) = match inst.aux {
            0 => (lane.wrapping_sub(distance), lane as i32 - distance as i32 >= highest as i32),
            1 => (lane + distance, lane + distance <= highest),
            2 => (lane ^ distance, lane ^ distance <= highest),
            _ => {
                let from = lane & segment | distance & !segment;
                (from, from <= highest)
            }
        };
        let from = if inside { from } else { lane };
        out[i] = a[from as usize & 31];
        sources[i] = from;
        valid |= u32::from(inside) << lane;
        if cx.mask >> lane & 1 != 0 && cx.mask >> from & 1 == 0 {
            absent.get_or_insert((lane, from));
        }
    }
    if let Some((lane, from)) = absent {
        let detail = format!("lane {lane} reads from lane {from}, which does not take part");
        cx.report(FindingKind::DivergentCollective, lane, None, None, detail);
    }
    if cx.warp.tainted {
        let shadow = u32::read(&cx.warp.shadows.rows, inst.ops[2]);
        let moved = sources.map(|from| shadow[from as usize & 31]);
        Lane::write(&mut cx.warp.shadows.rows, inst.ops[0], &moved, cx.mask);
        cx.mark(inst, 1, 0);
    }
    Lane::write(&mut cx.warp.rows, inst.ops[0], &out, cx.mask);
    cx.set_pred(inst.ops[1], valid);
    Flow::Next
}

fn vote(f: &mut Form<'_, '_>) -> Result<Run> {
    let Some(mode) = f.choice(&[("all", 0), ("any", 1), ("uni", 2), ("ballot", 3)]) else {
        return f.unsupported(".all, .any, .uni or .ballot is required");
    };
    let ty = f.ty()?;
    f.dst(ty)?;
    f.src(Ty::Pred)?;
    f.src(Ty::U32)?;
    f.aux = mode;
    f.taint = Taint::Own;
    Ok(vote_lanes)
}

fn vote_lanes(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    if members(cx, inst, 2).is_none() {
        return Flow::Park;
    }
    collective_taint(cx, inst, 1);
    let mask = cx.mask;
    let set = cx.pred(inst, 1) & mask;
    let result = match inst.aux {
        0 => set == mask,
        1 => set != 0,
        2 => set == mask || set == 0,
        _ => {
            Lane::write(&mut cx.warp.rows, inst.ops[0], &[set; LANES], mask);
            return Flow::Next;
        }
    };
    cx.set_pred(inst.ops[0], if result { !0 } else { 0 });
    Flow::Next
}

fn match_any(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    f.dst(Ty::U32)?;
    f.src(ty)?;
    f.src(Ty::U32)?;
    f.taint = Taint::Own;
    Ok(match_any_lanes)
}

fn values(cx: &Cx<'_>, inst: &Inst, operand: usize) -> [u64; LANES] {
    match inst.kinds[operand].rows {
        1 => u32::read(&cx.warp.rows, inst.ops[operand]).map(u64::from),
        _ => u64::read(&cx.warp.rows, inst.ops[operand]),
    }
}

fn match_any_lanes(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    if members(cx, inst, 2).is_none() {
        return Flow::Park;
    }
    collective_taint(cx, inst, 1);
    let v = values(cx, inst, 1);
    let out: [u32; LANES] = std::array::from_fn(|i| {
        (0..LANES).filter(|&j| cx.mask >> j & 1 != 0 && v[i] == v[j]).fold(0, |m, j| m | 1 << j)
    });
    Lane::write(&mut cx.warp.rows, inst.ops[0], &out, cx.mask);
    Flow::Next
}

fn match_all(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    match f.operand()? {
        Operand::Pair(d, p) => {
            f.dst_from(d, Ty::U32)?;
            f.dst_from(p, Ty::Pred)?;
        }
        single => {
            f.dst_from(single, Ty::U32)?;
            f.dst_from(&Operand::Sink, Ty::Pred)?;
        }
    }
    f.src(ty)?;
    f.src(Ty::U32)?;
    f.taint = Taint::Own;
    Ok(match_all_lanes)
}

fn match_all_lanes(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    if members(cx, inst, 3).is_none() {
        return Flow::Park;
    }
    collective_taint(cx, inst, 2);
    let v = values(cx, inst, 2);
    let first = v[cx.mask.trailing_zeros() as usize];
    let all = (0..LANES).all(|i| cx.mask >> i & 1 == 0 || v[i] == first);
    let result = if all { cx.mask } else { 0 };
    Lane::write(&mut cx.warp.rows, inst.ops[0], &[result; LANES], cx.mask);
    cx.set_pred(inst.ops[1], if all { !0 } else { 0 });
    Flow::Next
}

#[derive(Clone, Copy)]
enum Reduction {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
}

const REDUCTIONS: [(&str, Reduction); 6] = [
    ("add", Reduction::Add),
    ("min", Reduction::Min),
    ("max", Reduction::Max),
    ("and", Reduction::And),
    ("or", Reduction::Or),
    ("xor", Reduction::Xor),
];

fn redux(f: &mut Form<'_, '_>) -> Result<Run> {
    let Some(reduction) = f.choice(&REDUCTIONS) else {
        return f.unsupported("an operation such as .add is required");
    };
    let absolute = f.flag("abs");
    let nan = f.flag("NaN");
    let ty = f.ty()?;
    if absolute || ty.bytes() != 4 {
        return f.unsupported("u32, s32, b32 and f32 without .abs are supported");
    }
    f.dst(ty)?;
    f.src(ty)?;
    f.src(Ty::U32)?;
    f.aux = reduction as u32 | u32::from(ty == Ty::S32) << 8 | u32::from(ty == Ty::F32) << 9 | u32::from(nan) << 10;
    f.taint = Taint::Own;
    Ok(redux_lanes)
}

fn redux_lanes(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    use super::float::extreme32;
    if members(cx, inst, 2).is_none() {
        return Flow::Park;
    }
    collective_taint(cx, inst, 1);
    let a: [u32; LANES] = Lane::read(&cx.warp.rows, inst.ops[1]);
    let taking = (0..LANES).filter(|i| cx.mask >> i & 1 != 0).map(|i| a[i]);
    let (signed, float, nan) = (inst.aux >> 8 & 1 != 0, inst.aux >> 9 & 1 != 0, inst.aux >> 10 & 1 != 0);
    let f = f32::from_bits;
    let combine = |x: u32, y: u32| match REDUCTIONS[(inst.aux & 0xff) as usize].1 {
        Reduction::Add => x.wrapping_add(y),
        Reduction::Min if float && nan => extreme32::<false, true>(f(x), f(y)).to_bits(),
        Reduction::Max if float && nan => extreme32::<true, true>(f(x), f(y)).to_bits(),
        Reduction::Min if float => extreme32::<false, false>(f(x), f(y)).to_bits(),
        Reduction::Max if float => extreme32::<true, false>(f(x), f(y)).to_bits(),
        Reduction::Min if signed => (x as i32).min(y as i32) as u32,
        Reduction::Max if signed => (x as i32).max(y as i32) as u32,
        Reduction::Min => x.min(y),
        Reduction::Max => x.max(y),
        Reduction::And => x & y,
        Reduction::Or => x | y,
        Reduction::Xor => x ^ y,
    };
    let result = taking.reduce(combine).unwrap_or(0);
    Lane::write(&mut cx.warp.rows, inst.ops[0], &[result; LANES], cx.mask);
    Flow::Next
}

fn activemask(f: &mut Form<'_, '_>) -> Result<Run> {
    f.ty()?;
    f.dst(Ty::U32)?;
    f.taint = Taint::Own;
    fn active(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
        cx.mark(inst, 0, 0);
        Lane::write(&mut cx.warp.rows, inst.ops[0], &[cx.mask; LANES], cx.mask);
        Flow::Next
    }
    Ok(active)
}

fn elect(f: &mut Form<'_, '_>) -> Result<Run> {
    match f.operand()? {
        Operand::Pair(d, p) => {
            f.dst_from(d, Ty::U32)?;
            f.dst_from(p, Ty::Pred)?;
        }
        _ => return f.unsupported("`d|p` or `_|p` was expected"),
    }
    f.src(Ty::U32)?;
    f.taint = Taint::Own;
    Ok(elect_lane)
}

fn elect_lane(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    let Some(members) = members(cx, inst, 2) else {
        return Flow::Park;
    };
    cx.mark(inst, 0, 0);
    cx.mark(inst, 1, 0);
    let leader = (members & cx.mask).trailing_zeros();
    Lane::write(&mut cx.warp.rows, inst.ops[0], &[leader; LANES], cx.mask);
    cx.set_pred(inst.ops[1], 1 << leader);
    Flow::Next
}

fn warp_sync(f: &mut Form<'_, '_>) -> Result<Run> {
    f.src(Ty::U32)?;
    f.taint = Taint::Own;
    /// Lanes may meet from different places in the code.
    fn sync(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
        let members = member_mask(cx, inst, 0);
        let here = cx.mask | cx.warp.at_warp_barrier(members);
        let expected = cx.needed(members);
        if expected & !here != 0 && !cx.converged(expected) {
            cx.warp.meeting = members;
            return Flow::Park;
        }
        cx.warp.leave_warp_barrier(members);
        cx.warp_synchronised(expected & here);
        Flow::Next
    }
    Ok(sync)
}
