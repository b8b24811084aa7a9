//! Proving at deployment: a store and a tuner come in; every winner from elsewhere that this device would use passes the
//! gate now, with its ties, so that a program that only replays finds it proved.

use crate::candidate::Candidate;
use crate::device::Device;
use crate::engine::Tuner;
use crate::engine::tuning_engine::is_current;
use crate::error::Error;
use crate::key::Key;
use crate::model::erased::ErasedProblem;
use crate::model::op::Op;
use crate::record::{Record, TuningRun};
use crate::store::Match;

/// What became of one key's candidates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proved {
    /// Those that have passed here, now or before.
    pub passed: Vec<Candidate>,
    /// Those that have not, and why.
    pub failed: Vec<(Candidate, String)>,
    /// Those for whose proof there was no time, and what it would take.
    pub late: Vec<(Candidate, String)>,
}

impl<O: Op, D: Device> Tuner<O, D> {
    /// Proves the winner of a record and its ties on this device. `None` where there is nothing to prove: it was raced
    /// here, is of other versions or code, or its key is none that this tuner's settings ask for.
    pub fn prove(&self, record: &Record) -> Option<Proved> {
        let problem = O::parse(&record.problem).ok()?;
        let erased = self.erased(&problem);
        let key = self.engine.key(&erased);
        (key.text == record.key).then(|| self.engine.prove(&key, &erased)).flatten()
    }
}

impl<D: Device> crate::engine::TuningEngine<D> {
    fn prove(&self, key: &Key, erased: &dyn ErasedProblem<D>) -> Option<Proved> {
        let Match::Exact(record) = self.store.lookup(key, self.device.fingerprint()) else { return None };
        let edition = self.edition_of(&record, &|c| erased.find(&c.variant).is_some(), erased)?;
        let raced_here = edition.origin == self.store.id();
        if raced_here || !is_current(erased, &edition.verdict.winner) {
            return None;
        }
        let mut proved = Proved::default();
        for candidate in proposed(&edition) {
            match self.admit_alone(key, erased, candidate) {
                Ok(()) => proved.passed.push(candidate.clone()),
                Err(why @ Error::NoTime { .. }) => proved.late.push((candidate.clone(), why.to_string())),
                Err(why) => proved.failed.push((candidate.clone(), why.to_string())),
            }
        }
        Some(proved)
    }
}

/// The winner of an edition, and those that are as fast.
fn proposed(edition: &TuningRun) -> Vec<&Candidate> {
    let mut all = vec![&edition.verdict.winner];
    all.extend(edition.verdict.ties.iter().filter(|tie| **tie != edition.verdict.winner));
    all
}
