//! Quarantine: candidates that crashed, hung or were wrong in a worker come in, with the reason; they are not tried
//! again until their code, the driver or the compiler changes, or somebody clears them.
//!
//! One note in the store for each, filed under the device: writers of different candidates never meet.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::candidate::Candidate;
use crate::fingerprint::{Fingerprint, soft_id};
use crate::rejection::Rejection;
use crate::store::{Store, StoreError};

const PREFIX: &str = "quarantine-";

/// How the reason begins for which somebody in quarantine is not tried.
pub(crate) const PUT_AWAY: &str = "in quarantine";

/// A candidate in quarantine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quarantined {
    /// The operation.
    pub op: String,
    /// Who.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// Driver, compiler and program versions it failed under.
    pub soft: BTreeMap<String, String>,
    /// The problem it failed on.
    pub problem: String,
    /// How.
    pub rejection: Rejection,
    /// How often it was seen to fail.
    pub count: u32,
    /// Seconds since 1970 when it failed last.
    pub at: u64,
}

impl Quarantined {
    /// The name of its note: all that must stay as it is for the quarantine to hold.
    fn name(&self) -> String {
        name(&self.op, &self.candidate, &self.soft)
    }
}

fn name(op: &str, candidate: &Candidate, soft: &BTreeMap<String, String>) -> String {
    let mut hasher = blake3::Hasher::new();
    for text in [op, &candidate.variant, &candidate.config.to_string(), &candidate.source.0, &soft_id(soft)] {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    format!("{PREFIX}{}", &hasher.finalize().to_hex()[..32])
}

/// Whether a candidate that left so must not be tried again. Out of memory, or a limit exceeded, may be another day's
/// weather; what does not build harms nobody.
pub fn deserved(rejection: &Rejection) -> bool {
    matches!(rejection, Rejection::Crashed { .. } | Rejection::TimedOut { .. } | Rejection::WrongAnswer { .. })
}

/// The quarantine of one operation on one device.
pub(crate) struct Quarantine<'s> {
    store: &'s Store,
    slug: String,
    op: String,
    soft: &'s BTreeMap<String, String>,
}

impl<'s> Quarantine<'s> {
    pub(crate) fn of(store: &'s Store, device: &'s Fingerprint, op: &str) -> Self {
        Quarantine { store, slug: device.slug(), op: op.to_string(), soft: &device.soft }
    }

    /// What is held against a candidate.
    pub(crate) fn find(&self, candidate: &Candidate) -> Option<Quarantined> {
        let note = self.store.note(&self.slug, &name(&self.op, candidate, self.soft))?;
        // A hash is no proof of who is meant.
        serde_json::from_value::<Quarantined>(note).ok().filter(|q| q.op == self.op && q.candidate == *candidate)
    }

    /// Puts a candidate in.
    pub(crate) fn put(&self, candidate: &Candidate, rejection: &Rejection, problem: &str) {
        let quarantined = Quarantined {
            op: self.op.clone(),
            candidate: candidate.clone(),
            soft: self.soft.clone(),
            problem: problem.to_string(),
            rejection: rejection.clone(),
            count: self.find(candidate).map_or(0, |q| q.count).saturating_add(1),
            at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        };
        if let Err(e) = put(self.store, &self.slug, &quarantined) {
            tracing::warn!("{candidate} failed and could not be put into quarantine: {e}");
        }
    }
}

/// Puts one in, durably.
pub fn put(store: &Store, device_slug: &str, quarantined: &Quarantined) -> Result<(), StoreError> {
    let note = serde_json::to_value(quarantined).map_err(|e| StoreError::Invalid(e.to_string()))?;
    store.put_note(device_slug, &quarantined.name(), &note)
}

/// Everyone in quarantine, with the folder name of the device, sorted by device, operation and candidate.
pub fn all(store: &Store) -> Vec<(String, Quarantined)> {
    let notes = store.notes().into_iter().filter(|(_, name)| name.starts_with(PREFIX));
    let read = |(slug, name): (String, String)| {
        let quarantined = serde_json::from_value(store.note(&slug, &name)?).ok()?;
        Some((slug, quarantined))
    };
    let mut all: Vec<(String, Quarantined)> = notes.filter_map(read).collect();
    all.sort_by(|a, b| (&a.0, &a.1.op, &a.1.candidate).cmp(&(&b.0, &b.1.op, &b.1.candidate)));
    all
}

/// Lets one go; `false` when it was not there.
pub fn clear(store: &Store, device_slug: &str, quarantined: &Quarantined) -> Result<bool, StoreError> {
    store.remove_note(device_slug, &quarantined.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::SourceHash;
    use crate::space::Config;

    fn device(driver: &str) -> Fingerprint {
        Fingerprint::new([("model", "x".to_string())], [("driver", driver.to_string())])
    }

    fn candidate(code: &str) -> Candidate {
        Candidate { variant: "v".into(), config: Config::new().with("i", 1), source: SourceHash::of(&[code]) }
    }

    #[test]
    fn it_holds_until_the_code_or_the_driver_changes_and_counts() {
        let store = Store::memory();
        let (device, crashed) = (device("1"), Rejection::Crashed { reason: "signal 11".into() });
        let quarantine = Quarantine::of(&store, &device, "gemm");
        assert!(quarantine.find(&candidate("a")).is_none());
        quarantine.put(&candidate("a"), &crashed, "gemm:m=1");
        quarantine.put(&candidate("a"), &crashed, "gemm:m=2");
        let result = quarantine.find(&candidate("a")).unwrap();
        assert_eq!((result.count, result.problem.as_str(), result.rejection), (2, "gemm:m=2", crashed));
        assert!(quarantine.find(&candidate("b")).is_none());
        assert!(Quarantine::of(&store, &self::device("2"), "gemm").find(&candidate("a")).is_none());
        assert!(Quarantine::of(&store, &device, "bsr").find(&candidate("a")).is_none());
    }

    #[test]
    fn everyone_is_listed_and_can_be_let_go() {
        let (store, device) = (Store::memory(), device("1"));
        let quarantine = Quarantine::of(&store, &device, "gemm");
        store.put_note(&device.slug(), "ceilings", &serde_json::json!({})).unwrap();
        quarantine.put(&candidate("a"), &Rejection::TimedOut { seconds: 0.5 }, "gemm:m=1");
        quarantine.put(&candidate("b"), &Rejection::TimedOut { seconds: 0.5 }, "gemm:m=1");
        let everyone = all(&store);
        assert_eq!(everyone.len(), 2);
        assert!(clear(&store, &everyone[0].0, &everyone[0].1).unwrap());
        assert!(!clear(&store, &everyone[0].0, &everyone[0].1).unwrap());
        assert_eq!(all(&store), everyone[1..]);
        assert!(store.note(&device.slug(), "ceilings").is_some());
    }
}
