//! Newcomers: an edition and a problem come in; who of the problem it has not met goes out.
//!
//! A variant is known by its code. Where its configs were given one by one (a list in a user's program, which may grow
//! while the code stays), each of them counts.

use crate::candidate::SourceHash;
use crate::device::Device;
use crate::engine::TuningEngine;
use crate::model::erased::{ErasedProblem, Runner};
use crate::record::TuningRun;
use crate::search::Arm;
use crate::space::{Config, Space};

impl<D: Device> TuningEngine<D> {
    /// Variants that an edition does not know in their present form.
    pub(crate) fn newcomers(&self, edition: &TuningRun, problem: &dyn ErasedProblem<D>) -> Vec<String> {
        let known = |v: &Runner<'_, D>| {
            let (id, source) = (v.id(), v.source());
            is_known(edition, id, &source) && !has_grown(edition, id, &source, &v.space(&self.device))
        };
        let new = problem.runners().filter(|v| !known(v)).filter(|v| v.fits(&self.device));
        new.map(|v| v.id().to_string()).collect()
    }
}

fn is_known(edition: &TuningRun, id: &str, source: &SourceHash) -> bool {
    let tried = edition.trials.iter().any(|t| t.candidate.variant == id && t.candidate.source == *source);
    tried || edition.skipped.iter().any(|s| s.variant == id && s.source == *source)
}

/// Whether a list of configs holds some that an edition neither tried nor counted as skipped.
fn has_grown(edition: &TuningRun, id: &str, source: &SourceHash, space: &Space) -> bool {
    if !space.is_listed() {
        return false;
    }
    let met = tried(edition, id, source).filter(|config| space.contains(config)).count() as u128;
    let of_it = edition.skipped.iter().filter(|s| s.variant == id && s.source == *source);
    met + of_it.map(|s| u128::from(s.configs)).sum::<u128>() < space.count()
}

fn tried<'e>(edition: &'e TuningRun, id: &str, source: &SourceHash) -> impl Iterator<Item = &'e Config> {
    let of_it = move |t: &&'e crate::candidate::Trial| t.candidate.variant == id && t.candidate.source == *source;
    edition.trials.iter().filter(of_it).map(|t| &t.candidate.config)
}

/// An arm without the configs of a list that an edition has tried.
pub(crate) fn unmet(arm: Arm, edition: &TuningRun) -> Arm {
    if !arm.space.is_listed() {
        return arm;
    }
    let met: Vec<&Config> = tried(edition, &arm.variant, &arm.source).collect();
    let new = arm.listed().into_iter().filter(|(_, config)| !met.contains(&config)).map(|(index, _)| index).collect();
    arm.keep(new)
}
