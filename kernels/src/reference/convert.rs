//! bf16 and e4m3, decoded to f64 and encoded with round-to-nearest-even.

use std::sync::LazyLock;

/// The value of a bf16 bit pattern: the upper half of an f32.
pub fn bf16_to_f64(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 16))
}

/// The bf16 nearest to `x`, ties to even, overflow to infinity; NaN becomes `0x7fff`.
pub fn f64_to_bf16(x: f64) -> u16 {
    nearest(x, Format::BF16, 0x7f7f, 0x7f80, 0x7fff) as u16
}

/// The value of an e4m3 bit pattern: no infinities, `0x7f` and `0xff` are NaN, the largest finite value is 448.
pub fn e4m3_to_f64(bits: u8) -> f64 {
    static VALUES: LazyLock<[f64; 256]> = LazyLock::new(|| std::array::from_fn(|bits| e4m3_value(bits as u32)));
    VALUES[usize::from(bits)]
}

/// The e4m3 nearest to `x`, ties to even, saturating at 448 (infinities included); NaN becomes `0x7f`.
pub fn f64_to_e4m3(x: f64) -> u8 {
    nearest(x, Format::E4M3, 0x7e, 0x7e, 0x7f) as u8
}

/// A sign bit, `exponent_bits`, `mantissa_bits`.
#[derive(Clone, Copy)]
struct Format {
    exponent_bits: u32,
    mantissa_bits: u32,
}

impl Format {
    const BF16: Format = Format { exponent_bits: 8, mantissa_bits: 7 };
    const E4M3: Format = Format { exponent_bits: 4, mantissa_bits: 3 };

    fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    fn sign_mask(self) -> u32 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }
}

/// Sign, 4 exponent bits, 3 mantissa bits; exponent 0 is subnormal, all ones is NaN.
fn e4m3_value(bits: u32) -> f64 {
    let (exponent, mantissa) = (bits >> 3 & 15, bits & 7);
    let unsigned = match (exponent, mantissa) {
        (15, 7) => f64::NAN,
        (0, _) => f64::from(mantissa) * power_of_two(-9),
        _ => f64::from(8 + mantissa) * power_of_two(exponent as i32 - 10),
    };
    if bits & 0x80 != 0 { -unsigned } else { unsigned }
}

/// Rounds `x` to the format: `largest` is the largest finite pattern, `overflow` what lies beyond it becomes.
fn nearest(x: f64, format: Format, largest: u32, overflow: u32, nan: u32) -> u32 {
    if x.is_nan() {
        return nan;
    }
    let sign = if x.is_sign_negative() { format.sign_mask() } else { 0 };
    let magnitude = x.abs();
    // The unit in the last place at x: the exponent of x, but never below the smallest normal's.
    let exponent = if magnitude < power_of_two(1 - format.bias()) {
        1 - format.bias()
    } else {
        ((magnitude.to_bits() >> 52) as i32) - 1023
    };
    let unit = power_of_two((exponent - format.mantissa_bits as i32).max(-1000));
    let steps = (magnitude / unit).round_ties_even();
    // Patterns of one sign count upwards, so a carry into the next binade is an ordinary increment.
    let below = ((exponent + format.bias() - 1) as f64) * f64::from(1u32 << format.mantissa_bits);
    let pattern = below + steps;
    sign | if pattern > f64::from(largest) { overflow } else { pattern as u32 }
}

fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bf16_decodes_as_half_does() {
        for bits in 0..=u16::MAX {
            let ours = bf16_to_f64(bits);
            let theirs = half::bf16::from_bits(bits).to_f64();
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:#06x}");
        }
    }

    #[test]
    fn every_finite_bf16_and_the_ties_beside_it_encode_as_half_does() {
        for bits in 0..=u16::MAX {
            let value = bf16_to_f64(bits);
            if value.is_nan() {
                assert_eq!(f64_to_bf16(value), 0x7fff);
                continue;
            }
            assert_eq!(f64_to_bf16(value), bits, "{value}");
            let next = bf16_to_f64(bits.wrapping_add(1));
            if next.is_finite() && value.is_finite() {
                let middle = (value + next) / 2.0;
                for x in [middle, (value + middle) / 2.0, (middle + next) / 2.0] {
                    assert_eq!(f64_to_bf16(x), half::bf16::from_f64(x).to_bits(), "{x:e}");
                }
            }
        }
    }

    #[test]
    fn bf16_overflows_to_infinity_past_the_last_tie() {
        let largest = bf16_to_f64(0x7f7f);
        let step = largest - bf16_to_f64(0x7f7e);
        assert_eq!(f64_to_bf16(largest + step * 0.499), 0x7f7f);
        assert_eq!(f64_to_bf16(largest + step * 0.5), 0x7f80);
        assert_eq!(f64_to_bf16(f64::NEG_INFINITY), 0xff80);
    }

    /// The positive half of the e4m3 table of the OCP 8-bit floating point specification, by binade.
    const E4M3_BINADES: [(f64, f64); 16] = [
        (0.0, 0.001953125),
        (0.015625, 0.001953125),
        (0.03125, 0.00390625),
        (0.0625, 0.0078125),
        (0.125, 0.015625),
        (0.25, 0.03125),
        (0.5, 0.0625),
        (1.0, 0.125),
        (2.0, 0.25),
        (4.0, 0.5),
        (8.0, 1.0),
        (16.0, 2.0),
        (32.0, 4.0),
        (64.0, 8.0),
        (128.0, 16.0),
        (256.0, 32.0),
    ];

    #[test]
    fn every_e4m3_decodes_as_the_table_says_and_encodes_back() {
        for bits in 0..=u8::MAX {
            let (first, step) = E4M3_BINADES[usize::from(bits >> 3 & 15)];
            let value = e4m3_to_f64(bits);
            if bits & 0x7f == 0x7f {
                assert!(value.is_nan());
                assert_eq!(f64_to_e4m3(value), 0x7f);
                continue;
            }
            let unsigned = first + step * f64::from(bits & 7);
            let expected = if bits & 0x80 != 0 { -unsigned } else { unsigned };
            assert_eq!(value.to_bits(), expected.to_bits(), "{bits:#04x}");
            assert_eq!(f64_to_e4m3(value), bits, "{value}");
        }
    }

    #[test]
    fn e4m3_rounds_to_nearest_with_ties_to_the_even_pattern() {
        for bits in 0..0x7e_u8 {
            let (low, high) = (e4m3_to_f64(bits), e4m3_to_f64(bits + 1));
            let middle = (low + high) / 2.0;
            let even = if bits % 2 == 0 { bits } else { bits + 1 };
            assert_eq!(f64_to_e4m3(middle), even);
            assert_eq!(f64_to_e4m3((low + middle) / 2.0), bits);
            assert_eq!(f64_to_e4m3(-(middle + high) / 2.0), (bits + 1) | 0x80);
        }
    }

    #[test]
    fn e4m3_saturates() {
        for x in [448.1, 464.0, 480.0, 1e30, f64::INFINITY] {
            assert_eq!(f64_to_e4m3(x), 0x7e);
            assert_eq!(f64_to_e4m3(-x), 0xfe);
        }
    }
}
