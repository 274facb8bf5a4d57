//! Whole-warp operations. A register is a row of 32 lanes; an operation is a closure on one lane, compiled twice: for the
//! baseline of the target and for AVX2 with FMA, chosen once when the kernel is decoded.

use std::ptr::NonNull;

use bytemuck::{Pod, Zeroable};

use super::{Cx, Flow};
use crate::decode::Inst;

/// Lanes in a warp.
pub(crate) const LANES: usize = 32;
/// All 32 lanes.
pub(crate) const FULL: u32 = !0;

/// 32 lanes of 32 bits. A 64-bit register takes two rows and is then 32 `u64`s in a row; a 16-bit one sits in the low half of each lane.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Row(pub [u32; LANES]);

/// What an instruction executes.
///
/// # Safety
/// The function may have been compiled for AVX2, FMA and F16C: [`pick`] gives such a function out only after detecting them.
pub(crate) type Run = unsafe fn(&mut Cx<'_>, &Inst) -> Flow;

/// A value of one lane.
pub(crate) trait Lane: Copy + Default {
    fn read(rows: &[Row], slot: u16) -> [Self; LANES];
    fn write(rows: &mut [Row], slot: u16, values: &[Self; LANES], mask: u32);
}

macro_rules! lane32 {
    ($($t:ty: $from:expr, $to:expr;)*) => {$(
        impl Lane for $t {
            #[inline(always)]
            fn read(rows: &[Row], slot: u16) -> [Self; LANES] {
                let row = &rows[slot as usize].0;
                let from = $from;
                let mut out = [<$t>::default(); LANES];
                for i in 0..LANES {
                    out[i] = from(row[i]);
                }
                out
            }
            #[inline(always)]
            fn write(rows: &mut [Row], slot: u16, values: &[Self; LANES], mask: u32) {
                let row = &mut rows[slot as usize].0;
                let to = $to;
                if mask == FULL {
                    for i in 0..LANES {
                        row[i] = to(values[i]);
                    }
                } else {
                    for i in 0..LANES {
                        row[i] = if mask >> i & 1 != 0 { to(values[i]) } else { row[i] };
                    }
                }
            }
        }
    )*};
}

lane32! {
    u32: |x: u32| x, |x: u32| x;
    i32: |x: u32| x as i32, |x: i32| x as u32;
    f32: f32::from_bits, f32::to_bits;
    u16: |x: u32| x as u16, |x: u16| x as u32;
    i16: |x: u32| x as i16, |x: i16| x as u32;
}

macro_rules! lane64 {
    ($($t:ty: $from:expr, $to:expr;)*) => {$(
        impl Lane for $t {
            #[inline(always)]
            fn read(rows: &[Row], slot: u16) -> [Self; LANES] {
                let words: &[u64] = bytemuck::cast_slice(&rows[slot as usize..slot as usize + 2]);
                let from = $from;
                let mut out = [<$t>::default(); LANES];
                for i in 0..LANES {
                    out[i] = from(words[i]);
                }
                out
            }
            #[inline(always)]
            fn write(rows: &mut [Row], slot: u16, values: &[Self; LANES], mask: u32) {
                let words: &mut [u64] = bytemuck::cast_slice_mut(&mut rows[slot as usize..slot as usize + 2]);
                let to = $to;
                if mask == FULL {
                    for i in 0..LANES {
                        words[i] = to(values[i]);
                    }
                } else {
                    for i in 0..LANES {
                        words[i] = if mask >> i & 1 != 0 { to(values[i]) } else { words[i] };
                    }
                }
            }
        }
    )*};
}

lane64! {
    u64: |x: u64| x, |x: u64| x;
    i64: |x: u64| x as i64, |x: i64| x as u64;
    f64: f64::from_bits, f64::to_bits;
}

impl Lane for u128 {
    fn read(rows: &[Row], slot: u16) -> [Self; LANES] {
        let words: &[u64] = bytemuck::cast_slice(&rows[slot as usize..slot as usize + 4]);
        std::array::from_fn(|i| u128::from(words[2 * i]) | u128::from(words[2 * i + 1]) << 64)
    }
    fn write(rows: &mut [Row], slot: u16, values: &[Self; LANES], mask: u32) {
        let words: &mut [u64] = bytemuck::cast_slice_mut(&mut rows[slot as usize..slot as usize + 4]);
        for i in (0..LANES).filter(|i| mask >> i & 1 != 0) {
            words[2 * i] = values[i] as u64;
            words[2 * i + 1] = (values[i] >> 64) as u64;
        }
    }
}

/// The closure itself, out of nothing: closures without captures have no bytes.
#[inline(always)]
fn conjure<F: Copy>() -> F {
    const { assert!(size_of::<F>() == 0, "an operation's closure must not capture") };
    // SAFETY: F has no bytes, so reading one from an aligned dangling pointer reads nothing; a value of F exists, since the
    // caller had one when it chose this monomorphisation, and F is Copy.
    unsafe { NonNull::<F>::dangling().read() }
}

/// Chooses between the two compilations of an operation.
fn pick(base: Run, fast: Run) -> Run {
    if fast_available() { fast } else { base }
}

/// Whether the functions compiled for AVX2, FMA and F16C may run here.
#[cfg(target_arch = "x86_64")]
fn fast_available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

#[cfg(not(target_arch = "x86_64"))]
fn fast_available() -> bool {
    false
}

/// Defines `$name(closure) -> Run` from an always-inlined body.
macro_rules! operation {
    ($(#[$doc:meta])* $name:ident<$($t:ident),*>($($arg:ty),*) -> $out:ty, $body:ident) => {
        $(#[$doc])*
        pub(crate) fn $name<$($t: Lane + 'static,)* F: Fn($($arg),*) -> $out + Copy + 'static>(_: F) -> Run {
            unsafe fn base<$($t: Lane + 'static,)* F: Fn($($arg),*) -> $out + Copy + 'static>(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
                $body::<$($t,)* F>(cx, inst, conjure())
            }
            #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"))]
            unsafe fn fast<$($t: Lane + 'static,)* F: Fn($($arg),*) -> $out + Copy + 'static>(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
                $body::<$($t,)* F>(cx, inst, conjure())
            }
            pick(base::<$($t,)* F>, fast::<$($t,)* F>)
        }
    };
}

operation! {
    /// `d = f(a)`
    unary<D, A>(A) -> D, unary_body
}
operation! {
    /// `d = f(a, b)`
    binary<D, A, B>(A, B) -> D, binary_body
}
operation! {
    /// `d = f(a, b, c)`
    ternary<D, A, B, C>(A, B, C) -> D, ternary_body
}
operation! {
    /// `p = f(a, b)`: a predicate.
    compare<A, B>(A, B) -> bool, compare_body
}
operation! {
    /// `d = f(a, b, p)`: the last operand is a predicate.
    select<D, A, B>(A, B, bool) -> D, select_body
}

#[inline(always)]
fn unary_body<D: Lane, A: Lane, F: Fn(A) -> D>(cx: &mut Cx<'_>, inst: &Inst, f: F) -> Flow {
    let rows = &mut cx.warp.rows;
    let a = A::read(rows, inst.ops[1]);
    let mut d = [D::default(); LANES];
    for i in 0..LANES {
        d[i] = f(a[i]);
    }
    D::write(rows, inst.ops[0], &d, cx.mask);
    Flow::Next
}

#[inline(always)]
fn binary_body<D: Lane, A: Lane, B: Lane, F: Fn(A, B) -> D>(cx: &mut Cx<'_>, inst: &Inst, f: F) -> Flow {
    let rows = &mut cx.warp.rows;
    let (a, b) = (A::read(rows, inst.ops[1]), B::read(rows, inst.ops[2]));
    let mut d = [D::default(); LANES];
    for i in 0..LANES {
        d[i] = f(a[i], b[i]);
    }
    D::write(rows, inst.ops[0], &d, cx.mask);
    Flow::Next
}

#[inline(always)]
fn ternary_body<D: Lane, A: Lane, B: Lane, C: Lane, F: Fn(A, B, C) -> D>(cx: &mut Cx<'_>, inst: &Inst, f: F) -> Flow {
    let rows = &mut cx.warp.rows;
    let (a, b, c) = (A::read(rows, inst.ops[1]), B::read(rows, inst.ops[2]), C::read(rows, inst.ops[3]));
    let mut d = [D::default(); LANES];
    for i in 0..LANES {
        d[i] = f(a[i], b[i], c[i]);
    }
    D::write(rows, inst.ops[0], &d, cx.mask);
    Flow::Next
}

#[inline(always)]
fn compare_body<A: Lane, B: Lane, F: Fn(A, B) -> bool>(cx: &mut Cx<'_>, inst: &Inst, f: F) -> Flow {
    let (a, b) = (A::read(&cx.warp.rows, inst.ops[2]), B::read(&cx.warp.rows, inst.ops[3]));
    let mut bits = [0u32; LANES];
    for i in 0..LANES {
        bits[i] = u32::from(f(a[i], b[i])) << i;
    }
    let result = bits.iter().fold(0, |m, b| m | b);
    cx.set_compared(inst, result);
    Flow::Next
}

#[inline(always)]
fn select_body<D: Lane, A: Lane, B: Lane, F: Fn(A, B, bool) -> D>(cx: &mut Cx<'_>, inst: &Inst, f: F) -> Flow {
    let p = cx.warp.preds[inst.ops[3] as usize] ^ inst.negate(3);
    let rows = &mut cx.warp.rows;
    let (a, b) = (A::read(rows, inst.ops[1]), B::read(rows, inst.ops[2]));
    let mut d = [D::default(); LANES];
    for i in 0..LANES {
        d[i] = f(a[i], b[i], p >> i & 1 != 0);
    }
    D::write(rows, inst.ops[0], &d, cx.mask);
    Flow::Next
}

/// For operations that are written out for the whole warp: compiles `$body` twice, as the closures above are.
macro_rules! whole_warp {
    ($(#[$doc:meta])* $vis:vis $name:ident, $body:ident) => {
        $(#[$doc])*
        $vis fn $name() -> crate::exec::lanes::Run {
            unsafe fn base(cx: &mut crate::exec::Cx<'_>, inst: &crate::decode::Inst) -> crate::exec::Flow {
                $body(cx, inst)
            }
            #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"))]
            unsafe fn fast(cx: &mut crate::exec::Cx<'_>, inst: &crate::decode::Inst) -> crate::exec::Flow {
                $body(cx, inst)
            }
            crate::exec::lanes::choose(base, fast)
        }
    };
}
pub(crate) use whole_warp;

/// See [`pick`]; for `whole_warp!`.
pub(crate) fn choose(base: Run, fast: Run) -> Run {
    pick(base, fast)
}

/// An operation on one lane's values, as bits: for operations that are too rare to be compiled for whole warps.
#[derive(Clone, Copy, Default)]
pub(crate) enum Scalar {
    #[default]
    None,
    One(fn(u64) -> u64),
    Two(fn(u64, u64) -> u64),
    Three(fn(u64, u64, u64) -> u64),
}

/// A value that travels as bits.
pub(crate) trait Bits: Copy {
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
}

macro_rules! bits {
    ($($t:ty: $of:expr, $bits:expr;)*) => {$(
        impl Bits for $t {
            #[inline(always)]
            fn of(bits: u64) -> Self {
                let of = $of;
                of(bits)
            }
            #[inline(always)]
            fn bits(self) -> u64 {
                let bits = $bits;
                bits(self)
            }
        }
    )*};
}

bits! {
    u16: |b: u64| b as u16, |x: u16| x.into();
    i16: |b: u64| b as i16, |x: i16| u64::from(x as u32);
    u32: |b: u64| b as u32, |x: u32| x.into();
    i32: |b: u64| b as i32, |x: i32| u64::from(x as u32);
    f32: |b: u64| f32::from_bits(b as u32), |x: f32| x.to_bits().into();
    u64: |b: u64| b, |x: u64| x;
    i64: |b: u64| b as i64, |x: i64| x as u64;
    f64: f64::from_bits, |x: f64| x.to_bits();
    bool: |b: u64| b != 0, |x: bool| x.into();
}

/// `d = f(a)` or `p = f(a)`, lane by lane.
pub(crate) fn rare1<D: Bits, A: Bits, F: Fn(A) -> D + Copy>(_: F) -> Scalar {
    Scalar::One(|a| conjure::<F>()(A::of(a)).bits())
}

/// `d = f(a, b)`, lane by lane.
pub(crate) fn rare2<D: Bits, A: Bits, B: Bits, F: Fn(A, B) -> D + Copy>(_: F) -> Scalar {
    Scalar::Two(|a, b| conjure::<F>()(A::of(a), B::of(b)).bits())
}

/// `d = f(a, b, c)`, lane by lane.
pub(crate) fn rare3<D: Bits, A: Bits, B: Bits, C: Bits, F: Fn(A, B, C) -> D + Copy>(_: F) -> Scalar {
    Scalar::Three(|a, b, c| conjure::<F>()(A::of(a), B::of(b), C::of(c)).bits())
}

/// Executes [`Inst::scalar`] for each lane.
pub(crate) fn each_lane(cx: &mut Cx<'_>, inst: &Inst) -> Flow {
    // A comparison has two destinations.
    let first = if inst.kinds[1].written { 2 } else { 1 };
    let [a, b, c] = std::array::from_fn(|i| bits_of(cx, inst, first + i));
    let mut out = [0u64; LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        *out = match inst.scalar {
            Scalar::None => 0,
            Scalar::One(f) => f(a[lane]),
            Scalar::Two(f) => f(a[lane], b[lane]),
            Scalar::Three(f) => f(a[lane], b[lane], c[lane]),
        };
    }
    match inst.kinds[0].rows {
        0 => {
            let value = out.iter().enumerate().fold(0, |m, (lane, &bit)| m | (bit as u32) << lane);
            if first == 2 { cx.set_compared(inst, value) } else { cx.set_pred(inst.ops[0], value) }
        }
        1 => u32::write(&mut cx.warp.rows, inst.ops[0], &out.map(|x| x as u32), cx.mask),
        _ => u64::write(&mut cx.warp.rows, inst.ops[0], &out, cx.mask),
    }
    Flow::Next
}

fn bits_of(cx: &Cx<'_>, inst: &Inst, operand: usize) -> [u64; LANES] {
    match inst.kinds[operand].rows {
        _ if operand >= inst.count as usize => [0; LANES],
        1 => u32::read(&cx.warp.rows, inst.ops[operand]).map(u64::from),
        2 => u64::read(&cx.warp.rows, inst.ops[operand]),
        _ => [0; LANES],
    }
}
