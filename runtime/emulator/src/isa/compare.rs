//! Comparison and selection.
#![allow(clippy::neg_cmp_op_on_partial_ord, reason = "an unordered comparison is the negation of the ordered one")]

use super::number::{bf16_to_f32, f16_to_f32, ftz};
use super::{Row, row};
use crate::decode::{Form, Taint, Ty};
use crate::error::Result;
use crate::exec::lanes::{Run, compare, rare2, rare3, select};
use crate::parse::ast::Operand;

pub(super) const ROWS: &[Row] = &[
    row("setp", "all types, ordered and unordered, p|q, .and .or .xor with a predicate", setp),
    row("set", "eq ne lt le gt ge of 32-bit types and f32, to u32 s32 f32", set),
    row("selp", "b16 b32 b64 and the types of these widths", selp),
    row("slct", "b32 and f32 types by s32 f32", slct),
];

const COMPARISONS: [(&str, Comparison); 18] = [
    ("eq", Comparison::Eq),
    ("ne", Comparison::Ne),
    ("lt", Comparison::Lt),
    ("le", Comparison::Le),
    ("gt", Comparison::Gt),
    ("ge", Comparison::Ge),
    ("lo", Comparison::Lt),
    ("ls", Comparison::Le),
    ("hi", Comparison::Gt),
    ("hs", Comparison::Ge),
    ("equ", Comparison::Equ),
    ("neu", Comparison::Neu),
    ("ltu", Comparison::Ltu),
    ("leu", Comparison::Leu),
    ("gtu", Comparison::Gtu),
    ("geu", Comparison::Geu),
    ("num", Comparison::Num),
    ("nan", Comparison::Nan),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

fn comparison(f: &mut Form<'_, '_>) -> Result<Comparison> {
    match f.choice(&COMPARISONS) {
        Some(c) => Ok(c),
        None => f.unsupported("a comparison such as .lt is required"),
    }
}

/// `$with!(|a, b| condition)` for an integer comparison.
macro_rules! integer_comparison {
    ($f:ident, $comparison:expr, $with:expr, $t:ty) => {
        match $comparison {
            Comparison::Eq => $with(|a: $t, b: $t| a == b),
            Comparison::Ne => $with(|a: $t, b: $t| a != b),
            Comparison::Lt => $with(|a: $t, b: $t| a < b),
            Comparison::Le => $with(|a: $t, b: $t| a <= b),
            Comparison::Gt => $with(|a: $t, b: $t| a > b),
            Comparison::Ge => $with(|a: $t, b: $t| a >= b),
            _ => return $f.unsupported("an unordered comparison takes floating types"),
        }
    };
}

macro_rules! float_comparison {
    ($comparison:expr, $with:expr, $t:ty, $in:expr) => {
        match $comparison {
            Comparison::Eq => $with(|a: $t, b: $t| $in(a) == $in(b)),
            // The ordered "not equal" is false for NaN.
            Comparison::Ne => $with(|a: $t, b: $t| $in(a) < $in(b) || $in(a) > $in(b)),
            Comparison::Lt => $with(|a: $t, b: $t| $in(a) < $in(b)),
            Comparison::Le => $with(|a: $t, b: $t| $in(a) <= $in(b)),
            Comparison::Gt => $with(|a: $t, b: $t| $in(a) > $in(b)),
            Comparison::Ge => $with(|a: $t, b: $t| $in(a) >= $in(b)),
            Comparison::Equ => $with(|a: $t, b: $t| !($in(a) < $in(b) || $in(a) > $in(b))),
            Comparison::Neu => $with(|a: $t, b: $t| $in(a) != $in(b)),
            Comparison::Ltu => $with(|a: $t, b: $t| !($in(a) >= $in(b))),
            Comparison::Leu => $with(|a: $t, b: $t| !($in(a) > $in(b))),
            Comparison::Gtu => $with(|a: $t, b: $t| !($in(a) <= $in(b))),
            Comparison::Geu => $with(|a: $t, b: $t| !($in(a) < $in(b))),
            Comparison::Num => $with(|a: $t, b: $t| !$in(a).is_nan() && !$in(b).is_nan()),
            Comparison::Nan => $with(|a: $t, b: $t| $in(a).is_nan() || $in(b).is_nan()),
        }
    };
}

fn setp(f: &mut Form<'_, '_>) -> Result<Run> {
    let comparison = comparison(f)?;
    let combine = f.choice(&[("and", 1), ("or", 2), ("xor", 3)]);
    let flush = f.flag("ftz");
    let ty = f.ty()?;
    match f.operand()? {
        Operand::Pair(p, q) => {
            f.dst_from(p, Ty::Pred)?;
            f.dst_from(q, Ty::Pred)?;
        }
        single => {
            f.dst_from(single, Ty::Pred)?;
            f.dst_from(&Operand::Sink, Ty::Pred)?;
        }
    }
    f.src(ty)?;
    f.src(ty)?;
    if let Some(combine) = combine {
        f.src(Ty::Pred)?;
        f.aux = combine;
    }
    let scalar = match ty {
        Ty::U32 | Ty::B32 => return Ok(integer_comparison!(f, comparison, compare, u32)),
        Ty::S32 => return Ok(integer_comparison!(f, comparison, compare, i32)),
        Ty::U64 | Ty::B64 => return Ok(integer_comparison!(f, comparison, compare, u64)),
        Ty::S64 => return Ok(integer_comparison!(f, comparison, compare, i64)),
        Ty::F32 if !flush => return Ok(float_comparison!(comparison, compare, f32, |x| x)),
        Ty::U16 | Ty::B16 => integer_comparison!(f, comparison, rare2, u16),
        Ty::S16 => integer_comparison!(f, comparison, rare2, i16),
        Ty::F32 => float_comparison!(comparison, rare2, f32, ftz),
        Ty::F64 => float_comparison!(comparison, rare2, f64, |x| x),
        Ty::F16 => float_comparison!(comparison, rare2, u16, |x: u16| f16_to_f32(x.into())),
        Ty::Bf16 => float_comparison!(comparison, rare2, u16, |x: u16| bf16_to_f32(x.into())),
        _ => return f.unsupported(format!("type {ty:?} is not supported")),
    };
    Ok(f.lane_by_lane(scalar))
}

/// `ne` holds of numbers only: against a NaN it is false.
fn differ<T: PartialOrd>(a: T, b: T) -> bool {
    a.partial_cmp(&b).is_some_and(std::cmp::Ordering::is_ne)
}

fn set(f: &mut Form<'_, '_>) -> Result<Run> {
    let comparison = comparison(f)?;
    let (out, ty) = (f.ty()?, f.ty()?);
    f.dst(out)?;
    f.src(ty)?;
    f.src(ty)?;
    macro_rules! int_mask {
        ($t:ty) => {
            match comparison {
                Comparison::Eq => rare2(|a: $t, b: $t| if a == b { !0u32 } else { 0 }),
                Comparison::Ne => rare2(|a: $t, b: $t| if differ(a, b) { !0u32 } else { 0 }),
                Comparison::Lt => rare2(|a: $t, b: $t| if a < b { !0u32 } else { 0 }),
                Comparison::Le => rare2(|a: $t, b: $t| if a <= b { !0u32 } else { 0 }),
                Comparison::Gt => rare2(|a: $t, b: $t| if a > b { !0u32 } else { 0 }),
                Comparison::Ge => rare2(|a: $t, b: $t| if a >= b { !0u32 } else { 0 }),
                _ => return f.unsupported("this comparison is not supported for set"),
            }
        };
    }
    macro_rules! int_one {
        ($t:ty) => {
            match comparison {
                Comparison::Eq => rare2(|a: $t, b: $t| if a == b { 1f32 } else { 0.0 }),
                Comparison::Ne => rare2(|a: $t, b: $t| if differ(a, b) { 1f32 } else { 0.0 }),
                Comparison::Lt => rare2(|a: $t, b: $t| if a < b { 1f32 } else { 0.0 }),
                Comparison::Le => rare2(|a: $t, b: $t| if a <= b { 1f32 } else { 0.0 }),
                Comparison::Gt => rare2(|a: $t, b: $t| if a > b { 1f32 } else { 0.0 }),
                Comparison::Ge => rare2(|a: $t, b: $t| if a >= b { 1f32 } else { 0.0 }),
                _ => return f.unsupported("this comparison is not supported for set"),
            }
        };
    }
    let scalar = match (out, ty) {
        (Ty::U32 | Ty::S32, Ty::U32 | Ty::B32) => int_mask!(u32),
        (Ty::U32 | Ty::S32, Ty::S32) => int_mask!(i32),
        (Ty::U32 | Ty::S32, Ty::F32) => int_mask!(f32),
        (Ty::F32, Ty::U32 | Ty::B32) => int_one!(u32),
        (Ty::F32, Ty::S32) => int_one!(i32),
        (Ty::F32, Ty::F32) => int_one!(f32),
        _ => return f.unsupported("32-bit types are supported"),
    };
    Ok(f.lane_by_lane(scalar))
}

fn selp(f: &mut Form<'_, '_>) -> Result<Run> {
    let ty = f.ty()?;
    f.dst(ty)?;
    f.src(ty)?;
    f.src(ty)?;
    f.src(Ty::Pred)?;
    f.taint = Taint::Same { control: 1 << 3 };
    Ok(match ty.bytes() {
        2 | 4 => select(|a: u32, b: u32, p: bool| if p { a } else { b }),
        8 => select(|a: u64, b: u64, p: bool| if p { a } else { b }),
        _ => return f.unsupported("16-, 32- and 64-bit types are supported"),
    })
}

fn slct(f: &mut Form<'_, '_>) -> Result<Run> {
    f.ignore(&["ftz"]);
    let (ty, by) = (f.ty()?, f.ty()?);
    f.dst(ty)?;
    f.src(ty)?;
    f.src(ty)?;
    f.src(by)?;
    let scalar = match (ty.bytes(), by) {
        (4, Ty::S32) => rare3(|a: u32, b: u32, c: i32| if c >= 0 { a } else { b }),
        (4, Ty::F32) => rare3(|a: u32, b: u32, c: f32| if c >= 0.0 { a } else { b }),
        (8, Ty::S32) => rare3(|a: u64, b: u64, c: i32| if c >= 0 { a } else { b }),
        (8, Ty::F32) => rare3(|a: u64, b: u64, c: f32| if c >= 0.0 { a } else { b }),
        _ => return f.unsupported("32- and 64-bit types by s32 or f32 are supported"),
    };
    Ok(f.lane_by_lane(scalar))
}
