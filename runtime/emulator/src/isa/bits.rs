//! Logic, shifts and bit fields.

use super::integer::sources;
use super::{Row, row};
use crate::decode::Inst;
use crate::decode::{Form, Taint, Ty};
use crate::error::Result;
use crate::exec::lanes::{Run, binary, rare1, rare2, rare3, ternary, unary, whole_warp};
use crate::exec::{Cx, Flow};

pub(super) const ROWS: &[Row] = &[
    row("and", "pred b16 b32 b64", and),
    row("or", "pred b16 b32 b64", or),
    row("xor", "pred b16 b32 b64", xor),
    row("not", "pred b16 b32 b64", not),
    row("cnot", "b16 b32 b64", cnot),
    row("lop3", "b32 with an immediate table", lop3),
    row("shl", "b16 b32 b64", shl),
    row("shr", "b16 b32 b64 u16 u32 u64 s16 s32 s64", shr),
    row("shf", ".l .r with .clamp .wrap, b32", shf),
    row("bfe", "u32 s32 u64 s64", bfe),
    row("bfi", "b32 b64", bfi),
    row("bfind", "u32 s32 u64 s64, .shiftamt", bfind),
    row("bmsk", ".clamp .wrap, b32", bmsk),
    row("szext", ".clamp .wrap, u32 s32", szext),
    row("brev", "b32 b64", brev),
    row("popc", "b32 b64", popc),
    row("clz", "b32 b64", clz),
    row("fns", "b32", fns),
    row("prmt", "b32, all modes", prmt),
];

fn logic(f: &mut Form<'_, '_>, which: Logic) -> Result<Run> {
    let ty = f.ty()?;
    sources(f, ty, 2)?;
    if ty == Ty::Pred {
        f.aux = which as u32;
        return Ok(predicate_logic);
    }
    f.taint = match which {
        Logic::And => Taint::And,
        Logic::Or => Taint::Or,
        Logic::Xor => Taint::Any,
    };
    Ok(match (ty, which) {
        (Ty::B16 | Ty::B32, Logic::And) => binary(|a: u32, b: u32| a & b),
        (Ty::B16 | Ty::B32, Logic::Or) => binary(|a: u32, b: u32| a | b),
        (Ty::B16 | Ty::B32, Logic::Xor) => binary(|a: u32, b: u32| a ^ b),
        (Ty::B64, Logic::And) => binary(|a: u64, b: u64| a & b),
        (Ty::B64, Logic::Or) => binary(|a: u64, b: u64| a | b),
        (Ty::B64, Logic::Xor) => binary(|a: u64, b: u64| a ^ b),
        _ => return f.unsupported("pred, b16, b32 and b64 are supported"),
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Logic {
    And,
    Or,
    Xor,
}

fn predicate_logic(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    let (a, b) = (cx.pred(inst, 1), cx.pred(inst, 2));
    let value = match inst.aux {
        x if x == Logic::And as u32 => a & b,
        x if x == Logic::Or as u32 => a | b,
        _ => a ^ b,
    };
    cx.set_pred(inst.ops[0], value);
    Flow::Next
}

fn and(f: &mut Form<'_, '_>) -> Result<Run> {
    logic(f, Logic::And)
}

fn or(f: &mut Form<'_, '_>) -> Result<Run> {
    logic(f, Logic::Or)
}

fn xor(f: &mut Form<'_, '_>) -> Result<Run> {
    logic(f, Logic::Xor)
}

fn not(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    sources(f, ty, 1)?;
    Ok(match ty {
        Ty::Pred => not_predicate,
        Ty::B16 => f.lane_by_lane(rare1(|a: u16| !a)),
        Ty::B32 => unary(|a: u32| !a),
        Ty::B64 => unary(|a: u64| !a),
        _ => return f.unsupported("pred, b16, b32 and b64 are supported"),
    })
}

fn not_predicate(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    let value = !cx.pred(inst, 1);
    cx.set_pred(inst.ops[0], value);
    Flow::Next
}

fn cnot(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    sources(f, ty, 1)?;
    let scalar = match ty {
        Ty::B16 => rare1(|a: u16| u16::from(a == 0)),
        Ty::B32 => rare1(|a: u32| u32::from(a == 0)),
        Ty::B64 => rare1(|a: u64| u64::from(a == 0)),
        _ => return f.unsupported("b16, b32 and b64 are supported"),
    };
    Ok(f.lane_by_lane(scalar))
}

fn lop3(f: &mut Form<'_, '_>) -> Result<Run> {
    f.ty()?;
    sources(f, Ty::B32, 3)?;
    f.aux = f.constant()? as u32 & 0xff;
    Ok(lop3_run())
}

whole_warp!(lop3_run, lop3_body);

#[inline(always)]
fn lop3_body(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    use crate::exec::lanes::{LANES, Lane};
    let rows = &mut cx.warp.rows;
    let [a, b, c]: [[u32; LANES]; 3] = std::array::from_fn(|i| Lane::read(rows, inst.ops[i + 1]));
    let term = |bit: u32| if inst.aux >> bit & 1 != 0 { !0u32 } else { 0 };
    let t: [u32; 8] = std::array::from_fn(|i| term(i as u32));
    let mut d = [0u32; LANES];
    for i in 0..LANES {
        let (a, b, c) = (a[i], b[i], c[i]);
        d[i] = t[0] & !a & !b & !c
            | t[1] & !a & !b & c
            | t[2] & !a & b & !c
            | t[3] & !a & b & c
            | t[4] & a & !b & !c
            | t[5] & a & !b & c
            | t[6] & a & b & !c
            | t[7] & a & b & c;
    }
    Lane::write(rows, inst.ops[0], &d, cx.mask);
    Flow::Next
}

fn shl(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    f.dst(ty)?;
    f.src(ty)?;
    f.src(Ty::U32)?;
    f.taint = Taint::Same { control: 1 << 2 };
    Ok(match ty {
        Ty::B16 => f.lane_by_lane(rare2(|a: u16, n: u32| if n > 15 { 0 } else { a << n })),
        Ty::B32 => binary(|a: u32, n: u32| if n > 31 { 0 } else { a << (n & 31) }),
        Ty::B64 => binary(|a: u64, n: u32| if n > 63 { 0 } else { a << (n & 63) }),
        _ => return f.unsupported("b16, b32 and b64 are supported"),
    })
}

fn shr(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    f.dst(ty)?;
    f.src(ty)?;
    f.src(Ty::U32)?;
    f.taint = Taint::Same { control: 1 << 2 };
    Ok(match ty {
        Ty::B16 | Ty::U16 => f.lane_by_lane(rare2(|a: u16, n: u32| if n > 15 { 0 } else { a >> n })),
        Ty::B32 | Ty::U32 => binary(|a: u32, n: u32| if n > 31 { 0 } else { a >> (n & 31) }),
        Ty::B64 | Ty::U64 => binary(|a: u64, n: u32| if n > 63 { 0 } else { a >> (n & 63) }),
        Ty::S16 => f.lane_by_lane(rare2(|a: i16, n: u32| a >> n.min(15))),
        Ty::S32 => binary(|a: i32, n: u32| a >> n.min(31)),
        Ty::S64 => binary(|a: i64, n: u32| a >> n.min(63)),
        _ => return f.unsupported("integer types are supported"),
    })
}

fn shf(f: &mut Form<'_, '_>) -> Result<Run> {
    let (left, clamp) = (f.choice(&[("l", true), ("r", false)]), f.choice(&[("clamp", true), ("wrap", false)]));
    f.ty()?;
    sources(f, Ty::B32, 3)?;
    f.taint = Taint::Same { control: 1 << 3 };
    let (Some(left), Some(clamp)) = (left, clamp) else {
        return f.unsupported(".l or .r, and .clamp or .wrap, are required");
    };
    #[inline(always)]
    fn both(a: u32, b: u32) -> u64 {
        u64::from(b) << 32 | u64::from(a)
    }
    Ok(match (left, clamp) {
        (true, true) => f.lane_by_lane(rare3(|a: u32, b: u32, n: u32| (both(a, b) << n.min(32) >> 32) as u32)),
        (true, false) => ternary(|a: u32, b: u32, n: u32| (both(a, b) << (n & 31) >> 32) as u32),
        (false, true) => f.lane_by_lane(rare3(|a: u32, b: u32, n: u32| (both(a, b) >> n.min(32)) as u32)),
        (false, false) => ternary(|a: u32, b: u32, n: u32| (both(a, b) >> (n & 31)) as u32),
    })
}

fn bfe(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    f.dst(ty)?;
    f.src(ty)?;
    f.src(Ty::U32)?;
    f.src(Ty::U32)?;
    f.taint = Taint::Same { control: 1 << 2 | 1 << 3 };
    let scalar = match ty {
        Ty::U32 => rare3(|a: u32, at: u32, n: u32| field(a.into(), at, n, 32, false) as u32),
        Ty::S32 => rare3(|a: u32, at: u32, n: u32| field(a.into(), at, n, 32, true) as u32),
        Ty::U64 => rare3(|a: u64, at: u32, n: u32| field(a, at, n, 64, false)),
        Ty::S64 => rare3(|a: u64, at: u32, n: u32| field(a, at, n, 64, true)),
        _ => return f.unsupported("u32, s32, u64 and s64 are supported"),
    };
    Ok(f.lane_by_lane(scalar))
}

/// Where a field starts: 32-bit instructions look at 8 bits of it, 64-bit ones at all.
#[inline(always)]
fn position(at: u32, width: u32) -> u32 {
    if width == 32 { at & 0xff } else { at.min(0xff) }
}

#[inline(always)]
fn field(a: u64, at: u32, n: u32, width: u32, signed: bool) -> u64 {
    let (at, n) = (position(at, width), n & 0xff);
    if n == 0 {
        return 0;
    }
    // The sign bit is that of the field, or of the register if the field reaches past it.
    let sign_at = (at + n - 1).min(width - 1);
    let sign = if signed && a >> sign_at & 1 != 0 { !0u64 } else { 0 };
    let shifted = if at >= width { 0 } else { a >> at };
    let kept = n.min(width.saturating_sub(at));
    let mask = if kept >= 64 { !0 } else { (1 << kept) - 1 };
    shifted & mask | sign & !mask
}

fn bfi(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    f.dst(ty)?;
    f.src(ty)?;
    f.src(ty)?;
    f.src(Ty::U32)?;
    f.src(Ty::U32)?;
    match ty {
        Ty::B32 | Ty::B64 => Ok(insert_lanes),
        _ => f.unsupported("b32 and b64 are supported"),
    }
}

fn insert_lanes(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    use crate::exec::lanes::{LANES, Lane};
    let rows = &mut cx.warp.rows;
    let (at, n): ([u32; LANES], [u32; LANES]) = (Lane::read(rows, inst.ops[3]), Lane::read(rows, inst.ops[4]));
    if inst.kinds[0].rows == 1 {
        let (a, b): ([u32; LANES], [u32; LANES]) = (Lane::read(rows, inst.ops[1]), Lane::read(rows, inst.ops[2]));
        let d: [u32; LANES] = std::array::from_fn(|i| insert(a[i].into(), b[i].into(), at[i], n[i], 32) as u32);
        Lane::write(rows, inst.ops[0], &d, cx.mask);
    } else {
        let (a, b): ([u64; LANES], [u64; LANES]) = (Lane::read(rows, inst.ops[1]), Lane::read(rows, inst.ops[2]));
        let d: [u64; LANES] = std::array::from_fn(|i| insert(a[i], b[i], at[i], n[i], 64));
        Lane::write(rows, inst.ops[0], &d, cx.mask);
    }
    Flow::Next
}

#[inline(always)]
fn insert(a: u64, b: u64, at: u32, n: u32, width: u32) -> u64 {
    let (at, n) = (position(at, width), n & 0xff);
    if at >= width || n == 0 {
        return b;
    }
    let n = n.min(width - at);
    let mask = (if n >= 64 { !0 } else { (1u64 << n) - 1 }) << at;
    b & !mask | a << at & mask
}

fn bfind(f: &mut Form<'_, '_>) -> Result<Run> {
    let shift = f.flag("shiftamt");
    let ty = f.ty()?;
    f.dst(Ty::U32)?;
    f.src(ty)?;
    #[inline(always)]
    fn found(leading: u32, width: u32, shift: bool) -> u32 {
        if leading == width {
            !0
        } else if shift {
            leading
        } else {
            width - 1 - leading
        }
    }
    let scalar = match (ty, shift) {
        (Ty::U32, false) => rare1(|a: u32| found(a.leading_zeros(), 32, false)),
        (Ty::U32, true) => rare1(|a: u32| found(a.leading_zeros(), 32, true)),
        (Ty::S32, false) => rare1(|a: i32| found((a ^ a >> 31).leading_zeros(), 32, false)),
        (Ty::S32, true) => rare1(|a: i32| found((a ^ a >> 31).leading_zeros(), 32, true)),
        (Ty::U64, false) => rare1(|a: u64| found(a.leading_zeros(), 64, false)),
        (Ty::U64, true) => rare1(|a: u64| found(a.leading_zeros(), 64, true)),
        (Ty::S64, false) => rare1(|a: i64| found((a ^ a >> 63).leading_zeros(), 64, false)),
        (Ty::S64, true) => rare1(|a: i64| found((a ^ a >> 63).leading_zeros(), 64, true)),
        _ => return f.unsupported("u32, s32, u64 and s64 are supported"),
    };
    Ok(f.lane_by_lane(scalar))
}

fn bmsk(f: &mut Form<'_, '_>) -> Result<Run> {
    let clamp = f.choice(&[("clamp", true), ("wrap", false)]);
    f.ty()?;
    sources(f, Ty::U32, 2)?;
    #[inline(always)]
    fn mask(at: u32, n: u32) -> u32 {
        (((1u64 << n) - 1) << at) as u32
    }
    let scalar = match clamp {
        Some(true) => rare2(|at: u32, n: u32| mask(at.min(32), n.min(32))),
        Some(false) => rare2(|at: u32, n: u32| mask(at & 31, n & 31)),
        None => return f.unsupported(".clamp or .wrap is required"),
    };
    Ok(f.lane_by_lane(scalar))
}

fn szext(f: &mut Form<'_, '_>) -> Result<Run> {
    let clamp = f.choice(&[("clamp", true), ("wrap", false)]);
    let ty = f.ty()?;
    sources(f, ty, 2)?;
    #[inline(always)]
    fn extend(a: u32, n: u32, signed: bool) -> u32 {
        match n {
            0 => 0,
            32.. => a,
            n if signed => ((a << (32 - n)) as i32 >> (32 - n)) as u32,
            n => a & ((1 << n) - 1),
        }
    }
    let scalar = match (ty, clamp) {
        (Ty::U32, Some(true)) => rare2(|a: u32, n: u32| extend(a, n, false)),
        (Ty::U32, Some(false)) => rare2(|a: u32, n: u32| extend(a, n & 31, false)),
        (Ty::S32, Some(true)) => rare2(|a: u32, n: u32| extend(a, n, true)),
        (Ty::S32, Some(false)) => rare2(|a: u32, n: u32| extend(a, n & 31, true)),
        _ => return f.unsupported("u32 and s32 with .clamp or .wrap are supported"),
    };
    Ok(f.lane_by_lane(scalar))
}

fn brev(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    sources(f, ty, 1)?;
    f.taint = Taint::Same { control: 0 };
    let scalar = match ty {
        Ty::B32 => rare1(|a: u32| a.reverse_bits()),
        Ty::B64 => rare1(|a: u64| a.reverse_bits()),
        _ => return f.unsupported("b32 and b64 are supported"),
    };
    Ok(f.lane_by_lane(scalar))
}

fn popc(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    f.dst(Ty::U32)?;
    f.src(ty)?;
    Ok(match ty {
        Ty::B32 => unary(|a: u32| a.count_ones()),
        Ty::B64 => f.lane_by_lane(rare1(|a: u64| a.count_ones())),
        _ => return f.unsupported("b32 and b64 are supported"),
    })
}

fn clz(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    f.dst(Ty::U32)?;
    f.src(ty)?;
    let scalar = match ty {
        Ty::B32 => rare1(|a: u32| a.leading_zeros()),
        Ty::B64 => rare1(|a: u64| a.leading_zeros()),
        _ => return f.unsupported("b32 and b64 are supported"),
    };
    Ok(f.lane_by_lane(scalar))
}

fn fns(f: &mut Form<'_, '_>) -> Result<Run> {
    f.ty()?;
    f.dst(Ty::U32)?;
    f.src(Ty::U32)?;
    f.src(Ty::U32)?;
    f.src(Ty::S32)?;
    Ok(f.lane_by_lane(rare3(|mask: u32, base: u32, nth: i32| find_nth(mask, base, nth))))
}

/// The nth set bit from `base` upwards (or, for a negative n, downwards).
fn find_nth(mask: u32, base: u32, nth: i32) -> u32 {
    // What hardware gives for the one number without a magnitude.
    if nth == i32::MIN {
        return 0;
    }
    if base > 31 {
        return !0;
    }
    if nth == 0 {
        return if mask >> base & 1 != 0 { base } else { !0 };
    }
    let step = nth.signum();
    let mut left = nth.unsigned_abs();
    let mut bit = base as i32;
    while (0..32).contains(&bit) {
        left -= mask >> bit & 1;
        if left == 0 {
            return bit as u32;
        }
        bit += step;
    }
    !0
}

fn prmt(f: &mut Form<'_, '_>) -> Result<Run> {
    f.ty()?;
    let mode = f.choice(&[("f4e", 1), ("b4e", 2), ("rc8", 3), ("ecl", 4), ("ecr", 5), ("rc16", 6)]).unwrap_or(0);
    sources(f, Ty::B32, 3)?;
    f.taint = Taint::Same { control: 1 << 3 };
    Ok(match mode {
        0 => ternary(permute),
        1 => f.lane_by_lane(rare3(|a: u32, b: u32, c: u32| {
            permute(a, b, [0x3210, 0x4321, 0x5432, 0x6543][c as usize & 3])
        })),
        2 => f.lane_by_lane(rare3(|a: u32, b: u32, c: u32| {
            permute(a, b, [0x5670, 0x6701, 0x7012, 0x0123][c as usize & 3])
        })),
        3 => f.lane_by_lane(rare3(|a: u32, b: u32, c: u32| {
            permute(a, b, [0x0000, 0x1111, 0x2222, 0x3333][c as usize & 3])
        })),
        4 => f.lane_by_lane(rare3(|a: u32, b: u32, c: u32| {
            permute(a, b, [0x3210, 0x3211, 0x3222, 0x3333][c as usize & 3])
        })),
        5 => f.lane_by_lane(rare3(|a: u32, b: u32, c: u32| {
            permute(a, b, [0x0000, 0x1110, 0x2210, 0x3210][c as usize & 3])
        })),
        _ => f.lane_by_lane(rare3(|a: u32, b: u32, c: u32| {
            permute(a, b, [0x1010, 0x3232, 0x1010, 0x3232][c as usize & 3])
        })),
    })
}

#[inline(always)]
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    let pick = |i: u32| {
        let s = selector >> (4 * i) & 0xf;
        let byte = (bytes >> (8 * (s & 7))) as u8;
        // The high bit of the selector replicates the byte's sign.
        let byte = if s & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte };
        u32::from(byte) << (8 * i)
    };
    pick(0) | pick(1) | pick(2) | pick(3)
}
