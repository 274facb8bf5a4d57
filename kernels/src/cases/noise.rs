//! Random data by position: element `i` of stream `seed` is a pure function of both, so any part can be made alone,
//! in any order, on any number of threads.

/// A stream of random numbers, addressed by index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise(u64);

impl Noise {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        Noise(mix(seed ^ 0x6c61_7468_655f_6e6f))
    }

    /// An independent stream for one part of the data.
    pub fn stream(self, index: u64) -> Self {
        Noise(mix(self.0.wrapping_add(mix(index))))
    }

    /// 64 random bits.
    pub fn bits(self, index: u64) -> u64 {
        mix(self.0 ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A number in `0..n`.
    pub fn below(self, index: u64, n: u64) -> u64 {
        ((u128::from(self.bits(index)) * u128::from(n)) >> 64) as u64
    }

    /// A bell-shaped number of mean 0 and variance 1, between -3.5 and 3.5, never 0: four uniform ones, added.
    pub fn bell(self, index: u64) -> f32 {
        let bits = self.bits(index);
        let sum: u32 = (0..4).map(|part| (bits >> (16 * part)) as u16 as u32).sum();
        // Half a step off centre, so that the sum is never exactly 0.
        ((f64::from(sum) + 0.5) / 65_536.0 - 2.0) as f32 * 3f32.sqrt()
    }

    /// Shuffles in place.
    pub fn shuffle<T>(self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64, i as u64 + 1) as usize);
        }
    }
}

/// The finaliser of splitmix64.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bell_is_centred_of_unit_variance_and_never_zero() {
        let noise = Noise::new(3);
        let values: Vec<f64> = (0..20_000).map(|i| f64::from(noise.bell(i))).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
        assert!(values.iter().all(|v| *v != 0.0 && v.abs() < 3.5));
    }

    #[test]
    fn streams_repeat_and_differ() {
        assert_eq!(Noise::new(7).stream(1).bits(5), Noise::new(7).stream(1).bits(5));
        assert_ne!(Noise::new(7).stream(1).bits(5), Noise::new(7).stream(2).bits(5));
        assert_ne!(Noise::new(7).bits(5), Noise::new(8).bits(5));
    }

    #[test]
    fn shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Noise::new(1).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
