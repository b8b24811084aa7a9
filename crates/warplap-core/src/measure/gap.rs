//! Gaps: how far one candidate is behind another, and how surely. Centres and their errors come in; what is kept and
//! shown, and the chance that the order is the other way round, go out.
//!
//! Only those who ran in the same rounds can be compared. Gaps to a common rival add up: who raced against the leader
//! of one heat is compared with the leader of the next through the one who ran in both.

use super::student::{upper_quantile, upper_tail};
use crate::records::measurement::Behind;

/// From the half width of a 95 % interval to the standard error of a normal distribution.
const HALF_WIDTH: f64 = 1.96;

/// How far one is behind another, as the logarithm of a ratio, with its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gap {
    /// ln of how many times slower.
    pub ln: f64,
    /// The standard error of that.
    pub error: f64,
    /// Degrees of freedom of the standard error.
    pub freedom: f64,
}

impl Gap {
    /// Of somebody to itself.
    pub const NONE: Gap = Gap { ln: 0.0, error: 0.0, freedom: 1e6 };

    /// This gap and then another: from the first through the second to a third.
    pub fn and(self, other: Gap) -> Gap {
        self.joined(other, self.ln + other.ln)
    }

    /// The gap between two whose gaps to a third are these.
    pub fn less(self, other: Gap) -> Gap {
        self.joined(other, self.ln - other.ln)
    }

    fn joined(self, other: Gap, ln: f64) -> Gap {
        let (a, b) = (self.error.powi(2), other.error.powi(2));
        let both = a + b;
        // Satterthwaite: each error's freedom by its part of the sum.
        let shares = a.powi(2) / self.freedom + b.powi(2) / other.freedom;
        let freedom = if shares > 0.0 { both.powi(2) / shares } else { Gap::NONE.freedom };
        Gap { ln, error: both.sqrt(), freedom }
    }

    /// The chance that it is the other way round by more than `ln_eps`.
    pub fn chance_ahead(&self, ln_eps: f64) -> f64 {
        let ahead = self.ln + ln_eps;
        if self.error <= 0.0 {
            return f64::from(u8::from(ahead < 0.0));
        }
        let tail = upper_tail(ahead.abs() / self.error, self.freedom);
        if ahead < 0.0 { 1.0 - tail } else { tail }
    }

    /// What is kept of it.
    pub fn behind(&self) -> Behind {
        let half = upper_quantile(0.025, self.freedom) * self.error;
        let share = |ln: f64| ln.clamp(-20.0, 20.0).exp_m1();
        Behind { by: share(self.ln).max(0.0), ci: [share(self.ln - half), share(self.ln + half)] }
    }
}

impl From<&Behind> for Gap {
    fn from(behind: &Behind) -> Gap {
        let [low, high] = behind.ci.map(|share| share.max(-0.999).ln_1p());
        Gap { ln: (low + high) / 2.0, error: (high - low) / 2.0 / HALF_WIDTH, freedom: Gap::NONE.freedom }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(ln: f64, error: f64) -> Gap {
        Gap { ln, error, freedom: 40.0 }
    }

    #[test]
    fn gaps_add_up_along_a_chain_and_so_do_their_doubts() {
        let chained = gap(0.10, 0.03).and(gap(0.05, 0.04));
        assert!((chained.ln - 0.15).abs() < 1e-12 && (chained.error - 0.05).abs() < 1e-12);
        assert!((40.0..=80.0).contains(&chained.freedom), "{}", chained.freedom);
        let between = gap(0.10, 0.03).less(gap(0.05, 0.04));
        assert!((between.ln - 0.05).abs() < 1e-12 && (between.error - 0.05).abs() < 1e-12);
        assert_eq!(gap(0.1, 0.03).and(Gap::NONE).ln, 0.1);
        assert_eq!(Gap::NONE.and(Gap::NONE).behind(), Behind::default());
    }

    #[test]
    fn nobody_is_shown_faster_than_the_winner() {
        let behind = gap(-0.004, 0.003).behind();
        assert!(behind.by == 0.0 && behind.ci[0] < -0.004 && behind.is_tie());
        assert!(!gap(0.10, 0.01).behind().is_tie());
    }

    #[test]
    fn what_was_kept_gives_the_same_gap_again() {
        let wide = Gap { freedom: 1e6, ..gap(0.07, 0.02) };
        let again = Gap::from(&wide.behind());
        assert!((again.ln - 0.07).abs() < 1e-3 && (again.error - 0.02).abs() < 1e-3);
    }

    #[test]
    fn the_chance_to_be_ahead_falls_with_the_gap() {
        assert!((gap(0.0, 0.01).chance_ahead(0.0) - 0.5).abs() < 1e-6);
        assert!(gap(0.05, 0.01).chance_ahead(0.01) < 1e-5 && gap(-0.05, 0.01).chance_ahead(0.01) > 0.999);
        assert_eq!((Gap::NONE.chance_ahead(0.01), Gap { ln: -1.0, ..Gap::NONE }.chance_ahead(0.01)), (0.0, 1.0));
    }
}
