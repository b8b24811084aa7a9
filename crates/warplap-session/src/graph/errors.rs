//! Errors that a graph is answered with: how numbers between nodes are moved, as a share of what is allowed.

use fastrand::Rng;
use rayon::prelude::*;
use warplap_core::tolerance::Tolerance;
use warplap_ops::in_parallel;

/// Numbers that are moved with one stream of random ones.
const PART: usize = 1 << 16;

#[derive(Clone, Copy)]
pub(super) enum Errors {
    /// By anything, from a seed.
    Any(u64),
    /// By all of it, to either side, from a seed.
    Signs(u64),
    /// By all of it, to one side.
    Up,
    /// By all of it, away from zero.
    Away,
}

impl Errors {
    fn seed(self) -> u64 {
        match self {
            Errors::Any(seed) | Errors::Signs(seed) => seed,
            Errors::Up | Errors::Away => 0,
        }
    }

    fn share(self, value: f64, rng: &mut Rng) -> f64 {
        match self {
            Errors::Any(_) => 2.0 * rng.f64() - 1.0,
            Errors::Signs(_) => 2.0 * f64::from(u8::from(rng.bool())) - 1.0,
            Errors::Up => 1.0,
            Errors::Away => value.signum(),
        }
    }

    /// Moves what is the so-manieth to be moved.
    pub(super) fn put_on(self, values: &mut [f64], tolerance: Tolerance, number: usize) {
        let each = |(part, values): (usize, &mut [f64])| {
            let place = (number as u64) << 32 | part as u64;
            let mut rng = Rng::with_seed(self.seed().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ place);
            for value in values.iter_mut().filter(|value| value.is_finite()) {
                *value += self.share(*value, &mut rng) * tolerance.allowed(*value);
            }
        };
        in_parallel(|| values.par_chunks_mut(PART).enumerate().for_each(each));
    }
}
