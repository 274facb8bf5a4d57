//! How far a kernel may be from the f64 reference.
//!
//! Three checks stand side by side, since each misses what another sees: [`calc_diff`] over the whole output, the
//! same per row (one wrong key in a large batch does not move the whole-output figure), and a bound per element.
//!
//! # The per-element constant
//!
//! `|x - reference| <= c * kscale * sum over h of |w_h| * sum over d of |q_hd * k_d|`, where `c` counts roundings.
//! With u = 2^-24, the unit roundoff of fp32:
//!
//! - products of two bf16 (8-bit significands) or two e4m3 (4-bit) are exact in fp32;
//! - a dot of 128 is 8 dependent `m16n8k16` accumulations (e4m3: 4 of `m16n8k32`, or 8 of k16 where fp8 runs as
//!   f16). Tensor cores truncate when they normalise, so each costs up to 2u of the running sum: 16u;
//! - a key's 64 heads are spread over 4 lanes, 16 heads each in 2 running sums of 8 `fma`: 8u; the sums of a lane
//!   and of the 4 lanes are joined by 3 additions: 3u;
//! - fp8: one multiplication by the slot's scale: 1u.
//!
//! That is 27u = 1.6e-6 for bf16 and 28u = 1.7e-6 for fp8 ([`C_MMA_BF16`], [`C_MMA_FP8`]). Fewer heads take fewer
//! roundings, so one constant serves all. `wgmma` on e4m3 (sm_90) keeps about 13 bits of each partial sum; every
//! peer has that error, 1.4e-4 ([`C_WGMMA_FP8`]).

/// Unit roundoff of fp32 with rounding to nearest: 2^-24.
pub const U: f64 = 1.0 / (1u64 << 24) as f64;

/// The per-element constant of `mma.sync` on bf16.
pub const C_MMA_BF16: f64 = 27.0 * U;

/// The per-element constant of `mma.sync` on e4m3: sm_120.
pub const C_MMA_FP8: f64 = 28.0 * U;

/// The per-element constant of `wgmma` on e4m3 (sm_90a), which accumulates short: the fp8 logits there are held to it on
/// every backend, though the emulator sums in full f32.
pub const C_WGMMA_FP8: f64 = 1.4e-4;

/// The constant of the fused store, on the magnitude that its transform adds up.
///
/// In units of u: the mean square is a sum of 128 (a tree of 7 levels after the squares, 8u, halved by the root),
/// the root's reciprocal 4u (2 ulp where it is approximate), two products 2u, a rotation 2u, the transform's 7
/// levels 7u, its factor 1u: 20u, and 4u for the values that the factors 128^-0.5 and eps themselves round to.
pub const C_FUSED: f64 = 24.0 * U;

/// Largest accepted [`calc_diff`] against the reference on the same (quantised) inputs: whole output and each row.
pub const MAX_DIFF: f64 = 5e-6;

/// Sums of [`calc_diff`], gathered element by element.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Diff {
    cross: f64,
    squares: f64,
    allowed: f64,
}

impl Diff {
    /// Adds the pair (`x`, `reference`).
    pub fn add(&mut self, x: f64, reference: f64) {
        self.cross += x * reference;
        self.squares += x * x + reference * reference;
    }

    /// Notes that the pair added last may differ by `bound`.
    pub fn allow(&mut self, bound: f64) {
        self.allowed += bound * bound;
    }

    /// The largest accepted [`value`](Self::value): [`MAX_DIFF`], or what it comes to if every pair differs by all that it
    /// may. Only `wgmma`'s short sums need the latter, in a short row whose terms cancel.
    pub fn limit(self) -> f64 {
        if self.squares == 0.0 { MAX_DIFF } else { MAX_DIFF.max(self.allowed / self.squares) }
    }

    /// Adds everything that `other` holds.
    pub fn merge(&mut self, other: Diff) {
        self.cross += other.cross;
        self.squares += other.squares;
        self.allowed += other.allowed;
    }

    /// `1 - 2 * sum(x * y) / sum(x^2 + y^2)`; 0 when both sides are all zero.
    pub fn value(self) -> f64 {
        if self.squares == 0.0 { 0.0 } else { 1.0 - 2.0 * self.cross / self.squares }
    }
}

/// `1 - 2 * sum(x * y) / sum(x^2 + y^2)`: 0 for equal vectors, 1 for orthogonal ones, 2 for opposite ones.
pub fn calc_diff(x: &[f64], reference: &[f64]) -> f64 {
    let mut diff = Diff::default();
    for (&x, &y) in x.iter().zip(reference) {
        diff.add(x, y);
    }
    diff.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_vectors_differ_by_nothing_and_opposite_ones_by_two() {
        let x = [1.0, -2.0, 3.5];
        assert!(calc_diff(&x, &x).abs() < 1e-15);
        assert!((calc_diff(&x, &x.map(|v| -v)) - 2.0).abs() < 1e-15);
        assert_eq!(calc_diff(&[0.0; 3], &[0.0; 3]), 0.0);
        assert_eq!(calc_diff(&[0.0; 3], &x), 1.0);
    }

    #[test]
    fn a_row_whose_terms_cancel_may_differ_by_what_its_elements_may() {
        let diff = |bound: f64| {
            let mut diff = Diff::default();
            diff.add(1.01, 1.0);
            diff.allow(bound);
            diff
        };
        assert!(diff(0.0).value() > diff(0.0).limit());
        assert!(diff(0.009).value() > diff(0.009).limit());
        assert!(diff(0.0101).value() <= diff(0.0101).limit());
        assert_eq!(diff(1e-6).limit(), MAX_DIFF);
    }

    #[test]
    fn a_nan_is_never_within_the_bound() {
        let within = calc_diff(&[1.0, f64::NAN], &[1.0, 2.0]) < MAX_DIFF;
        assert!(!within);
    }
}
