//! Integer arithmetic.

use super::{Row, float, row};
use crate::decode::{Form, Taint, Ty};
use crate::error::Result;
use crate::exec::lanes::{Run, binary, rare1, rare2, rare3, ternary, unary};

pub(super) const ROWS: &[Row] = &[
    row("add", "u16 s16 u32 s32 u64 s64 (.sat for s32), f32 f64 f16 bf16 and packed, all roundings, .ftz .sat", add),
    row("sub", "as add", sub),
    row("mul", ".lo .hi .wide of integers; floating types as add", mul),
    row("mad", ".lo .hi .wide of integers (.sat for .hi.s32); f32 f64 as fma", mad),
    row("mul24", ".lo .hi of u32 s32", mul24),
    row("mad24", ".lo .hi of u32 s32", mad24),
    row("sad", "u16 s16 u32 s32 u64 s64", sad),
    row("div", "integers; f32 .approx .full .rn and directed; f64 .rn", div),
    row("rem", "integers", rem),
    row("abs", "integers, f32 f64 f16 bf16 and packed", abs),
    row("neg", "integers, f32 f64 f16 bf16 and packed", neg),
    row("min", "integers (packed 16-bit too), floating types with .NaN, .xorsign.abs, 3 inputs", min),
    row("max", "as min", max),
    row("dp4a", "u32 s32", dp4a),
];

/// Chooses the closure's type by the instruction's; the closure body is the same text for all.
macro_rules! by_type {
    ($f:ident, $ty:expr, binary, $closure:expr) => {
        match $ty {
            Ty::U32 | Ty::B32 => binary::<u32, u32, u32, _>($closure),
            Ty::S32 => binary::<i32, i32, i32, _>($closure),
            Ty::U64 | Ty::B64 => binary::<u64, u64, u64, _>($closure),
            Ty::S64 => binary::<i64, i64, i64, _>($closure),
            _ => by_type!($f, $ty, rare2, $closure),
        }
    };
    ($f:ident, $ty:expr, ternary, $closure:expr) => {
        match $ty {
            Ty::U32 | Ty::B32 => ternary::<u32, u32, u32, u32, _>($closure),
            Ty::S32 => ternary::<i32, i32, i32, i32, _>($closure),
            Ty::U64 | Ty::B64 => ternary::<u64, u64, u64, u64, _>($closure),
            Ty::S64 => ternary::<i64, i64, i64, i64, _>($closure),
            _ => by_type!($f, $ty, rare3, $closure),
        }
    };
    ($f:ident, $ty:expr, rare2, $closure:expr) => {{
        let scalar = match $ty {
            Ty::U16 | Ty::B16 => rare2::<u16, u16, u16, _>($closure),
            Ty::S16 => rare2::<i16, i16, i16, _>($closure),
            Ty::U32 | Ty::B32 => rare2::<u32, u32, u32, _>($closure),
            Ty::S32 => rare2::<i32, i32, i32, _>($closure),
            Ty::U64 | Ty::B64 => rare2::<u64, u64, u64, _>($closure),
            Ty::S64 => rare2::<i64, i64, i64, _>($closure),
            ty => return $f.unsupported(format!("type {ty:?} is not supported")),
        };
        $f.lane_by_lane(scalar)
    }};
    ($f:ident, $ty:expr, rare3, $closure:expr) => {{
        let scalar = match $ty {
            Ty::U16 | Ty::B16 => rare3::<u16, u16, u16, u16, _>($closure),
            Ty::S16 => rare3::<i16, i16, i16, i16, _>($closure),
            Ty::U32 | Ty::B32 => rare3::<u32, u32, u32, u32, _>($closure),
            Ty::S32 => rare3::<i32, i32, i32, i32, _>($closure),
            Ty::U64 | Ty::B64 => rare3::<u64, u64, u64, u64, _>($closure),
            Ty::S64 => rare3::<i64, i64, i64, i64, _>($closure),
            ty => return $f.unsupported(format!("type {ty:?} is not supported")),
        };
        $f.lane_by_lane(scalar)
    }};
}

pub(super) fn sources(f: &mut Form<'_, '_>, ty: Ty, count: usize) -> Result<()> {
    f.dst(ty)?;
    for _ in 0..count {
        f.src(ty)?;
    }
    Ok(())
}

fn is_float(ty: Ty) -> bool {
    matches!(ty, Ty::F32 | Ty::F64 | Ty::F32x2 | Ty::F16 | Ty::Bf16 | Ty::F16x2 | Ty::Bf16x2)
}

fn add(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    if is_float(ty) {
        return float::add(f, ty);
    }
    sources(f, ty, 2)?;
    if f.flag("sat") {
        return match ty {
            Ty::S32 => Ok(binary(|a: i32, b: i32| a.saturating_add(b))),
            _ => f.unsupported(".sat takes s32"),
        };
    }
    f.taint = Taint::Upwards;
    Ok(by_type!(f, ty, binary, |a, b| a.wrapping_add(b)))
}

fn sub(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    if is_float(ty) {
        return float::sub(f, ty);
    }
    sources(f, ty, 2)?;
    if f.flag("sat") {
        return match ty {
            Ty::S32 => Ok(binary(|a: i32, b: i32| a.saturating_sub(b))),
            _ => f.unsupported(".sat takes s32"),
        };
    }
    f.taint = Taint::Upwards;
    Ok(by_type!(f, ty, binary, |a, b| a.wrapping_sub(b)))
}

/// Which half of a product.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Lo,
    Hi,
    Wide,
}

fn part(f: &mut Form<'_, '_>) -> Result<Part> {
    match f.choice(&[("lo", Part::Lo), ("hi", Part::Hi), ("wide", Part::Wide)]) {
        Some(part) => Ok(part),
        None => f.unsupported(".lo, .hi or .wide is missing"),
    }
}

fn widened(f: &Form<'_, '_>, ty: Ty) -> Result<Ty> {
    match ty {
        Ty::U16 => Ok(Ty::U32),
        Ty::S16 => Ok(Ty::S32),
        Ty::U32 => Ok(Ty::U64),
        Ty::S32 => Ok(Ty::S64),
        _ => f.unsupported(".wide takes 16- and 32-bit types"),
    }
}

fn mul(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    if is_float(ty) {
        return float::mul(f, ty);
    }
    let part = part(f)?;
    if part == Part::Wide {
        let wide = widened(f, ty)?;
        f.dst(wide)?;
        f.src(ty)?;
        f.src(ty)?;
        return Ok(match ty {
            Ty::U16 => f.lane_by_lane(rare2(|a: u16, b: u16| u32::from(a) * u32::from(b))),
            Ty::S16 => f.lane_by_lane(rare2(|a: i16, b: i16| i32::from(a) * i32::from(b))),
            Ty::U32 => binary(|a: u32, b: u32| u64::from(a) * u64::from(b)),
            _ => binary(|a: i32, b: i32| i64::from(a) * i64::from(b)),
        });
    }
    sources(f, ty, 2)?;
    if part == Part::Lo {
        return Ok(by_type!(f, ty, binary, |a, b| a.wrapping_mul(b)));
    }
    Ok(match ty {
        Ty::U16 => f.lane_by_lane(rare2(|a: u16, b: u16| (u32::from(a) * u32::from(b) >> 16) as u16)),
        Ty::S16 => f.lane_by_lane(rare2(|a: i16, b: i16| (i32::from(a) * i32::from(b) >> 16) as i16)),
        Ty::U32 => binary(|a: u32, b: u32| (u64::from(a) * u64::from(b) >> 32) as u32),
        Ty::S32 => binary(|a: i32, b: i32| (i64::from(a) * i64::from(b) >> 32) as i32),
        Ty::U64 => f.lane_by_lane(rare2(|a: u64, b: u64| (u128::from(a) * u128::from(b) >> 64) as u64)),
        Ty::S64 => f.lane_by_lane(rare2(|a: i64, b: i64| (i128::from(a) * i128::from(b) >> 64) as i64)),
        ty => return f.unsupported(format!("type {ty:?} is not supported")),
    })
}

fn mad(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    if is_float(ty) {
        return float::fma_of(f, ty);
    }
    let part = part(f)?;
    if part == Part::Wide {
        let wide = widened(f, ty)?;
        f.dst(wide)?;
        f.src(ty)?;
        f.src(ty)?;
        f.src(wide)?;
        return Ok(match ty {
            Ty::U16 => f.lane_by_lane(rare3(|a: u16, b: u16, c: u32| (u32::from(a) * u32::from(b)).wrapping_add(c))),
            Ty::S16 => f.lane_by_lane(rare3(|a: i16, b: i16, c: i32| (i32::from(a) * i32::from(b)).wrapping_add(c))),
            Ty::U32 => ternary(|a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c)),
            _ => ternary(|a: i32, b: i32, c: i64| (i64::from(a) * i64::from(b)).wrapping_add(c)),
        });
    }
    sources(f, ty, 3)?;
    if part == Part::Lo {
        return Ok(by_type!(f, ty, ternary, |a, b, c| a.wrapping_mul(b).wrapping_add(c)));
    }
    let sat = f.flag("sat");
    Ok(match ty {
        Ty::U16 => {
            f.lane_by_lane(rare3(|a: u16, b: u16, c: u16| ((u32::from(a) * u32::from(b) >> 16) as u16).wrapping_add(c)))
        }
        Ty::S16 => {
            f.lane_by_lane(rare3(|a: i16, b: i16, c: i16| ((i32::from(a) * i32::from(b) >> 16) as i16).wrapping_add(c)))
        }
        Ty::U32 => ternary(|a: u32, b: u32, c: u32| ((u64::from(a) * u64::from(b) >> 32) as u32).wrapping_add(c)),
        Ty::S32 if sat => f.lane_by_lane(rare3(|a: i32, b: i32, c: i32| {
            ((i64::from(a) * i64::from(b) >> 32) as i32).saturating_add(c)
        })),
        Ty::S32 => ternary(|a: i32, b: i32, c: i32| ((i64::from(a) * i64::from(b) >> 32) as i32).wrapping_add(c)),
        Ty::U64 => f.lane_by_lane(rare3(|a: u64, b: u64, c: u64| {
            ((u128::from(a) * u128::from(b) >> 64) as u64).wrapping_add(c)
        })),
        Ty::S64 => f.lane_by_lane(rare3(|a: i64, b: i64, c: i64| {
            ((i128::from(a) * i128::from(b) >> 64) as i64).wrapping_add(c)
        })),
        ty => return f.unsupported(format!("type {ty:?} is not supported")),
    })
}

#[inline(always)]
fn low24(x: u32) -> u64 {
    (x & 0xff_ffff).into()
}

#[inline(always)]
fn low24s(x: i32) -> i64 {
    (x << 8 >> 8).into()
}

fn mul24(f: &mut Form<'_, '_>) -> Result<Run> {
    let (ty, part) = (f.ty()?, part(f)?);
    sources(f, ty, 2)?;
    let scalar = match (ty, part) {
        (Ty::U32, Part::Lo) => rare2(|a: u32, b: u32| (low24(a) * low24(b)) as u32),
        (Ty::S32, Part::Lo) => rare2(|a: i32, b: i32| (low24s(a) * low24s(b)) as i32),
        (Ty::U32, Part::Hi) => rare2(|a: u32, b: u32| (low24(a) * low24(b) >> 16) as u32),
        (Ty::S32, Part::Hi) => rare2(|a: i32, b: i32| (low24s(a) * low24s(b) >> 16) as i32),
        _ => return f.unsupported("u32 and s32, .lo and .hi are supported"),
    };
    Ok(f.lane_by_lane(scalar))
}

fn mad24(f: &mut Form<'_, '_>) -> Result<Run> {
    let (ty, part) = (f.ty()?, part(f)?);
    sources(f, ty, 3)?;
    let scalar = match (ty, part) {
        (Ty::U32, Part::Lo) => rare3(|a: u32, b: u32, c: u32| ((low24(a) * low24(b)) as u32).wrapping_add(c)),
        (Ty::S32, Part::Lo) => rare3(|a: i32, b: i32, c: i32| ((low24s(a) * low24s(b)) as i32).wrapping_add(c)),
        (Ty::U32, Part::Hi) => rare3(|a: u32, b: u32, c: u32| ((low24(a) * low24(b) >> 16) as u32).wrapping_add(c)),
        (Ty::S32, Part::Hi) => rare3(|a: i32, b: i32, c: i32| ((low24s(a) * low24s(b) >> 16) as i32).wrapping_add(c)),
        _ => return f.unsupported("u32 and s32, .lo and .hi are supported"),
    };
    Ok(f.lane_by_lane(scalar))
}

fn sad(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    sources(f, ty, 3)?;
    Ok(by_type!(f, ty, rare3, |a, b, c| if a < b {
        b.wrapping_sub(a).wrapping_add(c)
    } else {
        a.wrapping_sub(b).wrapping_add(c)
    }))
}

fn div(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    if is_float(ty) {
        return float::div(f, ty);
    }
    sources(f, ty, 2)?;
    // Division by zero is unspecified in PTX; hardware gives all ones.
    Ok(by_type!(f, ty, rare2, |a, b| if b == 0 { !0 } else { a.wrapping_div(b) }))
}

fn rem(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    sources(f, ty, 2)?;
    Ok(by_type!(f, ty, rare2, |a, b| if b == 0 { !0 } else { a.wrapping_rem(b) }))
}

fn abs(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    if is_float(ty) {
        return float::abs(f, ty);
    }
    sources(f, ty, 1)?;
    Ok(match ty {
        Ty::S16 => return Ok(f.lane_by_lane(rare1(|a: i16| a.wrapping_abs()))),
        Ty::S32 => unary(|a: i32| a.wrapping_abs()),
        Ty::S64 => unary(|a: i64| a.wrapping_abs()),
        ty => return f.unsupported(format!("type {ty:?} is not supported")),
    })
}

fn neg(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    if is_float(ty) {
        return float::neg(f, ty);
    }
    sources(f, ty, 1)?;
    Ok(match ty {
        Ty::S16 => return Ok(f.lane_by_lane(rare1(|a: i16| a.wrapping_neg()))),
        Ty::S32 => unary(|a: i32| a.wrapping_neg()),
        Ty::S64 => unary(|a: i64| a.wrapping_neg()),
        ty => return f.unsupported(format!("type {ty:?} is not supported")),
    })
}

fn min(f: &mut Form<'_, '_>) -> Result<Run> {
    extreme::<false>(f)
}

fn max(f: &mut Form<'_, '_>) -> Result<Run> {
    extreme::<true>(f)
}

fn extreme<const MAX: bool>(f: &mut Form<'_, '_>) -> Result<Run> {
    if let Some(signed) = f.choice(&[("s16x2", true), ("u16x2", false)]) {
        sources(f, Ty::B32, 2)?;
        return Ok(if signed {
            f.lane_by_lane(rare2(|a: u32, b: u32| {
                halves(a, b, |x, y| if MAX { (x as i16).max(y as i16) as u16 } else { (x as i16).min(y as i16) as u16 })
            }))
        } else {
            f.lane_by_lane(rare2(|a: u32, b: u32| halves(a, b, |x, y| if MAX { x.max(y) } else { x.min(y) })))
        });
    }
    let ty = f.ty()?;
    if is_float(ty) {
        return float::extreme::<MAX>(f, ty);
    }
    sources(f, ty, 2)?;
    let relu = f.flag("relu");
    Ok(match (ty, relu) {
        (Ty::S32, true) => binary(|a: i32, b: i32| if MAX { a.max(b).max(0) } else { a.min(b).max(0) }),
        (_, true) => return f.unsupported(".relu takes s32"),
        _ => by_type!(f, ty, binary, |a, b| if MAX { a.max(b) } else { a.min(b) }),
    })
}

#[inline(always)]
fn halves(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

fn dp4a(f: &mut Form<'_, '_>) -> Result<Run> {
    let (a, b) = (f.ty()?, f.ty()?);
    let c = if a.signed() || b.signed() { Ty::S32 } else { Ty::U32 };
    f.dst(c)?;
    f.src(a)?;
    f.src(b)?;
    f.src(c)?;
    let scalar = match (a, b) {
        (Ty::U32, Ty::U32) => rare3(|a: u32, b: u32, c: u32| dot4(a, b, c, |x| x as u8 as i32, |x| x as u8 as i32)),
        (Ty::S32, Ty::S32) => {
            rare3(|a: u32, b: u32, c: u32| dot4(a, b, c, |x| x as u8 as i8 as i32, |x| x as u8 as i8 as i32))
        }
        (Ty::U32, Ty::S32) => {
            rare3(|a: u32, b: u32, c: u32| dot4(a, b, c, |x| x as u8 as i32, |x| x as u8 as i8 as i32))
        }
        (Ty::S32, Ty::U32) => {
            rare3(|a: u32, b: u32, c: u32| dot4(a, b, c, |x| x as u8 as i8 as i32, |x| x as u8 as i32))
        }
        _ => return f.unsupported("u32 and s32 are supported"),
    };
    Ok(f.lane_by_lane(scalar))
}

#[inline(always)]
fn dot4(a: u32, b: u32, c: u32, x: impl Fn(u32) -> i32, y: impl Fn(u32) -> i32) -> u32 {
    (0..4).fold(c, |sum, i| sum.wrapping_add(x(a >> (8 * i)).wrapping_mul(y(b >> (8 * i))) as u32))
}
