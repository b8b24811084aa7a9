//! Regret: what a bucket costs. A problem comes in; its bucket's winner runs on the exact shape against the exact
//! shape's own winner, in one race, and the ratio of their times goes out.

use std::cell::Cell;

use crate::candidate::Candidate;
use crate::contest::verdict;
use crate::device::Device;
use crate::engine::TuningEngine;
use crate::engine::progress::{Event, Observer};
use crate::engine::settings::{Running, Settings};
use crate::error::Error;
use crate::measure::contestants::Contestants;
use crate::measure::{RacePlan, race};
use crate::model::bucket::Bucket;
use crate::model::erased::ErasedProblem;
use crate::prove::gate::Gate;

/// What a bucket costs one problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Regret {
    /// The problem.
    pub problem: String,
    /// The bucket's name.
    pub bucket: String,
    /// The problem that was raced for the bucket.
    pub representative: String,
    /// The candidate that the bucket gives this problem.
    pub bucket_winner: Candidate,
    /// The winner of the exact shape.
    pub exact_winner: Candidate,
    /// The median time of the bucket's candidate on the exact shape, in microseconds.
    pub bucket_us: f64,
    /// The median time of the exact shape's winner, in microseconds.
    pub exact_us: f64,
    /// How many times longer the bucket's candidate takes; below 1 where the race of two saw it ahead.
    pub ratio: f64,
    /// Whether the two could not be told apart within `eps`.
    pub tie: bool,
}

impl<D: Device> TuningEngine<D> {
    /// Tunes the bucket's representative and the exact shape (or finds them in the store), then races the two winners
    /// on the exact shape.
    pub(crate) fn regret(&self, erased: &dyn ErasedProblem<D>, observer: &dyn Observer) -> Result<Regret, Error> {
        let by_bucket = self.tune(erased, observer)?;
        // What a launch would use: the bucket's winner, or what takes its place where it cannot do this shape.
        let bucket_winner = self.choose(erased, self.device.queue(), observer)?.0.candidate;
        let settings = Settings { bucket: Bucket::Exact, ..self.settings.clone() };
        let exact = TuningEngine::new(self.device.clone(), self.store.clone(), settings);
        let tuned = exact.tune(erased, observer)?.edition.verdict;
        let mut regret = Regret {
            problem: erased.text(),
            bucket: self.settings.bucket.name().to_string(),
            representative: by_bucket.problem,
            bucket_us: tuned.median_us,
            exact_us: tuned.median_us,
            ratio: 1.0,
            tie: true,
            bucket_winner,
            exact_winner: tuned.winner,
        };
        if regret.bucket_winner == regret.exact_winner {
            return Ok(regret);
        }
        let gate = Gate::open(erased, &*exact.device, &exact.settings)?;
        let refused = |rejection| Error::Launch { problem: erased.text(), rejection };
        let mut entrants = [
            gate.prove(&regret.bucket_winner, false).map_err(refused)?,
            gate.prove(&regret.exact_winner, false).map_err(refused)?,
        ];
        observer.event(&Event::Racing(entrants.len()));
        let plan = RacePlan {
            eps: exact.settings.eps,
            delta: exact.settings.delta,
            seed: exact.settings.seed,
            ..RacePlan::default()
        };
        let running = Running::start(&exact.settings);
        let taken = Cell::new(0);
        let mut contestants = Contestants::new(&mut entrants, &taken, &*self.device);
        let outcome = race(2, &mut contestants, &plan, &mut || running.over());
        let contestants = verdict::trials(&outcome, &[regret.bucket_winner.clone(), regret.exact_winner.clone()]);
        let median = |n: usize| contestants.get(n).and_then(|t| t.median_us());
        let (Some(bucket_us), Some(exact_us)) = (median(0), median(1)) else {
            return Err(Error::Device(format!("{}: one of the two winners could not be timed", regret.problem)));
        };
        // The race's own gap is paired within rounds; plain medians only where it has none.
        regret.ratio = outcome.gap(0, 1).map_or(bucket_us / exact_us, |gap| gap.ln.exp());
        regret.tie = !outcome.ties.is_empty();
        (regret.bucket_us, regret.exact_us) = (bucket_us, exact_us);
        Ok(regret)
    }
}
