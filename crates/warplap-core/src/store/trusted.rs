//! Whose bundles a store takes: keys come in and go; a bundle's signers come in, and yes or no goes out.
//!
//! It is kept as a note of the store itself. Where it cannot be read nobody is trusted.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::names::Place;
use super::rules::WRITE_WAIT;
use super::shelf::{Change, Found};
use super::signing::PublicKey;
use super::small::{read_note, write_note};
use super::{Store, StoreError};

/// Notes of the store itself stand under this name in place of a device's.
const STORE: &str = "store";
const NAME: &str = "trusted";

/// Whom a store trusts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trusted {
    /// Whether bundles are taken alone that a trusted key has signed.
    pub required: bool,
    /// The keys, and what the user calls them.
    pub keys: BTreeMap<String, String>,
}

impl Trusted {
    /// Whether a key is one of them.
    pub fn has(&self, key: &PublicKey) -> bool {
        self.keys.contains_key(&key.to_string())
    }
}

impl Store {
    /// Whom this store trusts; an error where that cannot be read.
    pub fn trusted(&self) -> Result<Trusted, StoreError> {
        let place = Place::note(STORE, NAME)?;
        self.read_trusted(&place, &self.shelf.get(&place)?)
    }

    /// Changes whom this store trusts, durably.
    pub fn trust(&self, change: impl Fn(&mut Trusted)) -> Result<Trusted, StoreError> {
        let place = Place::note(STORE, NAME)?;
        let mut became = Trusted::default();
        self.shelf.put(&place, WRITE_WAIT, &mut |found| {
            became = self.read_trusted(&place, &found)?;
            change(&mut became);
            let note = serde_json::to_value(&became).map_err(|e| StoreError::Invalid(e.to_string()))?;
            Ok(Change::to(write_note(&place, note)?))
        })?;
        Ok(became)
    }

    fn read_trusted(&self, place: &Place, found: &Found) -> Result<Trusted, StoreError> {
        let untrusted = |why: String| StoreError::Untrusted {
            path: self.path(place),
            why,
            remedy: "remove it, and say again whom the store trusts (warplap store trust add)".into(),
        };
        let note = read_note(found, place).map_err(untrusted)?;
        note.map_or(Ok(Trusted::default()), |note| serde_json::from_value(note).map_err(|e| untrusted(e.to_string())))
    }

    /// Whether this store takes what these signed; `None`: somebody did not sign.
    pub(super) fn takes(&self, signers: Option<&BTreeSet<PublicKey>>) -> Result<(), StoreError> {
        let trusted = self.trusted()?;
        if !trusted.required {
            return Ok(());
        }
        let refused = |why: String| Err(StoreError::Unsigned { why });
        match signers.map(|all| all.iter().find(|key| !trusted.has(key))) {
            None => refused("nobody signed it".into()),
            Some(Some(stranger)) => refused(format!("it is signed by {stranger}, whom nobody here knows")),
            Some(None) => Ok(()),
        }
    }
}
