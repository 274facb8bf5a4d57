//! Moves: registers, special registers, addresses, packing and unpacking.

use super::{Row, row};
use crate::decode::{Form, Inst, Taint, Ty};
use crate::error::Result;
use crate::exec::lanes::{LANES, Lane, Run, rare1, unary};
use crate::exec::{Cx, Flow};
use crate::memory::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW_BYTES};
use crate::parse::ast::Operand;

pub(super) const ROWS: &[Row] = &[
    row("mov", "all widths, special registers, addresses, packing and unpacking of vectors", mov),
    row("cvta", "global, shared, local, param and const, u32 u64, and .to", cvta),
    row("isspacep", "global, shared (::cta), local, const, param", isspacep),
    row("mapa", "shared::cluster of a cluster of one CTA", mapa),
];

fn mov(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    match f.inst.operands.as_slice() {
        [Operand::Vector(_), _] | [_, Operand::Vector(_)] => return repack(f, ty),
        [_, Operand::Special(name)] if name.starts_with("%clock") || name.starts_with("%globaltimer") => {
            let high = name.ends_with("_hi");
            f.dst(ty)?;
            f.operand()?;
            f.aux = u32::from(high);
            return Ok(clock);
        }
        [_, Operand::Special(_)] if ty.bytes() == 8 => {
            f.dst(ty)?;
            f.src(Ty::U32)?;
            return Ok(unary(|a: u32| u64::from(a)));
        }
        _ => {}
    }
    f.dst(ty)?;
    f.src(ty)?;
    f.taint = Taint::Same { control: 0 };
    Ok(match ty.bytes() {
        0 => copy_predicate,
        2 | 4 => unary(|a: u32| a),
        8 => unary(|a: u64| a),
        16 => copy_wide,
        _ => return f.unsupported("8-bit moves are not supported"),
    })
}

fn copy_predicate(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    let value = cx.pred(inst, 1);
    cx.set_pred(inst.ops[0], value);
    Flow::Next
}

fn copy_wide(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    let value = u128::read(&cx.warp.rows, inst.ops[1]);
    Lane::write(&mut cx.warp.rows, inst.ops[0], &value, cx.mask);
    Flow::Next
}

/// Time is the number of instructions that the CTA has executed.
fn clock(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    let now = if inst.aux == 1 { cx.cta.instructions >> 32 } else { cx.cta.instructions };
    if inst.kinds[0].rows == 2 {
        Lane::write(&mut cx.warp.rows, inst.ops[0], &[now; LANES], cx.mask);
    } else {
        Lane::write(&mut cx.warp.rows, inst.ops[0], &[now as u32; LANES], cx.mask);
    }
    Flow::Next
}

/// `mov.b32 {lo, hi}, r` and the other way round: the parts laid end to end are the whole.
fn repack(f: &mut Form<'_, '_>, ty: Ty) -> Result<Run> {
    let (destination, source) = (f.operand()?, f.operand()?);
    let parts = |o: &Operand| {
        if let Operand::Vector(items) = o { items.len() as u32 } else { 1 }
    };
    let part_type = |f: &Form<'_, '_>, n: u32| match ty.bytes() / n {
        1 => Ok(Ty::B8),
        2 => Ok(Ty::B16),
        4 => Ok(Ty::B32),
        8 => Ok(Ty::B64),
        16 => Ok(Ty::B128),
        _ => f.unsupported("a vector of this length does not fit the type"),
    };
    let (to, from) = (part_type(f, parts(destination))?, part_type(f, parts(source))?);
    for (operand, ty, written) in [(destination, to, true), (source, from, false)] {
        let items = if let Operand::Vector(items) = operand { items.as_slice() } else { std::slice::from_ref(operand) };
        for item in items {
            // 8-bit parts live in 16-bit registers.
            let register = if ty == Ty::B8 { Ty::B16 } else { ty };
            if written { f.dst_from(item, register)? } else { f.src_from(item, register)? }
        }
    }
    f.aux = to.bytes() | from.bytes() << 8 | parts(destination) << 16;
    f.taint = Taint::Same { control: 0 };
    Ok(match (to.bytes(), from.bytes()) {
        (2, 4) => unpack_halves,
        (4, 2) => pack_halves,
        _ => repack_lanes,
    })
}

fn unpack_halves(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    let rows = &mut cx.warp.rows;
    let a: [u32; LANES] = Lane::read(rows, inst.ops[2]);
    Lane::write(rows, inst.ops[0], &a.map(|a| a & 0xffff), cx.mask);
    Lane::write(rows, inst.ops[1], &a.map(|a| a >> 16), cx.mask);
    Flow::Next
}

fn pack_halves(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    let rows = &mut cx.warp.rows;
    let (lo, hi): ([u32; LANES], [u32; LANES]) = (Lane::read(rows, inst.ops[1]), Lane::read(rows, inst.ops[2]));
    let mut d = [0u32; LANES];
    for i in 0..LANES {
        d[i] = lo[i] & 0xffff | hi[i] << 16;
    }
    Lane::write(rows, inst.ops[0], &d, cx.mask);
    Flow::Next
}

fn repack_lanes(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    let (to, from, destinations) = (inst.aux & 0xff, inst.aux >> 8 & 0xff, (inst.aux >> 16) as usize);
    let bits = |bytes: u32| {
        if bytes == 16 { u128::MAX } else { (1 << (8 * bytes)) - 1 }
    };
    let rows = &mut cx.warp.rows;
    let mut whole = [0u128; LANES];
    for (i, operand) in (destinations..inst.count as usize).enumerate() {
        let part = read_any(rows, inst.ops[operand], inst.kinds[operand].rows);
        for lane in 0..LANES {
            whole[lane] |= (part[lane] & bits(from)) << (8 * from as usize * i);
        }
    }
    for i in 0..destinations {
        let part = whole.map(|w| w >> (8 * to as usize * i) & bits(to));
        match inst.kinds[i].rows {
            1 => Lane::write(rows, inst.ops[i], &part.map(|p| p as u32), cx.mask),
            2 => Lane::write(rows, inst.ops[i], &part.map(|p| p as u64), cx.mask),
            _ => Lane::write(rows, inst.ops[i], &part, cx.mask),
        }
    }
    Flow::Next
}

fn read_any(rows: &[crate::exec::lanes::Row], slot: u16, count: u8) -> [u128; LANES] {
    match count {
        1 => u32::read(rows, slot).map(u128::from),
        2 => u64::read(rows, slot).map(u128::from),
        _ => u128::read(rows, slot),
    }
}

fn cvta(f: &mut Form<'_, '_>) -> Result<Run> {
    let to_space = f.flag("to");
    f.ignore(&["shared::cta", "shared::cluster"]);
    let shared = f.inst.opcode.contains(".shared");
    let window = f.choice(&[
        ("global", 0),
        ("const", 0),
        ("shared", SHARED_WINDOW),
        ("local", LOCAL_WINDOW),
        ("param", PARAM_WINDOW),
        ("param::entry", PARAM_WINDOW),
    ]);
    let window = if shared { Some(SHARED_WINDOW) } else { window };
    let ty = f.ty()?;
    if ty.bytes() != 8 {
        return f.unsupported("64-bit addresses are supported");
    }
    f.dst(ty)?;
    f.src(ty)?;
    Ok(match (window, to_space) {
        (Some(0), _) => unary(|a: u64| a),
        (Some(SHARED_WINDOW), false) => unary(|a: u64| a.wrapping_add(SHARED_WINDOW)),
        (Some(SHARED_WINDOW), true) => unary(|a: u64| a.wrapping_sub(SHARED_WINDOW)),
        (Some(LOCAL_WINDOW), false) => unary(|a: u64| a.wrapping_add(LOCAL_WINDOW)),
        (Some(LOCAL_WINDOW), true) => unary(|a: u64| a.wrapping_sub(LOCAL_WINDOW)),
        (Some(PARAM_WINDOW), false) => unary(|a: u64| a.wrapping_add(PARAM_WINDOW)),
        (Some(PARAM_WINDOW), true) => unary(|a: u64| a.wrapping_sub(PARAM_WINDOW)),
        _ => return f.unsupported("a state space such as .shared is required"),
    })
}

#[inline(always)]
fn within(a: u64, window: u64) -> bool {
    a.wrapping_sub(window) < WINDOW_BYTES
}

fn isspacep(f: &mut Form<'_, '_>) -> Result<Run> {
    let space = f.choice(&[
        ("global", 0),
        ("shared", 1),
        ("shared::cta", 1),
        ("shared::cluster", 1),
        ("local", 2),
        ("const", 3),
        ("param", 4),
        ("param::entry", 4),
    ]);
    f.dst(Ty::Pred)?;
    f.src(Ty::U64)?;
    let scalar = match space {
        Some(0) => rare1(|a: u64| !within(a, SHARED_WINDOW) && !within(a, LOCAL_WINDOW) && !within(a, PARAM_WINDOW)),
        Some(1) => rare1(|a: u64| within(a, SHARED_WINDOW)),
        Some(2) => rare1(|a: u64| within(a, LOCAL_WINDOW)),
        Some(3) => rare1(|_: u64| false),
        Some(_) => rare1(|a: u64| within(a, PARAM_WINDOW)),
        None => return f.unsupported("a state space such as .shared is required"),
    };
    Ok(f.lane_by_lane(scalar))
}

/// The address of a shared variable in a CTA of the cluster: here always the CTA itself.
fn mapa(f: &mut Form<'_, '_>) -> Result<Run> {
    f.ignore(&["shared::cluster"]);
    let ty = f.ty()?;
    f.dst(ty)?;
    let address = f.operand()?;
    f.src_from(address, ty)?;
    f.operand()?;
    Ok(match ty.bytes() {
        4 => unary(|a: u32| a),
        _ => unary(|a: u64| a),
    })
}
