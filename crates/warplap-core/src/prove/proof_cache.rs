//! Promoted: candidates that passed on this machine for a key, in a worker or where the road admitted them, are kept in
//! a note of the store, which no bundle carries; under the same code, driver and compiler they need not pass again.
//! Where the key was raced to its end and its record is gone since, those who passed are enough.

use std::cell::{Cell, RefCell};

use serde::{Deserialize, Serialize};

use crate::candidate::{Candidate, SourceHash};
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::prove::sandbox::Passed;
use crate::store::Store;

/// Candidates kept per key; the first ones leave.
const MOST: usize = 512;

#[derive(Serialize, Deserialize)]
struct ProofNote {
    soft: String,
    passed: Vec<PassedCandidate>,
    /// Whether the search came to its end.
    #[serde(default)]
    whole: bool,
    /// Variants that were tried in a worker, whatever became of them there.
    #[serde(default)]
    tried: Vec<Tried>,
    /// A library's candidates that could not be built there: asking again would start a worker for nothing.
    #[serde(default)]
    refused: Vec<Candidate>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Tried {
    variant: String,
    source: SourceHash,
}

impl Tried {
    fn of(candidate: &Candidate) -> Self {
        Tried { variant: candidate.variant.clone(), source: candidate.source.clone() }
    }
}

#[derive(Clone, Serialize, Deserialize)]
struct PassedCandidate {
    #[serde(flatten)]
    candidate: Candidate,
    #[serde(flatten)]
    passed: Passed,
}

/// The candidates of one key that passed.
pub(crate) struct ProofCache<'s> {
    store: &'s Store,
    slug: String,
    name: String,
    soft: String,
    entries: RefCell<Vec<PassedCandidate>>,
    tried: RefCell<Vec<Tried>>,
    refused: RefCell<Vec<Candidate>>,
    whole: Cell<bool>,
    changed: Cell<bool>,
}

impl<'s> ProofCache<'s> {
    pub(crate) fn of(store: &'s Store, device: &Fingerprint, key: &Key) -> Self {
        let (slug, soft, name) = (device.slug(), device.soft_id(), format!("passed-{}", key.hash()));
        let note = store.note(&slug, &name).and_then(|note| serde_json::from_value::<ProofNote>(note).ok());
        let note = note.filter(|n| n.soft == soft);
        let (passed, tried, refused, whole) =
            note.map_or_else(Default::default, |n| (n.passed, n.tried, n.refused, n.whole));
        let (entries, tried, refused) = (RefCell::new(passed), RefCell::new(tried), RefCell::new(refused));
        let (whole, changed) = (Cell::new(whole), Cell::new(false));
        ProofCache { store, slug, name, soft, entries, tried, refused, whole, changed }
    }

    /// Whether nobody has passed yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.borrow().is_empty()
    }

    /// Whether the key was raced to its end with this variant, and this setting of it was not worth a try then.
    pub(crate) fn passed_over(&self, candidate: &Candidate) -> bool {
        self.whole.get() && self.tried.borrow().contains(&Tried::of(candidate)) && self.find(candidate).is_none()
    }

    /// A candidate was tried in a worker.
    pub(crate) fn tried(&self, candidate: &Candidate) {
        let (tried, mut all) = (Tried::of(candidate), self.tried.borrow_mut());
        if !all.contains(&tried) {
            all.push(tried);
            self.changed.set(true);
        }
    }

    /// A candidate could not be built in a worker.
    pub(crate) fn refuse(&self, candidate: &Candidate) {
        let mut refused = self.refused.borrow_mut();
        if refused.len() < MOST && !refused.contains(candidate) {
            refused.push(candidate.clone());
            self.changed.set(true);
        }
    }

    /// Whether it was refused so before.
    pub(crate) fn refused(&self, candidate: &Candidate) -> bool {
        self.refused.borrow().contains(candidate)
    }

    /// The race of the key came to its end, or was cut short.
    pub(crate) fn ended(&self, whole: bool) {
        let was = self.whole.replace(whole || self.whole.get());
        self.changed.set(self.changed.get() || was != self.whole.get());
    }

    pub(crate) fn find(&self, candidate: &Candidate) -> Option<Passed> {
        self.entries.borrow().iter().find(|e| e.candidate == *candidate).map(|e| e.passed)
    }

    pub(crate) fn add(&self, candidate: &Candidate, passed: Passed) {
        self.entries.borrow_mut().push(PassedCandidate { candidate: candidate.clone(), passed });
        self.changed.set(true);
    }

    pub(crate) fn remove(&self, candidate: &Candidate) {
        let mut entries = self.entries.borrow_mut();
        let before = entries.len();
        entries.retain(|e| e.candidate != *candidate);
        self.changed.set(self.changed.get() || entries.len() < before);
    }

    /// Writes what is new. Whoever races a key has its lock, so nobody else writes this note.
    pub(crate) fn keep(&self) {
        if !self.changed.replace(false) {
            return;
        }
        let entries = self.entries.borrow();
        let note = ProofNote {
            soft: self.soft.clone(),
            passed: entries[entries.len().saturating_sub(MOST)..].to_vec(),
            whole: self.whole.get(),
            tried: self.tried.borrow().clone(),
            refused: self.refused.borrow().clone(),
        };
        let Ok(note) = serde_json::to_value(&note) else { return };
        if let Err(e) = self.store.put_note(&self.slug, &self.name, &note) {
            tracing::warn!("who passed was not kept: {e}");
        }
    }
}
