//! Compiled kernels of those who answer: a verdict comes in; the digests of what its winner and ties were built from go
//! out, so that a bundle can carry them and nobody else need compile them.

use std::collections::BTreeSet;

use crate::contest::verdict::Verdict;
use crate::device::Device;
use crate::engine::TuningEngine;
use crate::model::erased::ErasedProblem;

/// Ties whose kernels are carried; more than these nobody asks for.
const MOST: usize = 8;

impl<D: Device> TuningEngine<D> {
    /// The digests behind the winner and its ties; none on a device that compiles nothing.
    pub(crate) fn artifacts_of(&self, problem: &dyn ErasedProblem<D>, verdict: &Verdict) -> BTreeSet<String> {
        let answering = [&verdict.winner].into_iter().chain(verdict.ties.iter().take(MOST));
        let built = answering.filter_map(|candidate| {
            let runner = problem.find(&candidate.variant)?;
            // They were built a moment ago, and are found where they are kept.
            Some(self.device.built_from(&mut || drop(runner.build(&candidate.config, &self.device))))
        });
        built.flatten().collect()
    }
}
