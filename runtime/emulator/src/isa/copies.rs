//! Asynchronous copies and fences.

use super::mbarrier::{initialised, lanes_of};
use super::{Row, row};
use crate::check::AccessKind;
use crate::decode::{Form, Inst, Kind, Taint, Ty, Virtual};
use crate::error::Result;
use crate::exec::access::{Intent, Space, Target};
use crate::exec::async_copy::{BulkCopy, Copy, Direction, Run as Bytes};
use crate::exec::lanes::{LANES, Lane, Run, whole_warp};
use crate::exec::{CpAsync, Cx, Flow};
use crate::finding::FindingKind;
use crate::memory::Cursor;
use crate::parse::ast::Operand;

pub(super) const ROWS: &[Row] = &[
    row("cp.async", ".ca .cg, 4 8 16 bytes, source size or ignore-src, cache hints", cp_async),
    row("cp.async.commit_group", "", commit),
    row("cp.async.wait_group", "", wait_group),
    row("cp.async.wait_all", "", wait_all),
    row("cp.async.bulk", ".shared::cta.global with an mbarrier; .global.shared::cta in a bulk group", bulk),
    row("cp.async.bulk.prefetch.L2.global", "does nothing", bulk_prefetch),
    row("cp.async.bulk.commit_group", "", bulk_commit),
    row("cp.async.bulk.wait_group", "and .read", bulk_wait),
    row("fence", "all scopes; .proxy.async, .mbarrier_init", fence),
    row("membar", "", fence),
];

/// Takes an address whose offset must fit 32 bits, and returns the offset.
pub(super) fn address(f: &mut Form<'_, '_>) -> Result<i32> {
    f.address()?;
    match i32::try_from(f.imm) {
        Ok(offset) => Ok(offset),
        Err(_) => f.unsupported("an offset of more than 32 bits"),
    }
}

pub(super) fn pair(low: i32, high: i32) -> i64 {
    i64::from(low as u32) | i64::from(high) << 32
}

fn cp_async(f: &mut Form<'_, '_>) -> Result<Run> {
    f.ignore(&["ca", "cg", "shared", "shared::cta", "global"]);
    let hint = f.flag("L2::cache_hint");
    f.ignore_prefix("L2::");
    let destination = address(f)?;
    let source = address(f)?;
    f.imm = pair(destination, source);
    let size = f.constant()?;
    if !matches!(size, 4 | 8 | 16) {
        return f.unsupported(format!("a copy of {size} bytes; 4, 8 and 16 are accepted"));
    }
    // What may follow: a source size (register or constant) or an ignore-src predicate; then a cache policy.
    let mut mode = 0;
    if f.remaining() > usize::from(hint) {
        let operand = f.operand()?;
        let is_predicate = match operand {
            Operand::Reg(r) | Operand::Not(r) => {
                f.decoder.body.registers[*r as usize] == crate::parse::ast::Class::Pred
            }
            _ => false,
        };
        mode = if is_predicate { 2 } else { 1 };
        f.src_from(operand, if is_predicate { Ty::Pred } else { Ty::U32 })?;
    } else {
        f.push(Virtual::Constant(1, size as u64), Kind { rows: 1, written: false, read: true }, false)?;
    }
    if hint {
        f.operand()?;
    }
    f.aux = size as u32 | mode << 8;
    f.taint = Taint::Own;
    Ok(cp_async_lanes())
}

whole_warp!(cp_async_lanes, cp_async_body);

#[inline(always)]
fn cp_async_body(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    let size = inst.aux & 0xff;
    cx.check_address(inst, 0);
    cx.check_address(inst, 1);
    let destinations = cx.addresses(inst.ops[0], inst.kinds[0].rows, inst.imm as i32 as i64);
    let sources = cx.addresses(inst.ops[1], inst.kinds[1].rows, inst.imm >> 32);
    let source_sizes: [u32; LANES] = match inst.aux >> 8 {
        2 => {
            let ignored = cx.pred(inst, 2);
            std::array::from_fn(|i| if ignored >> i & 1 != 0 { 0 } else { size })
        }
        _ => Lane::read(&cx.warp.rows, inst.ops[2]),
    };
    let eager = cx.env.options.cp_async == CpAsync::Eager;
    cx.count_traffic(Space::Global, &sources, cx.mask, size);
    let (mut cursor, mut last) = (Cursor::default(), 0);
    let mut lanes = cx.mask;
    while lanes != 0 {
        let lane = lanes.trailing_zeros();
        lanes &= lanes - 1;
        let i = lane as usize;
        let source_size = source_sizes[i];
        if source_size > size {
            let detail = format!("a source size of {source_size} bytes for a copy of {size}");
            cx.report(FindingKind::OutOfBounds, lane, None, None, detail);
            continue;
        }
        let Some(Target::Shared(destination)) =
            cx.target(Space::Shared, destinations[i], size, Intent::Write, lane, &mut 0)
        else {
            continue;
        };
        // A copy of no bytes may have any source address.
        let source = match source_size {
            0 => None,
            _ if sources[i] & u64::from(size - 1) != 0 => {
                cx.misaligned(Space::Global, sources[i], size, lane);
                continue;
            }
            _ => match cx.global_target(sources[i], source_size, Intent::Read, lane, &mut last) {
                None => continue,
                Some(target) => {
                    cx.touched_within(target, source_size, AccessKind::Read, lane);
                    Some(target)
                }
            },
        };
        let copy = Copy {
            lane: lane as u8,
            size: size as u8,
            source_size: source_size as u8,
            destination,
            source: sources[i],
            pc: cx.pc,
        };
        cx.copy_started(&copy);
        if eager {
            cx.land_copy(&copy, source, &mut cursor);
        }
        cx.warp.pending.start(copy);
    }
    Flow::Next
}

fn commit(f: &mut Form<'_, '_>) -> Result<Run> {
    f.taint = Taint::Own;
    fn run(cx: &mut Cx<'_>, _: &Inst) -> Flow {
        cx.warp.pending.commit(cx.mask);
        Flow::Next
    }
    Ok(run)
}

fn wait_group(f: &mut Form<'_, '_>) -> Result<Run> {
    f.aux = f.constant()?.clamp(0, i128::from(u32::MAX)) as u32;
    f.taint = Taint::Own;
    fn run(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
        cx.finish_copies(Some(inst.aux));
        Flow::Next
    }
    Ok(run)
}

fn wait_all(f: &mut Form<'_, '_>) -> Result<Run> {
    f.taint = Taint::Own;
    fn run(cx: &mut Cx<'_>, _: &Inst) -> Flow {
        cx.finish_copies(None);
        Flow::Next
    }
    Ok(run)
}

fn bulk(f: &mut Form<'_, '_>) -> Result<Run> {
    f.ignore(&["shared::cta", "shared::cluster", "global"]);
    let load = f.flag("mbarrier::complete_tx::bytes");
    let store = f.flag("bulk_group");
    let hint = f.flag("L2::cache_hint");
    if load == store {
        return f.unsupported("global to shared with an mbarrier, and shared to global in a bulk group, are supported");
    }
    let destination = address(f)?;
    let source = address(f)?;
    f.src(Ty::U32)?;
    if load {
        f.aux = address(f)? as u32;
    }
    f.imm = pair(destination, source);
    if hint {
        f.operand()?;
    }
    f.taint = Taint::Own;
    Ok(if load { bulk_load } else { bulk_store })
}

/// Size and alignment rules of bulk copies; `None` after a finding.
fn bulk_size(cx: &mut Cx<'_>, inst: &Inst, lane: u32, a: u64, b: u64) -> Option<u32> {
    let size = u32::read(&cx.warp.rows, inst.ops[2])[lane as usize];
    if size.is_multiple_of(16) && a.is_multiple_of(16) && b.is_multiple_of(16) {
        return (size > 0).then_some(size);
    }
    let detail =
        format!("a bulk copy of {size} bytes from {b:#x} to {a:#x}: size and addresses must be multiples of 16");
    cx.report(FindingKind::Misaligned, lane, None, None, detail);
    None
}

fn bulk_load(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    cx.check_address(inst, 0);
    cx.check_address(inst, 1);
    let destinations = cx.addresses(inst.ops[0], inst.kinds[0].rows, inst.imm as i32 as i64);
    let sources = cx.addresses(inst.ops[1], inst.kinds[1].rows, inst.imm >> 32);
    let barriers = cx.addresses(inst.ops[3], inst.kinds[3].rows, inst.aux as i32 as i64);
    for lane in lanes_of(cx.mask) {
        let i = lane as usize;
        let Some(size) = bulk_size(cx, inst, lane, destinations[i], sources[i]) else {
            continue;
        };
        let Some(Target::Shared(barrier)) = cx.target(Space::Shared, barriers[i], 8, Intent::Atomic, lane, &mut 0)
        else {
            continue;
        };
        if !initialised(cx, barrier, lane) {
            continue;
        }
        let Some(shared) = cx.shared_range(destinations[i], size, lane) else {
            continue;
        };
        if !cx.global_range(sources[i], size, Intent::Read, lane) {
            continue;
        }
        let direction = Direction::Load { barrier };
        let runs = vec![Bytes { shared, global: sources[i], bytes: size, valid: 0..size }];
        cx.start_bulk(BulkCopy { warp: cx.warp.id, lane, shared, size, runs, direction, pc: cx.pc });
    }
    Flow::Next
}

fn bulk_store(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    cx.check_address(inst, 0);
    cx.check_address(inst, 1);
    let destinations = cx.addresses(inst.ops[0], inst.kinds[0].rows, inst.imm as i32 as i64);
    let sources = cx.addresses(inst.ops[1], inst.kinds[1].rows, inst.imm >> 32);
    for lane in lanes_of(cx.mask) {
        let i = lane as usize;
        let Some(size) = bulk_size(cx, inst, lane, destinations[i], sources[i]) else {
            continue;
        };
        let Some(shared) = cx.shared_range(sources[i], size, lane) else {
            continue;
        };
        if !cx.global_range(destinations[i], size, Intent::Write, lane) {
            continue;
        }
        let direction = Direction::Store { group: cx.warp.bulk_groups[i] };
        let runs = vec![Bytes { shared, global: destinations[i], bytes: size, valid: 0..size }];
        cx.start_bulk(BulkCopy { warp: cx.warp.id, lane, shared, size, runs, direction, pc: cx.pc });
    }
    Flow::Next
}

pub(super) fn bulk_prefetch(f: &mut Form<'_, '_>) -> Result<Run> {
    f.ignore_prefix("L2::");
    while f.remaining() > 0 {
        f.operand()?;
    }
    fence(f)
}

fn bulk_commit(f: &mut Form<'_, '_>) -> Result<Run> {
    f.taint = Taint::Own;
    fn run(cx: &mut Cx<'_>, _: &Inst) -> Flow {
        for lane in lanes_of(cx.mask) {
            cx.warp.bulk_groups[lane as usize] += 1;
        }
        Flow::Next
    }
    Ok(run)
}

fn bulk_wait(f: &mut Form<'_, '_>) -> Result<Run> {
    let _reads_only = f.flag("read");
    f.aux = f.constant()?.clamp(0, i128::from(u32::MAX)) as u32;
    f.taint = Taint::Own;
    fn run(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
        cx.finish_bulk_stores(inst.aux);
        Flow::Next
    }
    Ok(run)
}

fn fence(f: &mut Form<'_, '_>) -> Result<Run> {
    let initialised = f.flag("mbarrier_init");
    let (proxy, asynchronous) = (f.flag("proxy"), f.flag("async"));
    f.ignore(&[
        "cta",
        "cluster",
        "gpu",
        "gl",
        "sys",
        "sc",
        "acq_rel",
        "acquire",
        "release",
        "relaxed",
        "async::generic",
        "alias",
        "global",
        "shared::cta",
        "shared::cluster",
        "sync_restrict::shared::cta",
        "sync_restrict::shared::cluster",
        "async.global",
    ]);
    f.taint = Taint::Own;
    f.aux = if initialised {
        INITIALISED
    } else if proxy && asynchronous {
        PROXY
    } else {
        ORDINARY
    };
    fn run(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
        match inst.aux {
            INITIALISED => cx.mbarriers_fenced(),
            PROXY => cx.proxy_fenced(),
            _ => {}
        }
        Flow::Next
    }
    Ok(run)
}

/// What a fence concerns: mbarriers that were initialised, the async proxy, or only ordinary accesses.
const ORDINARY: u32 = 0;
const INITIALISED: u32 = 1;
const PROXY: u32 = 2;
