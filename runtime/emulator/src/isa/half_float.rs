//! Arithmetic of f16, bf16 and their packed pairs. Each result is exact in f64 or rounded to odd there, then rounded once.

use super::float::extreme32;
use super::integer::sources;
use super::number::{BF16, F16, Format, NAN32, Round, bf16_to_f32, f16_to_f32, odd_sum};
use crate::decode::{Form, Taint, Ty};
use crate::error::Result;
use crate::exec::lanes::{Run, rare1, rare2, rare3};

#[inline(always)]
fn wide<const BF: bool>(bits: u32) -> f64 {
    f64::from(if BF { bf16_to_f32(bits & 0xffff) } else { f16_to_f32(bits & 0xffff) })
}

fn flush<const FTZ: bool, const BF: bool>(bits: u32) -> u32 {
    let exponent = if BF { 0x7f80 } else { 0x7c00 };
    if FTZ && bits & exponent == 0 { bits & 0x8000 } else { bits }
}

/// Rounds, then applies .sat or .relu.
#[inline]
fn narrow<const BF: bool>(x: f64, clamp: Clamp) -> u32 {
    let format: Format = if BF { BF16 } else { F16 };
    let x = match clamp {
        Clamp::None => x,
        Clamp::Sat if x.is_nan() => 0.0,
        Clamp::Sat => x.clamp(0.0, 1.0) + 0.0,
        // A NaN stays one.
        Clamp::Relu => {
            if x <= 0.0 {
                0.0
            } else {
                x
            }
        }
    };
    format.round(x, Round::Nearest, false)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Clamp {
    None,
    Sat,
    Relu,
}

/// The run function of `$body(f64...) -> f64` for one type of the four, with flushing and clamping.
macro_rules! half_op {
    ($f:ident, $ty:ident, $flush:expr, $sat:expr, $op:ident, $n:expr, ($($x:ident),*), $body:expr) => {{
        let relu = $f.flag("relu");
        sources($f, $ty, $n)?;
        if matches!($ty, Ty::F16x2 | Ty::Bf16x2) {
            $f.taint = Taint::Element;
        }
        match (relu, $sat, $flush) {
            (false, false, false) => half_op!(@types $f, $ty, $op, ($($x),*), $body, false, Clamp::None),
            (true, false, false) => half_op!(@types $f, $ty, $op, ($($x),*), $body, false, Clamp::Relu),
            (false, true, false) => half_op!(@types $f, $ty, $op, ($($x),*), $body, false, Clamp::Sat),
            (false, false, true) => half_op!(@types $f, $ty, $op, ($($x),*), $body, true, Clamp::None),
            (true, false, true) => half_op!(@types $f, $ty, $op, ($($x),*), $body, true, Clamp::Relu),
            _ => half_op!(@types $f, $ty, $op, ($($x),*), $body, true, Clamp::Sat),
        }
    }};
    (@types $f:ident, $ty:ident, $op:ident, ($($x:ident),*), $body:expr, $flush:literal, $clamp:expr) => {
        match $ty {
            Ty::F16 => Ok($f.lane_by_lane(half_op!(@one $op, ($($x),*), $body, false, $flush, $clamp))),
            Ty::Bf16 => Ok($f.lane_by_lane(half_op!(@one $op, ($($x),*), $body, true, $flush, $clamp))),
            Ty::F16x2 => Ok($f.lane_by_lane(half_op!(@two $op, ($($x),*), $body, false, $flush, $clamp))),
            Ty::Bf16x2 => Ok($f.lane_by_lane(half_op!(@two $op, ($($x),*), $body, true, $flush, $clamp))),
            other => $f.unsupported(format!("type {other:?} is not supported")),
        }
    };
    (@half ($($x:ident),*), $body:expr, $bf:literal, $flush:literal, $clamp:expr, $shift:literal) => {{
        $(let $x = wide::<$bf>(flush::<$flush, $bf>($x >> $shift & 0xffff));)*
        flush::<$flush, $bf>(narrow::<$bf>($body, $clamp))
    }};
    (@one $op:ident, ($($x:ident),*), $body:expr, $bf:literal, $flush:literal, $clamp:expr) => {
        $op(|$($x: u32),*| half_op!(@half ($($x),*), $body, $bf, $flush, $clamp, 0))
    };
    (@two $op:ident, ($($x:ident),*), $body:expr, $bf:literal, $flush:literal, $clamp:expr) => {
        $op(|$($x: u32),*| {
            half_op!(@half ($($x),*), $body, $bf, $flush, $clamp, 0) | half_op!(@half ($($x),*), $body, $bf, $flush, $clamp, 16) << 16
        })
    };
}

pub(super) fn add(f: &mut Form<'_, '_>, ty: Ty, flushed: bool, sat: bool) -> Result<Run> {
    half_op!(f, ty, flushed, sat, rare2, 2, (a, b), odd_sum(a, b))
}

pub(super) fn sub(f: &mut Form<'_, '_>, ty: Ty, flushed: bool, sat: bool) -> Result<Run> {
    half_op!(f, ty, flushed, sat, rare2, 2, (a, b), odd_sum(a, -b))
}

pub(super) fn mul(f: &mut Form<'_, '_>, ty: Ty, flushed: bool, sat: bool) -> Result<Run> {
    half_op!(f, ty, flushed, sat, rare2, 2, (a, b), a * b)
}

pub(super) fn fma(f: &mut Form<'_, '_>, ty: Ty, flushed: bool, sat: bool) -> Result<Run> {
    half_op!(f, ty, flushed, sat, rare3, 3, (a, b, c), odd_sum(a * b, c))
}

/// ex2, tanh and the like.
pub(super) fn approximate(f: &mut Form<'_, '_>, ty: Ty) -> Result<Run> {
    sources(f, ty, 1)?;
    let name = f.inst.opcode.split('.').next().unwrap_or_default();
    macro_rules! of {
        ($function:expr) => {
            match ty {
                Ty::F16 => rare1(|a: u32| narrow::<false>(($function)(wide::<false>(a)), Clamp::None)),
                Ty::Bf16 => rare1(|a: u32| narrow::<true>(($function)(wide::<true>(a)), Clamp::None)),
                Ty::F16x2 => rare1(|a: u32| {
                    narrow::<false>(($function)(wide::<false>(a)), Clamp::None)
                        | narrow::<false>(($function)(wide::<false>(a >> 16)), Clamp::None) << 16
                }),
                Ty::Bf16x2 => rare1(|a: u32| {
                    narrow::<true>(($function)(wide::<true>(a)), Clamp::None)
                        | narrow::<true>(($function)(wide::<true>(a >> 16)), Clamp::None) << 16
                }),
                other => return f.unsupported(format!("type {other:?} is not supported")),
            }
        };
    }
    if matches!(ty, Ty::F16x2 | Ty::Bf16x2) {
        f.taint = Taint::Element;
    }
    let scalar = match name {
        "ex2" => of!(|x: f64| x.exp2()),
        "tanh" => of!(|x: f64| x.tanh()),
        _ => return f.unsupported(format!("type {ty:?} is not supported")),
    };
    Ok(f.lane_by_lane(scalar))
}

pub(super) fn extreme<const MAX: bool>(
    f: &mut Form<'_, '_>,
    ty: Ty,
    flushed: bool,
    nan: bool,
    xor: bool,
) -> Result<Run> {
    if flushed {
        return f.unsupported(".ftz of 16-bit types is not supported");
    }
    sources(f, ty, 2)?;
    fn one<const MAX: bool, const NAN: bool, const BF: bool, const XOR: bool>(a: u32, b: u32) -> u32 {
        let wide = |x: u32| {
            let x = x & if XOR { 0x7fff } else { 0xffff };
            if BF { bf16_to_f32(x) } else { f16_to_f32(x) }
        };
        let r = extreme32::<MAX, NAN>(wide(a), wide(b));
        if r.to_bits() == NAN32 {
            return 0x7fff;
        }
        let sign = if XOR { (a ^ b) & 0x8000 } else { 0 };
        (if BF { BF16 } else { F16 }).round(r.into(), Round::Nearest, false) | sign
    }
    fn two<const MAX: bool, const NAN: bool, const BF: bool, const XOR: bool>(a: u32, b: u32) -> u32 {
        one::<MAX, NAN, BF, XOR>(a, b) | one::<MAX, NAN, BF, XOR>(a >> 16, b >> 16) << 16
    }
    if matches!(ty, Ty::F16x2 | Ty::Bf16x2) {
        f.taint = Taint::Element;
    }
    macro_rules! of {
        ($of:ident, $bf:literal) => {
            match (nan, xor) {
                (false, false) => rare2($of::<MAX, false, $bf, false>),
                (true, false) => rare2($of::<MAX, true, $bf, false>),
                (false, true) => rare2($of::<MAX, false, $bf, true>),
                (true, true) => rare2($of::<MAX, true, $bf, true>),
            }
        };
    }
    let scalar = match ty {
        Ty::F16 => of!(one, false),
        Ty::Bf16 => of!(one, true),
        Ty::F16x2 => of!(two, false),
        _ => of!(two, true),
    };
    Ok(f.lane_by_lane(scalar))
}

/// neg, or abs: of a number; a NaN becomes the canonical one. The sources are read already.
pub(super) fn sign<const NEGATES: bool>(f: &mut Form<'_, '_>, ty: Ty) -> Result<Run> {
    #[inline(always)]
    fn one<const NEGATES: bool, const BF: bool>(a: u32) -> u32 {
        let infinity = if BF { 0x7f80 } else { 0x7c00 };
        if a & 0x7fff > infinity {
            0x7fff
        } else if NEGATES {
            a & 0xffff ^ 0x8000
        } else {
            a & 0x7fff
        }
    }
    #[inline(always)]
    fn two<const NEGATES: bool, const BF: bool>(a: u32) -> u32 {
        one::<NEGATES, BF>(a) | one::<NEGATES, BF>(a >> 16) << 16
    }
    if matches!(ty, Ty::F16x2 | Ty::Bf16x2) {
        f.taint = Taint::Element;
    }
    let scalar = match ty {
        Ty::F16 => rare1(one::<NEGATES, false>),
        Ty::Bf16 => rare1(one::<NEGATES, true>),
        Ty::F16x2 => rare1(two::<NEGATES, false>),
        _ => rare1(two::<NEGATES, true>),
    };
    Ok(f.lane_by_lane(scalar))
}
