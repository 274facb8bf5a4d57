//! What a count of failures says, and what a zero does not.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How often something happened, with the 95 % Wilson interval of its probability.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// How often it happened.
    pub events: u64,
    /// Out of how many.
    pub trials: u64,
}

impl Rate {
    /// The share of trials; 0 without any.
    pub fn share(self) -> f64 {
        if self.trials == 0 { 0.0 } else { self.events as f64 / self.trials as f64 }
    }

    /// The 95 % Wilson interval; everything, without trials.
    pub fn interval(self) -> (f64, f64) {
        if self.trials == 0 {
            return (0.0, 1.0);
        }
        const Z: f64 = 1.959_963_984_540_054;
        let (n, p) = (self.trials as f64, self.share());
        let scale = 1.0 + Z * Z / n;
        let centre = (p + Z * Z / (2.0 * n)) / scale;
        let half = Z / scale * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        ((centre - half).max(0.0), (centre + half).min(1.0))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = self.interval();
        let percent = |x: f64| x * 100.0;
        write!(
            f,
            "{} of {} ({:.1} %, 95 %: {:.1} to {:.1})",
            self.events,
            self.trials,
            percent(self.share()),
            percent(low),
            percent(high)
        )
    }
}

/// The smallest rate per trial that `trials` would have shown at least once with 95 %: what a zero excludes.
///
/// Watching some of the layers only sees faults in those: `share_watched` of all, from 0 to 1.
pub fn detectable_rate(trials: u64, share_watched: f64) -> f64 {
    let watched = share_watched.clamp(0.0, 1.0);
    if trials == 0 || watched == 0.0 {
        return 1.0;
    }
    ((1.0 - 0.05f64.powf(1.0 / trials as f64)) / watched).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilson_intervals_are_the_published_ones() {
        let (low, high) = Rate { events: 0, trials: 10 }.interval();
        assert!(low == 0.0 && (high - 0.2775).abs() < 1e-4, "{low} {high}");
        let (low, high) = Rate { events: 5, trials: 10 }.interval();
        assert!((low - 0.2366).abs() < 1e-4 && (high - 0.7634).abs() < 1e-4, "{low} {high}");
        assert_eq!(Rate { events: 0, trials: 0 }.interval(), (0.0, 1.0));
    }

    #[test]
    fn a_zero_excludes_about_three_over_the_trials() {
        assert!((detectable_rate(1000, 1.0) - 0.003).abs() < 1e-4);
        // 3 of 21 layers for 500 steps.
        let rate = detectable_rate(500, 3.0 / 21.0);
        assert!((rate - 0.0418).abs() < 1e-3, "{rate}");
        assert_eq!(detectable_rate(0, 1.0), 1.0);
        assert_eq!(detectable_rate(100, 0.0), 1.0);
    }
}
