//! The score of a search on a recorded space: how much of the way from random search to the optimum it is ahead.
//!
//! With R(k) the exact expectation of the best of k random draws and S(k) the best of the search after k trials, the
//! score is the mean over k of (R(k) − S(k)) / (R(k) − optimum): 0 is random search, 1 the optimum at once. Failing
//! configs count as trials; before anything was right, the best is the slowest time there is.

use super::Recorded;

/// What a search on one recorded space is measured with.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// The shortest time there is, in milliseconds.
    pub optimum_ms: f64,
    /// The longest.
    pub slowest_ms: f64,
    /// By trial: what random search has found by then, on average.
    pub random_ms: Vec<f64>,
}

impl Baseline {
    /// The yardstick of a recorded space for so many trials.
    pub fn new(recorded: &Recorded, trials: usize) -> Option<Self> {
        let mut times: Vec<f64> = recorded.times().collect();
        times.sort_by(f64::total_cmp);
        let (optimum_ms, slowest_ms) = (*times.first()?, *times.last()?);
        let all = recorded.len();
        let expected = |k: usize| {
            // The chance that none of the k draws is among the i fastest, i by i.
            let (mut none, mut mean) = (1.0, 0.0);
            for (i, time) in times.iter().enumerate() {
                let next = if i + k > all { 0.0 } else { none * (all - i - k) as f64 / (all - i) as f64 };
                mean += (none - next) * time;
                none = next;
                if none < 1e-15 {
                    break;
                }
            }
            mean + none * slowest_ms
        };
        Some(Baseline { optimum_ms, slowest_ms, random_ms: (1..=trials.min(all)).map(expected).collect() })
    }

    /// The score of a curve.
    pub fn score(&self, curve: &Curve) -> f64 {
        let best = curve.filled(self.random_ms.len(), self.slowest_ms);
        let parts: Vec<f64> = self
            .random_ms
            .iter()
            .zip(best)
            .filter(|(random, _)| *random - self.optimum_ms > 1e-12 * self.optimum_ms)
            .map(|(random, best)| (random - best) / (random - self.optimum_ms))
            .collect();
        if parts.is_empty() { 0.0 } else { parts.iter().sum::<f64>() / parts.len() as f64 }
    }
}

/// What a search had found by when: the trial, counted from 1, and its milliseconds, each shorter than the one before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// The improvements.
    pub improvements: Vec<(usize, f64)>,
}

impl Curve {
    /// Notes a time at a trial.
    pub fn note(&mut self, trial: usize, time_ms: f64) {
        if self.improvements.last().is_none_or(|(_, best)| time_ms < *best) {
            self.improvements.push((trial, time_ms));
        }
    }

    /// The best after so many trials.
    pub fn best_at(&self, trial: usize) -> Option<f64> {
        self.improvements.iter().take_while(|(at, _)| *at <= trial).last().map(|(_, time)| *time)
    }

    /// The best after each trial; `before` stands for nothing yet.
    fn filled(&self, trials: usize, before: f64) -> Vec<f64> {
        let mut filled = vec![before; trials];
        for (at, time) in &self.improvements {
            filled.iter_mut().skip(at.saturating_sub(1)).for_each(|best| *best = *time);
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::*;
    use warplap_core::space::Axis;

    fn four() -> Recorded {
        let times = [Ok(1.0), Ok(2.0), Ok(4.0), Err("failed".to_string())];
        let rows = (0u16..).zip(times).map(|(i, time_ms)| Row { point: vec![i], time_ms }).collect();
        Recorded::new(vec![Axis::ints("x", 0..4)], rows).unwrap()
    }

    #[test]
    fn the_expectation_of_random_search_is_exact() {
        let baseline = Baseline::new(&four(), 9).unwrap();
        // One draw: each of the four; the failing one counts as the slowest.
        let one = (1.0 + 2.0 + 4.0 + 4.0) / 4.0;
        // Two draws: 6 pairs, three of them with the first, two more with the second, one of the last two.
        let two = (3.0 * 1.0 + 2.0 * 2.0 + 4.0) / 6.0;
        let three = (3.0 * 1.0 + 2.0) / 4.0;
        for (result, expected) in baseline.random_ms.iter().zip([one, two, three, 1.0]) {
            assert!((result - expected).abs() < 1e-12, "{result} {expected}");
        }
        assert_eq!(baseline.random_ms.len(), 4);
    }

    #[test]
    fn the_optimum_at_once_scores_one_and_nothing_at_all_scores_below_zero() {
        let baseline = Baseline::new(&four(), 4).unwrap();
        let mut curve = Curve::default();
        curve.note(1, 1.0);
        curve.note(2, 3.0);
        assert_eq!(curve.improvements, [(1, 1.0)]);
        assert!((baseline.score(&curve) - 1.0).abs() < 1e-12);
        assert!(baseline.score(&Curve::default()) < 0.0);
        assert_eq!((curve.best_at(0), curve.best_at(7)), (None, Some(1.0)));
    }
}
