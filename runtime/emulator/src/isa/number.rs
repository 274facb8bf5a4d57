//! IEEE arithmetic where it differs from what Rust's operators do: directed rounding, flushed denormals, canonical NaNs, small formats.

use crate::decode::Form;

/// Rounding of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    Nearest,
    Zero,
    Down,
    Up,
}

/// Takes a rounding modifier.
pub(crate) fn rounding(f: &mut Form<'_, '_>) -> Option<Round> {
    f.choice(&[("rn", Round::Nearest), ("rz", Round::Zero), ("rm", Round::Down), ("rp", Round::Up)])
}

/// The NaN that f32 instructions produce.
pub(crate) const NAN32: u32 = 0x7fff_ffff;

/// Replaces any NaN by the canonical one. By integers, since a compiler may take one NaN for another.
#[inline(always)]
pub(crate) fn canon(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(if bits & 0x7fff_ffff > 0x7f80_0000 { NAN32 } else { bits })
}

/// What an f64 instruction gives: `result`, or the first NaN among its operands in this order, made quiet.
#[inline]
pub(crate) fn pass_nan<const N: usize>(result: f64, operands: [f64; N]) -> f64 {
    if !result.is_nan() {
        return result;
    }
    // An invalid operation on numbers gives the default NaN.
    let bits = operands.into_iter().find(|x| x.is_nan()).map_or(0xfff8 << 48, f64::to_bits);
    f64::from_bits(bits | 1 << 51)
}

/// Flushes a denormal to zero of its sign.
#[inline(always)]
pub(crate) fn ftz(x: f32) -> f32 {
    let bits = x.to_bits();
    if bits & 0x7f80_0000 == 0 { f32::from_bits(bits & 0x8000_0000) } else { x }
}

/// Clamps to [0, 1]; a NaN becomes 0.
#[inline(always)]
pub(crate) fn saturate(x: f32) -> f32 {
    let x = if x > 0.0 { x } else { 0.0 };
    if x < 1.0 { x } else { 1.0 }
}

/// The sum, rounded to odd: rounding it again to a format of at most 51 bits is then exact in every direction.
#[inline]
pub(crate) fn odd_sum(a: f64, b: f64) -> f64 {
    let sum = a + b;
    if !sum.is_finite() {
        return sum;
    }
    let shift = sum - a;
    let error = (a - (sum - shift)) + (b - shift);
    odd(sum, error)
}

/// [`odd_sum`], with the sign that a sum of exactly zero has in this direction.
#[inline]
pub(crate) fn odd_sum_towards(a: f64, b: f64, round: Round) -> f64 {
    let sum = odd_sum(a, b);
    let cancels = sum == 0.0 && a.is_sign_negative() != b.is_sign_negative();
    if cancels && round == Round::Down { -0.0 } else { sum }
}

/// Makes `value`, which stands for `value + error`, odd if the error is not zero.
#[inline]
pub(crate) fn odd(value: f64, error: f64) -> f64 {
    if error == 0.0 || value.to_bits() & 1 == 1 || !value.is_finite() {
        return value;
    }
    let away = (error > 0.0) == (value > 0.0);
    if value == 0.0 {
        return f64::from_bits(1 | if error < 0.0 { 1 << 63 } else { 0 });
    }
    f64::from_bits(if away { value.to_bits() + 1 } else { value.to_bits() - 1 })
}

/// `a / b`, rounded to odd.
pub(crate) fn odd_quotient(a: f64, b: f64) -> f64 {
    let q = a / b;
    if !q.is_finite() || b.is_infinite() {
        return q;
    }
    let rest = (-q).mul_add(b, a);
    odd(q, if (rest < 0.0) == (b < 0.0) { rest.abs() } else { -rest.abs() })
}

/// The square root, rounded to odd.
pub(crate) fn odd_sqrt(a: f64) -> f64 {
    let r = a.sqrt();
    if !r.is_finite() { r } else { odd(r, (-r).mul_add(r, a)) }
}

/// An f64 (exact, or rounded to odd) to f32 in any direction.
pub(crate) fn to_f32(x: f64, round: Round) -> f32 {
    let nearest = x as f32;
    let back = f64::from(nearest);
    if back == x || nearest.is_nan() || round == Round::Nearest {
        return if nearest.is_infinite() && x.is_finite() { overflow(x, round) } else { nearest };
    }
    if nearest.is_infinite() && x.is_finite() {
        return overflow(x, round);
    }
    let (below, above) = if back < x { (nearest, nearest.next_up()) } else { (nearest.next_down(), nearest) };
    match round {
        Round::Down => below,
        Round::Up => above,
        _ if x > 0.0 => below,
        _ => above,
    }
}

fn overflow(x: f64, round: Round) -> f32 {
    let largest = match round {
        Round::Nearest => false,
        Round::Zero => true,
        Round::Down => x > 0.0,
        Round::Up => x < 0.0,
    };
    (if largest { f32::MAX } else { f32::INFINITY }).copysign(x as f32)
}

/// A small floating-point format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    pub exponent_bits: u32,
    pub mantissa_bits: u32,
    /// The largest exponent code holds numbers, but for the one NaN (e4m3).
    pub finite_only: bool,
}

pub(crate) const F16: Format = Format { exponent_bits: 5, mantissa_bits: 10, finite_only: false };
pub(crate) const BF16: Format = Format { exponent_bits: 8, mantissa_bits: 7, finite_only: false };
pub(crate) const E4M3: Format = Format { exponent_bits: 4, mantissa_bits: 3, finite_only: true };
pub(crate) const E5M2: Format = Format { exponent_bits: 5, mantissa_bits: 2, finite_only: false };

impl Format {
    fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    fn sign_shift(self) -> u32 {
        self.exponent_bits + self.mantissa_bits
    }

    pub fn nan(self) -> u32 {
        // The all-ones pattern without the sign: 0x7fff, and 0x7f for the 8-bit formats.
        (1 << self.sign_shift()) - 1
    }

    pub fn infinity(self) -> u32 {
        ((1 << self.exponent_bits) - 1) << self.mantissa_bits
    }

    pub fn largest(self) -> u32 {
        if self.finite_only { self.nan() - 1 } else { self.infinity() - 1 }
    }

    /// Rounds a number (exact, or rounded to odd) to the format. With `satfinite`, what is too large becomes the largest number.
    pub fn round(self, x: f64, round: Round, satfinite: bool) -> u32 {
        let sign = u32::from(x.is_sign_negative()) << self.sign_shift();
        if x.is_nan() {
            return self.nan();
        }
        let magnitude = x.abs();
        let overflow = |toward_zero: bool| {
            if satfinite || toward_zero {
                sign | self.largest()
            } else if self.finite_only {
                sign | self.nan()
            } else {
                sign | self.infinity()
            }
        };
        if magnitude.is_infinite() {
            return overflow(false);
        }
        if magnitude == 0.0 {
            return sign;
        }
        let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(1 - self.bias());
        // In units of the last place; exact, for it only moves the exponent (f64 denormals are far below any format's).
        let scaled = magnitude * 2f64.powi(self.mantissa_bits as i32 - exponent);
        let floor = scaled.floor();
        let fraction = scaled - floor;
        let up = match round {
            Round::Nearest => fraction > 0.5 || fraction == 0.5 && floor as u64 % 2 == 1,
            Round::Zero => false,
            Round::Down => sign != 0 && fraction > 0.0,
            Round::Up => sign == 0 && fraction > 0.0,
        };
        let units = floor as u64 + u64::from(up);
        // A carry out of the mantissa moves to the next exponent by itself in this encoding.
        let base = ((exponent + self.bias() - 1) as u64) << self.mantissa_bits;
        let bits = if exponent == 1 - self.bias() { units } else { base + units };
        if bits > u64::from(self.largest()) {
            return overflow(matches!((round, sign != 0), (Round::Zero, _) | (Round::Down, false) | (Round::Up, true)));
        }
        sign | bits as u32
    }

    /// The number that the bits stand for.
    #[inline]
    pub fn value(self, bits: u32) -> f64 {
        let exponent = bits >> self.mantissa_bits & ((1 << self.exponent_bits) - 1);
        let mantissa = bits & ((1 << self.mantissa_bits) - 1);
        let top = (1 << self.exponent_bits) - 1;
        let magnitude = if self.finite_only && bits & self.nan() == self.nan()
            || !self.finite_only && exponent == top && mantissa != 0
        {
            f64::NAN
        } else if !self.finite_only && exponent == top {
            f64::INFINITY
        } else {
            let leading = u32::from(exponent != 0) << self.mantissa_bits;
            f64::from(leading + mantissa)
                * 2f64.powi((exponent.max(1)) as i32 - self.bias() - self.mantissa_bits as i32)
        };
        if bits >> self.sign_shift() & 1 != 0 { -magnitude } else { magnitude }
    }
}

/// e4m3 to f32, without tables or branches, so that it vectorises.
#[inline(always)]
pub(crate) fn e4m3_to_f32(bits: u32) -> f32 {
    let magnitude = bits & 0x7f;
    // Normal numbers: move exponent and mantissa into place and rebias; denormals: the mantissa counts 2^-9.
    let normal = f32::from_bits((magnitude << 20) + ((127 - 7) << 23));
    let denormal = (magnitude & 7) as i32 as f32 * (1.0 / 512.0);
    let value = if magnitude >= 8 { normal } else { denormal };
    let value = if magnitude == 0x7f { f32::from_bits(NAN32) } else { value };
    f32::from_bits(value.to_bits() | (bits & 0x80) << 24)
}

/// e5m2 to f32.
#[inline(always)]
pub(crate) fn e5m2_to_f32(bits: u32) -> f32 {
    f16_to_f32((bits & 0xff) << 8)
}

/// f16 to f32, without branches.
#[inline(always)]
pub(crate) fn f16_to_f32(bits: u32) -> f32 {
    let magnitude = bits & 0x7fff;
    let normal = f32::from_bits((magnitude << 13) + ((127 - 15) << 23));
    let denormal = magnitude as i32 as f32 * (1.0 / 16_777_216.0);
    let special = f32::from_bits(0x7f80_0000 | (magnitude & 0x3ff) << 13);
    let value = if magnitude >= 0x400 { normal } else { denormal };
    let value = if magnitude >= 0x7c00 { special } else { value };
    f32::from_bits(value.to_bits() | (bits & 0x8000) << 16)
}

/// bf16 to f32.
#[inline(always)]
pub(crate) fn bf16_to_f32(bits: u32) -> f32 {
    f32::from_bits(bits << 16)
}

/// f32 to bf16, to nearest even, without branches.
#[inline(always)]
pub(crate) fn f32_to_bf16(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = (bits.wrapping_add(0x7fff + (bits >> 16 & 1))) >> 16;
    if x.is_nan() { 0x7fff } else { rounded }
}

/// f32 to f16, to nearest even.
#[inline]
pub(crate) fn f32_to_f16(x: f32) -> u32 {
    F16.round(x.into(), Round::Nearest, false)
}
