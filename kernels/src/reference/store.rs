//! The index-K stores: what bytes a key becomes.
//!
//! The scatters are exact to the byte, so their arithmetic is the contract's fp32 (Rust's `f32` is IEEE, rounded to
//! nearest). The fused store's front end has no prescribed order of summation and is computed in f64.

use super::convert::f64_to_e4m3;
use crate::contract::{HEAD_DIM, ROPE_DIMS};

/// A key in fp8: 128 e4m3 values, to be multiplied by `scale`.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantisedKey {
    /// e4m3 bit patterns.
    pub payload: [u8; HEAD_DIM],
    /// Multiplies the payload.
    pub scale: f32,
}

/// Smallest absolute maximum a scale is computed from, so that a row of zeros has a scale too.
pub const MIN_AMAX: f32 = 1e-4;

/// The scale of a row whose largest absolute value is `amax`.
pub fn scale_of(amax: f32, power_of_two: bool) -> f32 {
    let scale = amax.max(MIN_AMAX) / 448.0;
    if power_of_two { next_power_of_two(scale) } else { scale }
}

/// Quantises one row: `scale = max(1e-4, amax) / 448`, payload = e4m3(x * (1 / scale)), all in fp32.
pub fn quantise(x: &[f32; HEAD_DIM], power_of_two: bool) -> QuantisedKey {
    let amax = x.iter().fold(0.0f32, |amax, x| amax.max(x.abs()));
    let scale = scale_of(amax, power_of_two);
    let inverse = 1.0 / scale;
    QuantisedKey { payload: x.map(|x| f64_to_e4m3(f64::from(x * inverse))), scale }
}

/// `2^ceil(log2(x))` for a normal positive `x`, exactly: the exponent of `x`, one more unless the mantissa is zero.
fn next_power_of_two(x: f32) -> f32 {
    const MANTISSA: u32 = (1 << 23) - 1;
    f32::from_bits((x.to_bits() + MANTISSA) & !MANTISSA)
}

/// What the fused store reads beside the token's row.
#[derive(Clone, Copy, Debug)]
pub struct FusedParams<'a> {
    /// RMSNorm weight, 128 values.
    pub norm_weight: &'a [f32],
    /// RMSNorm epsilon.
    pub eps: f32,
    /// Rotation table `[positions, 64]`: 32 cosines, then 32 sines, for the 32 pairs.
    pub cos_sin: &'a [f32],
}

/// Whether a token of this `seq_len` completes a group of 4, and so stores a key.
pub fn completes_group(seq_len: i32) -> bool {
    seq_len > 0 && seq_len % 4 == 0
}

/// A key before it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct FusedKey {
    /// The 128 values.
    pub values: [f64; HEAD_DIM],
    /// 128^-0.5 times the sum of the magnitudes that the transform adds: the scale of every value's rounding error,
    /// see [`C_FUSED`](super::bounds::C_FUSED).
    pub magnitude: f64,
}

/// RMSNorm, RoPE on the last 64 dims at position `seq_len - 4`, Walsh-Hadamard times 128^-0.5.
///
/// `seq_len` must complete a group (see [`completes_group`]).
pub fn fused_key(x: &[f64; HEAD_DIM], seq_len: i32, params: FusedParams) -> FusedKey {
    let mean_square = x.iter().map(|x| x * x).sum::<f64>() / HEAD_DIM as f64;
    let norm = 1.0 / (mean_square + f64::from(params.eps)).sqrt();
    let mut key = [0.0; HEAD_DIM];
    for d in 0..HEAD_DIM {
        key[d] = x[d] * norm * f64::from(params.norm_weight[d]);
    }

    let pairs = ROPE_DIMS / 2;
    let angles = &params.cos_sin[(seq_len - 4) as usize * ROPE_DIMS..][..ROPE_DIMS];
    for pair in 0..pairs {
        let (cos, sin) = (f64::from(angles[pair]), f64::from(angles[pairs + pair]));
        let at = HEAD_DIM - ROPE_DIMS + 2 * pair;
        let (even, odd) = (key[at], key[at + 1]);
        key[at] = even * cos - odd * sin;
        key[at + 1] = even * sin + odd * cos;
    }

    let mut values = [0.0; HEAD_DIM];
    for (i, out) in values.iter_mut().enumerate() {
        for (j, key) in key.iter().enumerate() {
            *out += if (i & j).count_ones() % 2 == 0 { *key } else { -*key };
        }
        *out *= (HEAD_DIM as f64).powf(-0.5);
    }
    let magnitude = key.iter().map(|x| x.abs()).sum::<f64>() * (HEAD_DIM as f64).powf(-0.5);
    FusedKey { values, magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::convert::e4m3_to_f64;

    #[test]
    fn a_zero_row_stores_zeros_and_the_smallest_scale() {
        let key = quantise(&[0.0; HEAD_DIM], false);
        assert_eq!(key, QuantisedKey { payload: [0; HEAD_DIM], scale: 1e-4 / 448.0 });
    }

    #[test]
    fn the_largest_element_becomes_448_and_the_rest_is_within_half_a_step() {
        let x: [f32; HEAD_DIM] = std::array::from_fn(|d| (d as f32 - 40.0) * 0.37);
        let key = quantise(&x, false);
        assert_eq!(key.payload[127], 0x7e);
        for (x, payload) in x.iter().zip(key.payload) {
            let back = e4m3_to_f64(payload) * f64::from(key.scale);
            let half_step = (f64::from(x.abs()) / 16.0).max(f64::from(key.scale) * 0.001);
            assert!((back - f64::from(*x)).abs() <= half_step, "{x} became {back}");
        }
    }

    #[test]
    fn power_of_two_scales_round_up_and_leave_exact_powers() {
        assert_eq!(next_power_of_two(0.25), 0.25);
        assert_eq!(next_power_of_two(0.250_000_03), 0.5);
        assert_eq!(next_power_of_two(3.0), 4.0);
        for amax in [0.0, 1e-4, 0.3, 1.0, 7.0, 448.0, 449.0, 60_000.0] {
            let (plain, rounded) = (scale_of(amax, false), scale_of(amax, true));
            assert_eq!(rounded.to_bits() & ((1 << 23) - 1), 0);
            assert!(plain <= rounded && rounded < 2.0 * plain, "{amax}: {plain} {rounded}");
        }
    }

    #[test]
    fn only_multiples_of_four_complete_a_group() {
        let stored: Vec<i32> = (-4..10).filter(|&n| completes_group(n)).collect();
        assert_eq!(stored, [4, 8]);
    }

    fn identity_angles(positions: usize) -> Vec<f32> {
        (0..positions).flat_map(|_| [[1.0; 32], [0.0; 32]].concat()).collect()
    }

    #[test]
    fn the_hadamard_transform_of_a_unit_vector_is_a_row_of_signs() {
        let mut x = [0.0; HEAD_DIM];
        x[5] = 1.0;
        let params = FusedParams { norm_weight: &[1.0; HEAD_DIM], eps: 0.0, cos_sin: &identity_angles(1) };
        let key = fused_key(&x, 4, params).values;
        // The norm of a unit vector is sqrt(128), which undoes the 128^-0.5 of the transform.
        for (i, value) in key.iter().enumerate() {
            let sign = if (i & 5).count_ones() % 2 == 0 { 1.0 } else { -1.0 };
            assert!((value - sign).abs() < 1e-12, "{i}: {value}");
        }
    }

    #[test]
    fn rope_turns_the_last_64_dims_in_interleaved_pairs_at_four_before_the_end() {
        let mut cos_sin = identity_angles(5);
        // At position 4 (seq_len 8) pair 3 turns by a quarter: (a, b) becomes (-b, a).
        cos_sin[4 * 64 + 3] = 0.0;
        cos_sin[4 * 64 + 32 + 3] = 1.0;
        let x: [f64; HEAD_DIM] = std::array::from_fn(|d| d as f64 - 60.0);
        let params = FusedParams { norm_weight: &[1.0; HEAD_DIM], eps: 1e-6, cos_sin: &cos_sin };
        let mut turned = x;
        (turned[70], turned[71]) = (-x[71], x[70]);
        let expected = fused_key(&turned, 4, params).values;
        for (got, expected) in fused_key(&x, 8, params).values.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-12);
        }
        assert_ne!(fused_key(&x, 4, params), fused_key(&x, 8, params));
    }
}
