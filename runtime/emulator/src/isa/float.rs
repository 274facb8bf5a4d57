//! Floating-point arithmetic of f32 and f64; the 16-bit types go to [`half_float`](super::half_float).

use super::integer::sources;
use super::number::{Round, canon, ftz, odd_quotient, odd_sqrt, odd_sum_towards, pass_nan, rounding, saturate, to_f32};
use super::{Row, half_float, row};
use crate::decode::{Form, Ty};
use crate::error::Result;
use crate::exec::lanes::{Run, Scalar, binary, rare1, rare2, rare3, ternary, unary};

pub(super) const ROWS: &[Row] = &[
    row("fma", "f32 f32x2 f64, all roundings of f32, .ftz .sat; f16 bf16 and packed with .relu", fma),
    row("rcp", "f32 .approx .ftz and IEEE; f64 .rn, .approx.ftz", rcp),
    row("sqrt", "f32 .approx .ftz and IEEE; f64 .rn", sqrt),
    row("rsqrt", "f32 f64 .approx .ftz", rsqrt),
    row("sin", "f32 .approx .ftz", sin),
    row("cos", "f32 .approx .ftz", cos),
    row("lg2", "f32 .approx .ftz", lg2),
    row("ex2", "f32 .approx .ftz; f16 bf16 and packed", ex2),
    row("tanh", "f32 .approx; f16 bf16 and packed", tanh),
    row("copysign", "f32 f64", copysign),
    row("testp", "f32 f64", testp),
];

/// Modifiers of f32 arithmetic.
#[derive(Clone, Copy)]
struct Mode {
    round: Round,
    ftz: bool,
    sat: bool,
}

fn mode(f: &mut Form<'_, '_>) -> Mode {
    Mode { round: rounding(f).unwrap_or(Round::Nearest), ftz: f.flag("ftz"), sat: f.flag("sat") }
}

/// The closure over f32 with the modifiers applied: `$exact` computes to nearest, `$odd` to an odd-rounded f64 for the other directions.
macro_rules! f32_op {
    ($f:ident, $mode:expr, $op:ident, $rare:ident, ($($x:ident),*), $exact:expr, $odd:expr) => {{
        // Operands as the instruction sees them, and the result as it leaves.
        macro_rules! directed {
            ($round:expr) => {
                match ($mode.ftz, $mode.sat) {
                    (false, false) => $rare(|$($x: f32),*| canon(to_f32(($odd)($round), $round))),
                    (true, false) => $rare(|$($x: f32),*| { $(let $x = ftz($x);)* canon(ftz(to_f32(($odd)($round), $round))) }),
                    (false, true) => $rare(|$($x: f32),*| saturate(to_f32(($odd)($round), $round))),
                    (true, true) => $rare(|$($x: f32),*| { $(let $x = ftz($x);)* saturate(ftz(to_f32(($odd)($round), $round))) }),
                }
            };
        }
        let scalar = match ($mode.round, $mode.ftz, $mode.sat) {
            (Round::Nearest, false, false) => return Ok($op(|$($x: f32),*| canon($exact))),
            (Round::Nearest, true, false) => return Ok($op(|$($x: f32),*| { $(let $x = ftz($x);)* canon(ftz($exact)) })),
            (Round::Nearest, false, true) => $rare(|$($x: f32),*| saturate($exact)),
            (Round::Nearest, true, true) => $rare(|$($x: f32),*| { $(let $x = ftz($x);)* saturate(ftz($exact)) }),
            (Round::Zero, ..) => directed!(Round::Zero),
            (Round::Down, ..) => directed!(Round::Down),
            (Round::Up, ..) => directed!(Round::Up),
        };
        Ok($f.lane_by_lane(scalar))
    }};
}

fn nearest_only(f: &Form<'_, '_>, mode: Mode) -> Result<()> {
    if mode.round == Round::Nearest { Ok(()) } else { f.unsupported("f64 rounds to nearest (.rn) only") }
}

#[inline(always)]
fn wide(x: f32) -> f64 {
    f64::from(x)
}

/// Two f32 in a 64-bit register.
fn pair(f: &mut Form<'_, '_>, mode: Mode, count: usize, scalar: Scalar) -> Result<Run> {
    if mode.round != Round::Nearest || mode.ftz || mode.sat {
        return f.unsupported("f32x2 rounds to nearest, without .ftz and .sat");
    }
    sources(f, Ty::F32x2, count)?;
    Ok(f.lane_by_lane(scalar))
}

#[inline(always)]
fn both(op: impl Fn(f32, f32, f32) -> f32, a: u64, b: u64, c: u64) -> u64 {
    let one = |shift: u32| {
        let part = |x: u64| f32::from_bits((x >> shift) as u32);
        u64::from(canon(op(part(a), part(b), part(c))).to_bits()) << shift
    };
    one(0) | one(32)
}

pub(super) fn add(f: &mut Form<'_, '_>, ty: Ty) -> Result<Run> {
    let mode = mode(f);
    match ty {
        Ty::F32 => {
            sources(f, ty, 2)?;
            f32_op!(f, mode, binary, rare2, (a, b), a + b, |round| odd_sum_towards(wide(a), wide(b), round))
        }
        Ty::F64 => {
            nearest_only(f, mode)?;
            sources(f, ty, 2)?;
            Ok(f.lane_by_lane(rare2(|a: f64, b: f64| pass_nan(a + b, [b, a]))))
        }
        Ty::F32x2 => pair(f, mode, 2, rare2(|a: u64, b: u64| both(|x, y, _| x + y, a, b, 0))),
        _ => half_float::add(f, ty, mode.ftz, mode.sat),
    }
}

pub(super) fn sub(f: &mut Form<'_, '_>, ty: Ty) -> Result<Run> {
    let mode = mode(f);
    match ty {
        Ty::F32 => {
            sources(f, ty, 2)?;
            f32_op!(f, mode, binary, rare2, (a, b), a - b, |round| odd_sum_towards(wide(a), -wide(b), round))
        }
        Ty::F64 => {
            nearest_only(f, mode)?;
            sources(f, ty, 2)?;
            Ok(f.lane_by_lane(rare2(|a: f64, b: f64| pass_nan(a - b, [b, a]))))
        }
        Ty::F32x2 => pair(f, mode, 2, rare2(|a: u64, b: u64| both(|x, y, _| x - y, a, b, 0))),
        _ => half_float::sub(f, ty, mode.ftz, mode.sat),
    }
}

pub(super) fn mul(f: &mut Form<'_, '_>, ty: Ty) -> Result<Run> {
    let mode = mode(f);
    match ty {
        Ty::F32 => {
            sources(f, ty, 2)?;
            f32_op!(f, mode, binary, rare2, (a, b), a * b, |_| wide(a) * wide(b))
        }
        Ty::F64 => {
            nearest_only(f, mode)?;
            sources(f, ty, 2)?;
            Ok(f.lane_by_lane(rare2(|a: f64, b: f64| pass_nan(a * b, [b, a]))))
        }
        Ty::F32x2 => pair(f, mode, 2, rare2(|a: u64, b: u64| both(|x, y, _| x * y, a, b, 0))),
        _ => half_float::mul(f, ty, mode.ftz, mode.sat),
    }
}

fn fma(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    fma_of(f, ty)
}

/// fma, and mad of floating types.
pub(super) fn fma_of(f: &mut Form<'_, '_>, ty: Ty) -> Result<Run> {
    let mode = mode(f);
    match ty {
        Ty::F32 => {
            sources(f, ty, 3)?;
            f32_op!(f, mode, ternary, rare3, (a, b, c), a.mul_add(b, c), |round| odd_sum_towards(
                wide(a) * wide(b),
                wide(c),
                round
            ))
        }
        Ty::F64 => {
            nearest_only(f, mode)?;
            sources(f, ty, 3)?;
            Ok(f.lane_by_lane(rare3(|a: f64, b: f64, c: f64| pass_nan(a.mul_add(b, c), [b, c, a]))))
        }
        Ty::F32x2 => pair(f, mode, 3, rare3(|a: u64, b: u64, c: u64| both(|x, y, z| x.mul_add(y, z), a, b, c))),
        _ => half_float::fma(f, ty, mode.ftz, mode.sat),
    }
}

pub(super) fn div(f: &mut Form<'_, '_>, ty: Ty) -> Result<Run> {
    let (approximate, full) = (f.flag("approx"), f.flag("full"));
    let mode = mode(f);
    sources(f, ty, 2)?;
    match ty {
        Ty::F32 if approximate && mode.ftz => {
            Ok(f.lane_by_lane(rare2(|a: f32, b: f32| canon(ftz(approximate_quotient(ftz(a), ftz(b)))))))
        }
        Ty::F32 if approximate => Ok(f.lane_by_lane(rare2(|a: f32, b: f32| canon(approximate_quotient(a, b))))),
        Ty::F32 if full && mode.ftz => Ok(f.lane_by_lane(rare2(|a: f32, b: f32| canon(ftz(ftz(a) / ftz(b)))))),
        Ty::F32 => f32_op!(f, mode, binary, rare2, (a, b), a / b, |_| odd_quotient(wide(a), wide(b))),
        Ty::F64 => {
            nearest_only(f, mode)?;
            Ok(f.lane_by_lane(rare2(|a: f64, b: f64| a / b)))
        }
        _ => f.unsupported("f32 and f64 are supported"),
    }
}

/// `div.approx`: a product with a reciprocal that underflows to 0 for the largest divisors.
fn approximate_quotient(a: f32, b: f32) -> f32 {
    // 2^126, and infinity is divided by as usual.
    let large = b.abs() > f32::from_bits(0x7e80_0000) && b.is_finite();
    if large { a * 0f32.copysign(b) } else { a / b }
}

fn rcp(f: &mut Form<'_, '_>) -> Result<Run> {
    f.flag("approx");
    let (mode, ty) = (mode(f), f.ty()?);
    sources(f, ty, 1)?;
    match ty {
        Ty::F32 => f32_op!(f, mode, unary, rare1, (a), 1.0 / a, |_| odd_quotient(1.0, wide(a))),
        Ty::F64 => {
            nearest_only(f, mode)?;
            Ok(f.lane_by_lane(rare1(|a: f64| 1.0 / a)))
        }
        _ => f.unsupported("f32 and f64 are supported"),
    }
}

fn sqrt(f: &mut Form<'_, '_>) -> Result<Run> {
    f.flag("approx");
    let (mode, ty) = (mode(f), f.ty()?);
    sources(f, ty, 1)?;
    match ty {
        Ty::F32 => f32_op!(f, mode, unary, rare1, (a), a.sqrt(), |_| odd_sqrt(wide(a))),
        Ty::F64 => {
            nearest_only(f, mode)?;
            Ok(f.lane_by_lane(rare1(|a: f64| a.sqrt())))
        }
        _ => f.unsupported("f32 and f64 are supported"),
    }
}

/// The functions that hardware approximates; here they are rounded from f64, well inside the documented error.
macro_rules! approximate {
    ($f:ident, $function:expr) => {{
        $f.flag("approx");
        let (flush, ty) = ($f.flag("ftz"), $f.ty()?);
        if ty != Ty::F32 {
            return half_float::approximate($f, ty);
        }
        sources($f, ty, 1)?;
        let scalar = if flush {
            rare1(|a: f32| canon(ftz(($function)(wide(ftz(a))) as f32)))
        } else {
            rare1(|a: f32| canon(($function)(wide(a)) as f32))
        };
        Ok($f.lane_by_lane(scalar))
    }};
}

fn rsqrt(f: &mut Form<'_, '_>) -> Result<Run> {
    f.flag("approx");
    let (flush, ty) = (f.flag("ftz"), f.ty()?);
    sources(f, ty, 1)?;
    match (ty, flush) {
        (Ty::F32, true) => Ok(f.lane_by_lane(rare1(|a: f32| canon(ftz((1.0 / wide(ftz(a)).sqrt()) as f32))))),
        (Ty::F32, false) => Ok(f.lane_by_lane(rare1(|a: f32| canon((1.0 / wide(a).sqrt()) as f32)))),
        (Ty::F64, _) => Ok(f.lane_by_lane(rare1(|a: f64| 1.0 / a.sqrt()))),
        _ => f.unsupported("f32 and f64 are supported"),
    }
}

fn sin(f: &mut Form<'_, '_>) -> Result<Run> {
    approximate!(f, |x: f64| x.sin())
}

fn cos(f: &mut Form<'_, '_>) -> Result<Run> {
    approximate!(f, |x: f64| x.cos())
}

fn lg2(f: &mut Form<'_, '_>) -> Result<Run> {
    approximate!(f, |x: f64| x.log2())
}

fn ex2(f: &mut Form<'_, '_>) -> Result<Run> {
    approximate!(f, |x: f64| x.exp2())
}

fn tanh(f: &mut Form<'_, '_>) -> Result<Run> {
    approximate!(f, |x: f64| x.tanh())
}

pub(super) fn abs(f: &mut Form<'_, '_>, ty: Ty) -> Result<Run> {
    let flush = f.flag("ftz");
    sources(f, ty, 1)?;
    Ok(match (ty, flush) {
        (Ty::F32, true) => f.lane_by_lane(rare1(|a: f32| canon(ftz(a.abs())))),
        (Ty::F32, false) => unary(|a: f32| canon(a.abs())),
        (Ty::F64, _) => f.lane_by_lane(rare1(|a: f64| pass_nan(a.abs(), [a]))),
        _ => return half_float::sign::<false>(f, ty),
    })
}

pub(super) fn neg(f: &mut Form<'_, '_>, ty: Ty) -> Result<Run> {
    let flush = f.flag("ftz");
    sources(f, ty, 1)?;
    Ok(match (ty, flush) {
        (Ty::F32, true) => f.lane_by_lane(rare1(|a: f32| canon(ftz(-a)))),
        (Ty::F32, false) => unary(|a: f32| canon(-a)),
        (Ty::F64, _) => f.lane_by_lane(rare1(|a: f64| pass_nan(-a, [a]))),
        _ => return half_float::sign::<true>(f, ty),
    })
}

/// min and max as PTX has them: a NaN loses against a number (unless `NAN`), and -0 is below +0.
#[inline(always)]
pub(super) fn extreme32<const MAX: bool, const NAN: bool>(a: f32, b: f32) -> f32 {
    let first = if MAX { a > b } else { a < b };
    let picked = if first { a } else { b };
    // Equal values differ in bits only as +0 and -0.
    let equal = f32::from_bits(if MAX { a.to_bits() & b.to_bits() } else { a.to_bits() | b.to_bits() });
    let picked = if a == b { equal } else { picked };
    if NAN {
        if a.is_nan() | b.is_nan() { f32::from_bits(super::number::NAN32) } else { picked }
    } else {
        let picked = if b.is_nan() { a } else { picked };
        canon(picked)
    }
}

#[inline(always)]
fn extreme64<const MAX: bool>(a: f64, b: f64) -> f64 {
    let first = if MAX { a > b } else { a < b };
    let picked = if first { a } else { b };
    let equal = f64::from_bits(if MAX { a.to_bits() & b.to_bits() } else { a.to_bits() | b.to_bits() });
    let picked = if a == b { equal } else { picked };
    pass_nan(
        if b.is_nan() {
            a
        } else if a.is_nan() {
            b
        } else {
            picked
        },
        [b, a],
    )
}

pub(super) fn extreme<const MAX: bool>(f: &mut Form<'_, '_>, ty: Ty) -> Result<Run> {
    let (flush, nan, xor) = (f.flag("ftz"), f.flag("NaN"), f.flag("xorsign") | f.flag("abs"));
    f.flag("abs");
    if !matches!(ty, Ty::F32 | Ty::F64) {
        return half_float::extreme::<MAX>(f, ty, flush, nan, xor);
    }
    let three = f.remaining() == 4;
    sources(f, ty, if three { 3 } else { 2 })?;
    #[inline(always)]
    fn signed(r: f32, a: f32, b: f32) -> f32 {
        if r.is_nan() { r } else { f32::from_bits(r.to_bits() | (a.to_bits() ^ b.to_bits()) & 0x8000_0000) }
    }
    Ok(match (ty, three, nan, flush, xor) {
        (Ty::F64, false, false, false, false) => f.lane_by_lane(rare2(extreme64::<MAX>)),
        (Ty::F32, false, false, false, false) => binary(extreme32::<MAX, false>),
        (Ty::F32, false, true, false, false) => binary(extreme32::<MAX, true>),
        (Ty::F32, false, false, true, false) => binary(|a: f32, b: f32| extreme32::<MAX, false>(ftz(a), ftz(b))),
        (Ty::F32, false, true, true, false) => {
            f.lane_by_lane(rare2(|a: f32, b: f32| extreme32::<MAX, true>(ftz(a), ftz(b))))
        }
        (Ty::F32, false, false, false, true) => {
            f.lane_by_lane(rare2(|a: f32, b: f32| signed(extreme32::<MAX, false>(a.abs(), b.abs()), a, b)))
        }
        (Ty::F32, false, true, false, true) => {
            f.lane_by_lane(rare2(|a: f32, b: f32| signed(extreme32::<MAX, true>(a.abs(), b.abs()), a, b)))
        }
        (Ty::F32, true, false, false, false) => {
            f.lane_by_lane(rare3(|a: f32, b: f32, c: f32| extreme32::<MAX, false>(extreme32::<MAX, false>(a, b), c)))
        }
        (Ty::F32, true, true, false, false) => {
            f.lane_by_lane(rare3(|a: f32, b: f32, c: f32| extreme32::<MAX, true>(extreme32::<MAX, true>(a, b), c)))
        }
        _ => {
            return f.unsupported("this combination of .ftz, .NaN, .xorsign.abs and three inputs is not supported");
        }
    })
}

fn copysign(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    sources(f, ty, 2)?;
    let scalar = match ty {
        // The sign comes from the first operand.
        Ty::F32 => rare2(|a: f32, b: f32| b.copysign(a)),
        Ty::F64 => rare2(|a: f64, b: f64| b.copysign(a)),
        _ => return f.unsupported("f32 and f64 are supported"),
    };
    Ok(f.lane_by_lane(scalar))
}

fn testp(f: &mut Form<'_, '_>) -> Result<Run> {
    let what =
        f.choice(&[("finite", 0), ("infinite", 1), ("number", 2), ("notanumber", 3), ("normal", 4), ("subnormal", 5)]);
    let ty = f.ty()?;
    f.dst(Ty::Pred)?;
    f.src(ty)?;
    let scalar = match (what, ty) {
        (Some(0), Ty::F32) => rare1(|a: f32| a.is_finite()),
        (Some(1), Ty::F32) => rare1(|a: f32| a.is_infinite()),
        (Some(2), Ty::F32) => rare1(|a: f32| !a.is_nan()),
        (Some(3), Ty::F32) => rare1(|a: f32| a.is_nan()),
        // A zero counts as normal.
        (Some(4), Ty::F32) => rare1(|a: f32| a.is_finite() && !a.is_subnormal()),
        (Some(5), Ty::F32) => rare1(|a: f32| a.is_subnormal()),
        (Some(0), Ty::F64) => rare1(|a: f64| a.is_finite()),
        (Some(1), Ty::F64) => rare1(|a: f64| a.is_infinite()),
        (Some(2), Ty::F64) => rare1(|a: f64| !a.is_nan()),
        (Some(3), Ty::F64) => rare1(|a: f64| a.is_nan()),
        (Some(4), Ty::F64) => rare1(|a: f64| a.is_finite() && !a.is_subnormal()),
        (Some(5), Ty::F64) => rare1(|a: f64| a.is_subnormal()),
        _ => return f.unsupported("a test such as .finite of f32 or f64 is required"),
    };
    Ok(f.lane_by_lane(scalar))
}
