//! Provisional records: a key whose last tuning was not clean comes in; who races again when it is gone on with, and
//! which of two tunings is kept, go out.

use crate::candidate::{Candidate, Outcome};
use crate::contest::SPENT;
use crate::contest::verdict::Grade;
use crate::device::Device;
use crate::engine::Tuner;
use crate::engine::TuningEngine;
use crate::measure::HYSTERESIS;
use crate::model::op::Op;
use crate::ranking::Ranked;
use crate::record::TuningRun;
use crate::store::Checked;

/// Who is this near to the winner races again, and who may be as fast.
const NEAR: f64 = 0.05;

/// At most so many of them.
const MOST: usize = 12;

/// A key whose record answers for now only: the next [`Tuner::tune`] of its problem goes on with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Provisional {
    /// The key's text.
    pub key: String,
    /// The problem that was raced for it.
    pub problem: String,
    /// Why it is provisional.
    pub grade: Grade,
    /// Seconds since 1970 when it was measured.
    pub tuned_at: u64,
}

impl<D: Device> TuningEngine<D> {
    /// The provisional keys of an operation on this device as it is now, the oldest first. Reads the operation's
    /// records: something for a quiet moment, not for a launch.
    pub fn provisional(&self, op: &str) -> Vec<Provisional> {
        let slug = self.device.fingerprint().slug();
        let own = self.store.entries().into_iter().filter(|entry| entry.op == op && entry.device_slug == slug);
        let mut all: Vec<Provisional> = own
            .filter_map(|entry| {
                let Checked::Whole(record) = self.store.check(&entry) else { return None };
                let edition = record.current(self.device.fingerprint(), self.store.id())?;
                let (grade, tuned_at) = (edition.verdict.grade, edition.tuned_at);
                let result = Provisional { key: record.key.clone(), problem: record.problem.clone(), grade, tuned_at };
                grade.is_provisional().then_some(result)
            })
            .collect();
        all.sort_by(|a, b| (a.tuned_at, &a.key).cmp(&(b.tuned_at, &b.key)));
        all
    }
}

impl<O: Op, D: Device> Tuner<O, D> {
    /// The provisional keys that this tuner's settings ask for, the oldest first: `tune` of their problems goes on with
    /// them.
    pub fn provisional(&self) -> Vec<Provisional> {
        let mut all = self.engine.provisional(O::NAME);
        all.retain(|p| O::parse(&p.problem).is_ok_and(|problem| self.key(&problem).text == p.key));
        all
    }
}

/// Whether the budget ended an edition's search.
pub(crate) fn was_cut(edition: &TuningRun) -> bool {
    edition.skipped.iter().any(|s| s.reason == SPENT)
}

/// Those of an edition that may still win, besides its winner: near it, or not yet seen.
pub(crate) fn may_win(edition: &TuningRun) -> Vec<Candidate> {
    let ranked = edition.ranked();
    let near = |r: &&Ranked<'_>| !r.won && (r.tie || r.behind <= NEAR || r.ci.is_some_and(|ci| ci[0] <= 0.0));
    let near = ranked.iter().filter(near).take(MOST).map(|r| &r.trial.candidate);
    let unseen = edition.trials.iter().filter(|t| t.is_unseen()).map(|t| &t.candidate);
    near.chain(unseen).cloned().collect()
}

/// Whether a candidate was timed beside the winner and was slower for sure, by more than a stored winner is owed.
fn surely_behind(edition: &TuningRun, candidate: &Candidate) -> bool {
    let mut trials = edition.trials.iter().filter(|t| t.candidate == *candidate);
    let behind = trials.find_map(|t| t.measurement()?.behind.as_deref());
    edition.verdict.winner != *candidate && behind.is_some_and(|behind| behind.ci[0] > HYSTERESIS)
}

/// Which of two tunings of a key is kept: the newer one, unless it was measured under worse conditions. Where it knows
/// more candidates, the verdict of the better one stands beside all their trials. A race in which the stored winner met
/// its better says so under any conditions: both ran in the same rounds.
pub(crate) fn better(old: Option<TuningRun>, new: TuningRun) -> TuningRun {
    let Some(old) = old.filter(|old| old.verdict.grade.rank() > new.verdict.grade.rank()) else { return new };
    let timed = |edition: &TuningRun, c: &Candidate| edition.trials.iter().any(|t| t.candidate == *c && t.is_right());
    let met = |t: &crate::candidate::Trial| matches!(t.outcome, Outcome::Rejected(_)) || timed(&old, &t.candidate);
    match () {
        () if surely_behind(&new, &old.verdict.winner) => new,
        // The stored winner was not right any more, or was beaten by somebody it had never met.
        () if !timed(&new, &old.verdict.winner) || !timed(&old, &new.verdict.winner) => new,
        () if new.trials.iter().all(met) => old,
        () if new.verdict.winner == old.verdict.winner => {
            // The floor that the verdict was found above: ceilings may have been beaten then, and not now.
            let floor_us = old.floor_us.zip(new.floor_us).map(|(old, new)| old.min(new));
            TuningRun { verdict: old.verdict, floor_us, ..new }
        }
        () => new,
    }
}
