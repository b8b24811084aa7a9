//! The heat between a race's winner and Burn's own implementation, where the latter could not take part in the race:
//! both as calls on the caller's own tensors come in, whether Burn's is to answer goes out. Burn's must be right first.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use warplap::Error;
use warplap::core::slot::Slot;

use crate::backends::place::Place;

/// Rounds, a block of calls of either side in each; the fastest block counts.
const ROUNDS: usize = 5;

/// Seconds of a block, and its calls at the most.
const BLOCK: f64 = 2e-3;
const MOST: usize = 100;

/// What Burn's must be ahead to answer: below that it is noise.
const AHEAD: f64 = 0.01;

/// Whether Burn's own implementation is right and faster. One that panics is neither. Its own tuner, where it has one,
/// runs in the first call.
pub(crate) fn burns_own_wins<P: Place>(
    slot: &Slot,
    beside: &P::Tensor,
    ours: &dyn Fn() -> Result<Vec<P::Tensor>, Error>,
    burns: &dyn Fn() -> Vec<P::Tensor>,
) -> Result<bool, Error> {
    let burns = || {
        let panicked = |_| Error::Device("Burn's own implementation panicked".into());
        catch_unwind(AssertUnwindSafe(burns)).map_err(panicked)
    };
    let right = values::<P>(ours()?)?;
    let Ok(got) = burns().and_then(values::<P>) else { return Ok(false) };
    if !is_near(&got, &right, slot.dtype.leeway()) {
        return Ok(false);
    }
    let calls: [&dyn Fn() -> Result<Vec<P::Tensor>, Error>; 2] = [ours, &burns];
    let block = |call: &dyn Fn() -> Result<Vec<P::Tensor>, Error>, times: usize| {
        P::wait(beside)?;
        let start = Instant::now();
        for _ in 0..times {
            call()?;
        }
        P::wait(beside)?;
        Ok::<f64, Error>(start.elapsed().as_secs_f64() / times as f64)
    };
    let (mut best, mut times) = ([f64::INFINITY; 2], [1; 2]);
    for lane in 0..2 {
        times[lane] = ((BLOCK / block(calls[lane], 1)?.max(1e-9)).ceil() as usize).clamp(1, MOST);
    }
    for _ in 0..ROUNDS {
        for lane in 0..2 {
            best[lane] = best[lane].min(block(calls[lane], times[lane])?);
        }
    }
    Ok(best[1] < best[0] * (1.0 - AHEAD))
}

fn values<P: Place>(outputs: Vec<P::Tensor>) -> Result<Vec<f64>, Error> {
    outputs.into_iter().next().map_or(Ok(Vec::new()), P::values)
}

/// Whether two answers agree, relative to the largest element.
fn is_near(got: &[f64], right: &[f64], leeway: f64) -> bool {
    let largest = right.iter().fold(0f64, |m, v| m.max(v.abs()));
    // NaN is near nothing.
    let near = |(f, r): (&f64, &f64)| (f - r).abs() <= leeway * largest.max(r.abs());
    got.len() == right.len() && got.iter().zip(right).all(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_differ_or_are_no_numbers_are_not_near() {
        assert!(is_near(&[1.0, 2.0], &[1.0, 2.00001], 1e-5));
        assert!(!is_near(&[1.0, 2.0], &[1.0, 2.1], 1e-5));
        assert!(!is_near(&[f64::NAN, 2.0], &[1.0, 2.0], 1e-5));
        assert!(!is_near(&[1.0], &[1.0, 2.0], 1e-5));
    }
}
