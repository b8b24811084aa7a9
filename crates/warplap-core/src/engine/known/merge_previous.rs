//! What an earlier edition of a key knows besides: it comes in, and what still holds is added to the new one.

use crate::candidate::{Candidate, SourceHash};
use crate::contest::{Outcomes, SPENT};
use crate::device::Device;
use crate::model::erased::ErasedProblem;
use crate::record::{Skipped, TuningRun};

/// Why a candidate that another machine timed does not race here beside its winner.
const ELSEWHERE: &str = "it lost on the machine the record came from";

/// What an earlier edition knows besides: trials and skips of variants that did not race now. Code that is not there
/// any more is forgotten; a variant that is not in the catalog may come back.
pub(crate) fn carry_over<D: Device>(
    problem: &dyn ErasedProblem<D>,
    edition: &TuningRun,
    outcomes: &mut Outcomes,
    skipped: &mut Vec<Skipped>,
) {
    let standing = |id: &str, source: &SourceHash| problem.find(id).is_none_or(|v| v.source() == *source);
    for old in edition.trials.iter().filter(|t| standing(&t.candidate.variant, &t.candidate.source)) {
        let before = outcomes.trials.iter().position(|t| t.candidate == old.candidate);
        // Whose turn did not come this time is as far as it was.
        if before.is_none_or(|at| outcomes.trials[at].is_unseen()) {
            let mut trial = old.clone();
            trial.place(&outcomes.behind);
            before.map(|at| outcomes.trials.remove(at));
            outcomes.trials.push(trial);
        }
    }
    // What the budget had no time for was counted anew.
    let counted = |s: &&Skipped| edition.verdict.grade.is_provisional() && s.reason == SPENT;
    for old in edition.skipped.iter().filter(|s| standing(&s.variant, &s.source) && !counted(s)) {
        if !skipped.iter().any(|s| s.variant == old.variant && s.reason == old.reason) {
            skipped.push(old.clone());
        }
    }
}

/// What an edition from elsewhere knows besides: its trials were none of this machine's. Who did not race now counts as
/// skipped, so that it is no newcomer the next time.
pub(crate) fn mention<D: Device>(
    problem: &dyn ErasedProblem<D>,
    edition: &TuningRun,
    outcomes: &Outcomes,
    skipped: &mut Vec<Skipped>,
) {
    let current = |id: &str, source: &SourceHash| problem.find(id).is_some_and(|v| v.source() == *source);
    let met = |c: &Candidate| outcomes.trials.iter().any(|t| t.candidate == *c);
    for Candidate { variant, source, .. } in edition.trials.iter().map(|t| &t.candidate).filter(|c| !met(c)) {
        let known = skipped.iter_mut().find(|s| s.variant == *variant && s.reason == ELSEWHERE);
        match known {
            Some(known) => known.configs += 1,
            None if current(variant, source) => skipped.push(Skipped {
                variant: variant.clone(),
                source: source.clone(),
                configs: 1,
                reason: ELSEWHERE.into(),
            }),
            None => {}
        }
    }
    for old in edition.skipped.iter().filter(|s| current(&s.variant, &s.source)) {
        if !skipped.iter().any(|s| s.variant == old.variant && s.reason == old.reason) {
            skipped.push(old.clone());
        }
    }
}
