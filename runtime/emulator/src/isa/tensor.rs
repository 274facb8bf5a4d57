//! Copies of boxes of tensors, which a tensor map describes.

use super::copies::{address, bulk_prefetch, pair};
use super::mbarrier::{initialised, lanes_of};
use super::{Row, row};
use crate::decode::{Form, Inst, Place, Taint, Ty};
use crate::error::Result;
use crate::exec::access::{Intent, Space, Target};
use crate::exec::async_copy::{BulkCopy, Direction, Run as Bytes};
use crate::exec::lanes::{Lane, Run};
use crate::exec::{Cx, Flow};
use crate::finding::FindingKind;
use crate::memory::{Cursor, PARAM_WINDOW, SHARED_BASE};
use crate::parse::ast::Operand;
use crate::tensor_map::{BYTES, TensorMap};

pub(super) const ROWS: &[Row] = &[
    row(
        "cp.async.bulk.tensor",
        ".1d to .5d tiles; .shared::cta.global with an mbarrier; .global.shared::cta in a bulk group",
        tensor,
    ),
    row("cp.async.bulk.prefetch.tensor", "does nothing", bulk_prefetch),
    row("prefetch.tensormap", "does nothing", bulk_prefetch),
];

/// Where the operands of a copy stand: `aux` holds the number of dimensions, and the offset of the mbarrier's address.
const RANK_BITS: u32 = 3;

fn tensor(f: &mut Form<'_, '_>) -> Result<Run> {
    f.ignore(&["tile", "shared::cta", "shared::cluster", "global"]);
    let rank = f.choice(&[("1d", 1), ("2d", 2), ("3d", 3), ("4d", 4), ("5d", 5)]);
    let Some(rank) = rank else { return f.unsupported("1d to 5d are supported") };
    let load = f.flag("mbarrier::complete_tx::bytes");
    let store = f.flag("bulk_group");
    let hint = f.flag("L2::cache_hint");
    if load == store {
        return f.unsupported("global to shared with an mbarrier, and shared to global in a bulk group, are supported");
    }
    let mut barrier = 0;
    let (shared, map) = if load {
        let shared = address(f)?;
        let map = coordinates(f, rank)?;
        barrier = address(f)?;
        (shared, map)
    } else {
        let map = coordinates(f, rank)?;
        (address(f)?, map)
    };
    if hint {
        f.operand()?;
    }
    let Some(barrier) = barrier.checked_mul(1 << RANK_BITS) else {
        return f.unsupported("an offset of more than 29 bits");
    };
    f.imm = pair(shared, map);
    f.aux = barrier as u32 | rank as u32;
    f.taint = Taint::Own;
    Ok(if load { load_lanes } else { store_lanes })
}

/// Takes a tensor map and its coordinates; returns the offset of the map's address.
fn coordinates(f: &mut Form<'_, '_>, rank: usize) -> Result<i32> {
    let Operand::Tensor(map, coordinates) = f.operand()? else {
        return f.unsupported("a tensor map and coordinates, `[map, {c0, c1}]`, were expected");
    };
    if coordinates.len() != rank {
        return f.unsupported(format!("{rank} coordinates were expected, {} are given", coordinates.len()));
    }
    let offset = match parameter(f, map)? {
        // Its place as a generic address.
        Some(at) => {
            f.src_from(&Operand::Int((PARAM_WINDOW + at).into()), Ty::U64)?;
            0
        }
        None => {
            f.address_from(map)?;
            match i32::try_from(f.imm) {
                Ok(offset) => offset,
                Err(_) => return f.unsupported("an offset of more than 32 bits"),
            }
        }
    };
    for coordinate in coordinates {
        f.src_from(coordinate, Ty::S32)?;
    }
    Ok(offset)
}

/// The offset among the parameters that an address names.
fn parameter(f: &Form<'_, '_>, operand: &Operand) -> Result<Option<u64>> {
    let Operand::Address(base, _) = operand else { return Ok(None) };
    let Operand::Symbol(name, inner) = &**base else { return Ok(None) };
    Ok(match f.place(name)? {
        Place::Param(at) => Some(u64::from(at).wrapping_add_signed(*inner)),
        _ => None,
    })
}

/// What the lane's copy moves, once everything about it has been checked; `None` after a finding.
fn boxed(
    cx: &mut Cx<'_>,
    inst: &Inst,
    shared: usize,
    map: usize,
    lane: u32,
    intent: Intent,
) -> Option<(u32, u32, Vec<Bytes>)> {
    let i = lane as usize;
    let rank = (inst.aux & ((1 << RANK_BITS) - 1)) as usize;
    let to = cx.addresses(inst.ops[shared], inst.kinds[shared].rows, inst.imm as i32 as i64)[i];
    let at = cx.addresses(inst.ops[map], inst.kinds[map].rows, inst.imm >> 32)[i];
    let described = read_map(cx, at, lane)?;
    if described.dims.len() != rank {
        let detail = format!("a copy of {rank} dimensions, and its tensor map has {}", described.dims.len());
        cx.report(FindingKind::TensorMap, lane, None, None, detail);
        return None;
    }
    if !to.is_multiple_of(128) {
        let place = cx.place_of(Space::Shared, to);
        let detail = format!("a tensor copy at shared address {to:#x}, which is not a multiple of 128");
        cx.report(FindingKind::Misaligned, lane, Some(place), None, detail);
        return None;
    }
    let size = described.box_bytes();
    let offset = cx.shared_range(to, size, lane)?;
    let coordinates: Vec<i32> = (0..rank).map(|d| i32::read(&cx.warp.rows, inst.ops[map + 1 + d])[i]).collect();
    let mut runs = Vec::new();
    for row in described.rows(&coordinates) {
        let valid = row.valid.end - row.valid.start;
        if valid > 0 && !cx.global_range(row.address + u64::from(row.valid.start), valid, intent, lane) {
            return None;
        }
        let start = offset + row.offset;
        for chunk in (0..row.bytes).step_by(16) {
            // The permutation goes by address, of which the offset lacks the base.
            let place = described.swizzle.permute(start + chunk + SHARED_BASE) - SHARED_BASE;
            let clip = |at: u32| at.clamp(chunk, chunk + 16) - chunk;
            let valid = clip(row.valid.start)..clip(row.valid.end);
            runs.push(Bytes { shared: place, global: row.address.wrapping_add(chunk.into()), bytes: 16, valid });
        }
    }
    Some((offset, size, runs))
}

/// The tensor map at a generic address; `None` after a finding.
fn read_map(cx: &mut Cx<'_>, at: u64, lane: u32) -> Option<TensorMap> {
    let mut bytes = [0; BYTES];
    let mut cursor = Cursor::default();
    for (i, word) in bytes.chunks_exact_mut(16).enumerate() {
        let address = at.wrapping_add(16 * i as u64);
        let target: Target<'_> = cx.target(Space::Generic, address, 16, Intent::Read, lane, &mut 0)?;
        let words = cx.read(target, 16, lane, &mut cursor);
        for (bytes, word) in word.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }
    let map = TensorMap::decode(&bytes);
    if map.is_none() || !at.is_multiple_of(64) {
        let detail = if map.is_none() {
            format!("there is no tensor map at {at:#x}")
        } else {
            format!("the tensor map at {at:#x} is not at a multiple of 64")
        };
        let place = cx.place_of(Space::Generic, at);
        cx.report(FindingKind::TensorMap, lane, Some(place), None, detail);
        return None;
    }
    map
}

fn load_lanes(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    let rank = (inst.aux & ((1 << RANK_BITS) - 1)) as usize;
    let at = 2 + rank;
    for operand in [0, 1] {
        cx.check_address(inst, operand);
    }
    let barriers = cx.addresses(inst.ops[at], inst.kinds[at].rows, i64::from(inst.aux as i32 >> RANK_BITS));
    for lane in lanes_of(cx.mask) {
        let Some(Target::Shared(barrier)) =
            cx.target(Space::Shared, barriers[lane as usize], 8, Intent::Atomic, lane, &mut 0)
        else {
            continue;
        };
        if !initialised(cx, barrier, lane) {
            continue;
        }
        let Some((shared, size, runs)) = boxed(cx, inst, 0, 1, lane, Intent::Read) else { continue };
        let direction = Direction::Load { barrier };
        cx.start_bulk(BulkCopy { warp: cx.warp.id, lane, shared, size, runs, direction, pc: cx.pc });
    }
    Flow::Next
}

fn store_lanes(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    let rank = (inst.aux & ((1 << RANK_BITS) - 1)) as usize;
    let from = 1 + rank;
    for operand in [0, from] {
        cx.check_address(inst, operand);
    }
    for lane in lanes_of(cx.mask) {
        let Some((shared, size, runs)) = boxed(cx, inst, from, 0, lane, Intent::Write) else { continue };
        let direction = Direction::Store { group: cx.warp.bulk_groups[lane as usize] };
        cx.start_bulk(BulkCopy { warp: cx.warp.id, lane, shared, size, runs, direction, pc: cx.pc });
    }
    Flow::Next
}
