//! A new size of a graph, told by its parts: a session remembers what raced sizes took, and where that says beyond
//! doubt who is fastest, he is proved right and taken without a race. Nothing of this is kept in the store.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::partition::{Guess, Size, guess};
use warplap_core::arg::Arg;
use warplap_core::engine::Tuner;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::record::TuningRun;
use warplap_core::variant::Kernel;

use super::problem::{GraphProblem, Graphs};
use super::task::Ground;

/// Sizes of one graph that are remembered.
const MOST: usize = 32;

/// Sizes that were raced in a session, by the choices that they are sizes of.
#[derive(Default)]
pub struct RacedSizes(Mutex<HashMap<String, Vec<Size>>>);

impl RacedSizes {
    /// A size that was raced.
    pub(super) fn remember(&self, choices: &str, size: Size) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sizes = all.entry(choices.into()).or_default();
        // The same size again is not another one.
        sizes.retain(|other| other.parts != size.parts);
        sizes.push(size);
        let over = sizes.len().saturating_sub(MOST);
        sizes.drain(..over);
    }

    /// Who is fastest by the sizes that were raced, if they say so.
    pub(super) fn guess(&self, choices: &str, parts: &BTreeMap<String, f64>) -> Option<Guess> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        guess(all.get(choices)?, parts)
    }
}

/// What those who raced took as a whole, in seconds.
pub(super) fn wholes(edition: &TuningRun) -> BTreeMap<String, f64> {
    edition.ranked().iter().map(|r| (r.trial.candidate.variant.clone(), r.time_us * 1e-6)).collect()
}

/// A choice that was told, with its launches.
pub(super) struct Guessed<D: Ground> {
    pub(super) guess: Guess,
    kernel: Arc<dyn Kernel<D>>,
    /// Whether a race, or a launch that failed, has put an end to it.
    over: AtomicBool,
}

impl<D: Ground> Guessed<D> {
    /// A guess that was proved right, as a race proves: on fresh inputs, with poisoned outputs between guard bands.
    pub(super) fn proved(guess: Guess, tuner: &Tuner<Graphs, D>, problem: &GraphProblem) -> Option<Self> {
        let proved = tuner.bench(problem, &guess.winner, None, 1).map_err(|e| e.to_string());
        let proved = proved.and_then(|outcome| outcome.map_err(|rejection| rejection.to_string()));
        let is_raced = |why: &String| tracing::info!("{}: is raced after all: {why}", guess.winner);
        let benched = proved.inspect_err(is_raced).ok()?;
        let kernel = tuner.built(problem, &benched.candidate)?;
        Some(Guessed { guess, kernel, over: AtomicBool::new(false) })
    }

    /// Whether it still holds.
    pub(super) fn holds(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    /// From now on whoever the tuner chooses answers.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(super) fn launch(
        &self,
        problem: &GraphProblem,
        args: &mut [Arg<'_, D>],
        queue: &D::Queue,
    ) -> Result<(), Error> {
        let Err(rejection) = self.kernel.launch(args, queue) else { return Ok(()) };
        // Arguments that do not fit are nobody's fault but the caller's.
        Graphs::signature(problem).check(args)?;
        self.end();
        Err(Error::Launch { problem: Graphs::text(problem), rejection })
    }

    /// In words.
    pub(super) fn how(&self) -> String {
        let (sizes, off) = (self.guess.sizes, 100.0 * self.guess.off);
        format!("told by its parts: {sizes} other sizes were raced, and this was off by {off:.0}% at most")
    }
}
