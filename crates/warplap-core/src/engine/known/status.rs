//! What is known without measuring: a problem comes in; what the store has of its key, and how each variant stands to the
//! problem, go out.

use crate::candidate::SourceHash;
use crate::candidates::prune::prune;
use crate::candidates::variant::Fit;
use crate::device::Device;
use crate::engine::known::sizes::other_size;
use crate::engine::{How, TuningEngine};
use crate::error::Error;
use crate::key::Key;
use crate::model::erased::{ErasedProblem, Runner};
use crate::record::{Record, TuningRun};
use crate::rejection::Rejection;
use crate::space::{Axis, Config, Space};
use crate::store::Match;

/// A variant as it stands to a problem.
#[derive(Clone, Debug)]
pub struct VariantStatus {
    /// Its id.
    pub id: String,
    /// The code behind it.
    pub source: SourceHash,
    /// Whether it is the reference.
    pub reference: bool,
    /// Whether it is an official library's implementation.
    pub library: bool,
    /// Its answer to the problem, where one was given.
    pub fit: Option<Fit>,
    /// Legal configs within the device's limits.
    pub configs: usize,
    /// Its axes and their values.
    pub axes: Vec<(String, Vec<String>)>,
}

/// What the store knows of a problem.
#[derive(Clone, Debug)]
pub struct StoredAnswer {
    /// The key it was looked up by.
    pub key: Key,
    /// How the winner would be used; `None` on a miss.
    pub how: Option<How>,
    /// Whether the winner was raced or proved on this machine as it is now: else it passes the gate before it is used.
    pub proved: bool,
    /// Whether the winner met what the host program would call without us, where it would call something of its own.
    pub met_the_host: bool,
    /// How the lookup matched, in one sentence.
    pub matched: String,
    /// The size that was measured, where that is another one of the key: times in the edition are of that one.
    pub measured_at: Option<String>,
    /// The edition that answers.
    pub edition: Option<TuningRun>,
    /// Everything the store holds about the key.
    pub record: Option<Record>,
    /// Variants that fit and that the edition has not met in their present form.
    pub newcomers: Vec<String>,
}

impl<D: Device> TuningEngine<D> {
    /// What the store knows of a problem; measures nothing.
    pub fn find(&self, problem: &dyn ErasedProblem<D>) -> StoredAnswer {
        let key = self.key(problem);
        let local = self.store.id();
        let (answers, how) = self.lookup_edition(problem, &key).unzip();
        let (mut matched, edition, record) = match self.store.lookup(&key, self.device.fingerprint()) {
            Match::Exact(record) => {
                // Where nobody of it is here, it is told all the same.
                let edition = answers.or_else(|| record.current(self.device.fingerprint(), local).cloned());
                let here = edition.as_ref().is_some_and(|e| e.origin == local);
                let matched = match (how == Some(How::Stale), here) {
                    (true, _) => "exact, but the winner's code has changed since: the next tune races it again",
                    (false, true) => "exact: measured on this device under its present versions",
                    (false, false) => "exact: imported from another store for this very kind of device",
                };
                (matched.to_string(), edition, Some(*record))
            }
            Match::Near(record) => {
                let matched = "near: this device, but measured under other library versions (stale)".to_string();
                (matched, record.stale(self.device.fingerprint(), local).cloned(), Some(*record))
            }
            Match::Foreign(record, slug) => {
                (format!("foreign: measured on another device, {slug}"), record.editions.last().cloned(), Some(*record))
            }
            Match::Miss => ("miss: the store does not know the key".to_string(), None, None),
        };
        let raced = problem.representative(&self.settings.bucket);
        let newcomers = edition.as_ref().map(|e| self.newcomers(e, &*raced)).unwrap_or_default();
        let proved = edition.as_ref().zip(how.as_ref()).is_some_and(|result| self.is_admitted(&key, problem, result));
        if edition.is_some() && !proved {
            matched.push_str("; its winner was not proved here yet: it is before its first use");
        }
        let of_size = edition.as_ref().and_then(|_| self.tell_of_size(&key, problem));
        if let Some(text) = &of_size {
            matched.push_str(&format!("; {text}"));
        } else if let Some(other) = edition.as_ref().and_then(|e| self.stand_in(&key, problem, e)) {
            matched
                .push_str(&format!("; it was raced for another size of its bucket, and {other} answers for this one"));
        }
        let measured_at = record.as_ref().and_then(|record| other_size(&raced.text(), &record.problem));
        let met_the_host = edition.as_ref().is_none_or(|edition| self.met_the_host(problem, edition));
        StoredAnswer { key, how, proved, met_the_host, matched, measured_at, edition, record, newcomers }
    }

    /// The variants in their order, as they stand to a problem.
    pub(crate) fn standings(&self, problem: &dyn ErasedProblem<D>) -> Vec<VariantStatus> {
        let pruned = prune(&problem.list(&self.device).0, &*self.device);
        let values = |a: &Axis| a.values().iter().map(ToString::to_string).collect();
        let axes = |s: &Space| s.axes().iter().map(|a| (a.name().to_string(), values(a))).collect();
        let stand = |v: Runner<'_, D>| {
            let arm = pruned.arms.iter().find(|a| a.variant == v.id());
            VariantStatus {
                id: v.id().to_string(),
                source: v.source(),
                reference: v.id() == problem.reference().id(),
                library: v.is_library(),
                fit: Some(v.fit(&self.device)),
                configs: arm.map_or(0, |a| usize::try_from(a.len()).unwrap_or(usize::MAX)),
                axes: arm.map(|a| axes(&a.space)).unwrap_or_default(),
            }
        };
        problem.runners().map(stand).collect()
    }

    /// Compiles one config of a variant.
    pub(crate) fn compile(
        &self,
        problem: &dyn ErasedProblem<D>,
        variant: &str,
        config: &Config,
    ) -> Result<Result<(), Rejection>, Error> {
        Ok(named(problem, variant)?.compile(config, &self.device))
    }

    /// A variant's space for a problem.
    pub(crate) fn space(&self, problem: &dyn ErasedProblem<D>, variant: &str) -> Result<Space, Error> {
        Ok(named(problem, variant)?.space(&self.device))
    }
}

/// The variant of this id.
pub(crate) fn named<'c, D: Device>(problem: &'c dyn ErasedProblem<D>, id: &str) -> Result<Runner<'c, D>, Error> {
    problem.find(id).ok_or_else(|| {
        let known = problem.runners().map(|v| v.id()).collect::<Vec<_>>().join(", ");
        Error::Unknown(format!("unknown variant '{id}': expected one of {known}"))
    })
}
