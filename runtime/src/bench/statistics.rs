//! Medians and spreads of repeated measurements.

use serde::{Deserialize, Serialize};

/// Repeated measurements of one thing, sorted; at least one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// # Panics
    /// If there are none.
    pub fn new(mut samples: Vec<f64>) -> Samples {
        assert!(!samples.is_empty(), "nothing was measured");
        samples.sort_by(f64::total_cmp);
        Samples(samples)
    }

    /// The middle one.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The smallest value that at least this part of the samples does not exceed.
    pub fn quantile(&self, part: f64) -> f64 {
        let rank = (part * self.0.len() as f64).ceil() as usize;
        self.0[rank.clamp(1, self.0.len()) - 1]
    }

    /// Half the distance between the 10th and the 90th percentile, as a part of the median.
    pub fn spread(&self) -> f64 {
        (self.quantile(0.9) - self.quantile(0.1)) / 2.0 / self.median()
    }

    /// The samples, ascending.
    pub fn sorted(&self) -> &[f64] {
        &self.0
    }
}

/// Two things measured in turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Paired {
    /// Of the first.
    pub first: Samples,
    /// Of the second.
    pub second: Samples,
    /// First over second, pair by pair.
    pub ratio: Samples,
}

impl Paired {
    /// # Panics
    /// If there are none.
    pub fn new(pairs: Vec<(f64, f64)>) -> Paired {
        let samples = |f: fn(&(f64, f64)) -> f64| Samples::new(pairs.iter().map(f).collect());
        Paired { first: samples(|p| p.0), second: samples(|p| p.1), ratio: samples(|p| p.0 / p.1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ignores_outliers_and_the_spread_counts_the_middle() {
        let samples = Samples::new(vec![1000.0, 10.0, 11.0, 9.0, 10.0, 10.0, 10.0, 10.0, 10.0, 0.1]);
        assert_eq!(samples.median(), 10.0);
        assert_eq!(samples.spread(), (11.0 - 0.1) / 2.0 / 10.0);
        assert_eq!(Samples::new(vec![2.0]).spread(), 0.0);
    }

    #[test]
    fn a_ratio_is_taken_pair_by_pair() {
        // The clock rises half way: the ratio of the medians would not show that the first is always twice the second.
        let paired = Paired::new(vec![(2.0, 1.0), (4.0, 2.0), (8.0, 4.0)]);
        assert_eq!((paired.ratio.median(), paired.ratio.spread()), (2.0, 0.0));
        assert_eq!(paired.first.sorted(), [2.0, 4.0, 8.0]);
    }
}
