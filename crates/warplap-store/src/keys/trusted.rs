//! Whose bundles a store takes: keys come in, go, and are revoked; a bundle's claims and signers come in, and yes or no
//! goes out. And what a signature is worth: a winner from elsewhere is proved here, or a signature is enough.
//!
//! It is kept as a note of the store itself. Where it cannot be read nobody is trusted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::backends::backend::{Change, ReadResult};
use crate::bundle::Claims;
use crate::keys::signing::PublicKey;
use crate::names::Place;
use crate::records::record::{Record, TuningRun};
use crate::rules::WRITE_WAIT;
use crate::small::{read_note, write_note};
use crate::{Merged, Store, StoreError};

/// Notes of the store itself stand under this name in place of a device's.
const STORE: &str = "store";
const NAME: &str = "trusted";

/// When a winner from elsewhere may run here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrustPolicy {
    /// Once it has passed the gate here.
    #[default]
    Proved,
    /// Once a trusted key has signed it.
    Signed,
    /// Whoever it came from: for those alone who know what they do.
    Any,
}

impl TrustPolicy {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            TrustPolicy::Proved => "proved",
            TrustPolicy::Signed => "signed",
            TrustPolicy::Any => "any",
        }
    }
}

/// What is taken besides the usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Take {
    /// Bundles that are older than one that was taken before.
    pub older: bool,
}

/// Whom a store trusts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trusted {
    /// Whether bundles are taken alone that a trusted key has signed.
    pub required: bool,
    /// The keys, and what the user calls them.
    pub keys: BTreeMap<String, String>,
    /// Keys that were trusted once, and what the user called them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub revoked: BTreeMap<String, String>,
    /// How many of the keys must have signed a bundle; nothing is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<usize>,
    /// When a winner from elsewhere may run here.
    #[serde(default)]
    pub policy: TrustPolicy,
    /// The highest serial that was taken, by the signer's origin and the bundle's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub serials: BTreeMap<String, BTreeMap<String, u64>>,
}

impl Trusted {
    /// Whether a key is one of them.
    pub fn has(&self, key: &PublicKey) -> bool {
        self.keys.contains_key(&key.to_string())
    }

    /// The keys that are trusted.
    pub fn trusted_keys(&self) -> Vec<PublicKey> {
        self.keys.keys().filter_map(|key| key.parse().ok()).collect()
    }

    /// The keys that were trusted once.
    pub fn revoked_keys(&self) -> Vec<PublicKey> {
        self.revoked.keys().filter_map(|key| key.parse().ok()).collect()
    }

    /// How many of the keys must have signed a bundle.
    pub fn needed(&self) -> usize {
        self.threshold.unwrap_or(1).max(1)
    }

    /// Trusts a key, also one that was revoked.
    pub fn add(&mut self, key: &PublicKey, name: &str) {
        self.revoked.remove(&key.to_string());
        self.keys.insert(key.to_string(), name.to_string());
    }

    /// Revokes a key, whether or not it was trusted: what it signed is refused, and what came under it answers no more.
    pub fn revoke(&mut self, key: &PublicKey) {
        let name = self.keys.remove(&key.to_string()).unwrap_or_default();
        self.revoked.insert(key.to_string(), name);
    }

    /// Whether an edition that was not measured here came under revoked keys alone.
    fn disowns(&self, revoked: &BTreeSet<String>, edition: &TuningRun) -> bool {
        let signed = !edition.vouched.is_empty();
        revoked.contains(&edition.origin) || signed && edition.vouched.is_subset(revoked)
    }

    /// Whether a signature, or nothing at all, is enough for an edition's winner to run here.
    fn is_enough(&self, edition: &TuningRun) -> bool {
        let signers = || self.trusted_keys().iter().filter(|key| edition.vouched.contains(&key.origin())).count();
        match self.policy {
            TrustPolicy::Proved => false,
            TrustPolicy::Signed => signers() >= self.needed(),
            TrustPolicy::Any => true,
        }
    }
}

impl Store {
    /// Whom this store trusts; an error where that cannot be read.
    pub fn trusted(&self) -> Result<Trusted, StoreError> {
        let place = Place::note(STORE, NAME)?;
        self.read_trusted(&place, &self.backend.get(&place)?)
    }

    /// Changes whom this store trusts, durably.
    pub fn trust(&self, change: impl Fn(&mut Trusted)) -> Result<Trusted, StoreError> {
        let place = Place::note(STORE, NAME)?;
        let mut became = Trusted::default();
        self.backend.put(&place, WRITE_WAIT, &mut |result| {
            became = self.read_trusted(&place, &result)?;
            change(&mut became);
            let note = serde_json::to_value(&became).map_err(|e| StoreError::Invalid(e.to_string()))?;
            Ok(Change::to(write_note(&place, note)?))
        })?;
        Ok(became)
    }

    fn read_trusted(&self, place: &Place, result: &ReadResult) -> Result<Trusted, StoreError> {
        let untrusted = |why: String| StoreError::Untrusted {
            path: self.path(place),
            why,
            remedy: "remove it, and say again whom the store trusts (warplap store trust add)".into(),
        };
        let note = read_note(result, place).map_err(untrusted)?;
        note.map_or(Ok(Trusted::default()), |note| serde_json::from_value(note).map_err(|e| untrusted(e.to_string())))
    }

    /// Merges records that were signed by keys of these origins, each as [`Store::merge`] would. Whoever calls this has
    /// checked the signatures.
    pub fn merge_vouched(
        &self,
        mut records: Vec<Record>,
        origins: &BTreeSet<String>,
    ) -> Vec<Result<Merged, StoreError>> {
        for edition in records.iter_mut().flat_map(|record| &mut record.editions) {
            edition.vouched = origins.clone();
        }
        self.take_in(records)
    }

    /// Whether the store's user wants no proof of an edition that came from elsewhere.
    pub fn needs_no_proof(&self, edition: &TuningRun) -> bool {
        self.trusted().is_ok_and(|trusted| trusted.is_enough(edition))
    }

    /// A record without what came under keys that were revoked; without all that came from elsewhere where nobody can
    /// say whom the store trusts.
    pub(crate) fn without_revoked(&self, mut record: Record) -> Record {
        let elsewhere = |e: &TuningRun| e.origin != self.id();
        if !record.editions.iter().any(elsewhere) {
            return record;
        }
        match self.trusted() {
            Ok(trusted) if trusted.revoked.is_empty() => {}
            Ok(trusted) => {
                let revoked = trusted.revoked_keys().iter().map(PublicKey::origin).collect();
                record.editions.retain(|e| !elsewhere(e) || !trusted.disowns(&revoked, e));
            }
            Err(e) => {
                self.warn_once("trusted".into(), &e.to_string());
                record.editions.retain(|e| !elsewhere(e));
            }
        }
        record
    }

    /// Whether this store takes a bundle that claims this and that these signed; it remembers the serial of one it
    /// takes.
    pub(crate) fn takes(&self, claims: &Claims, signers: &BTreeSet<PublicKey>, take: Take) -> Result<(), StoreError> {
        let (trusted, now) = (self.trusted()?, now());
        if let Some(ago) = claims.expires.and_then(|at| now.checked_sub(at)) {
            let why = format!("it expired {} ago: ask its maker for a newer one", period(ago));
            return Err(StoreError::OutOfDate { why });
        }
        let unsigned = |why: String| Err(StoreError::Unsigned { why });
        let good = signers.iter().filter(|key| trusted.has(key)).count();
        match good {
            0 if trusted.required => return unsigned("nobody whom this store trusts signed it".into()),
            1.. if good < trusted.needed() => {
                return unsigned(format!("{good} of the {} keys that are needed signed it", trusted.needed()));
            }
            _ => {}
        }
        let serial = claims.serial.unwrap_or(0);
        let seen = |key: &PublicKey| trusted.serials.get(&key.origin()).and_then(|of| of.get(&claims.name)).copied();
        if let Some(newer) = signers.iter().filter_map(seen).max().filter(|seen| serial < *seen && !take.older) {
            let why = format!("its serial is {serial}, and {newer} was taken before (--allow-older takes it)");
            return Err(StoreError::OutOfDate { why });
        }
        if claims.serial.is_some() && signers.iter().any(|key| seen(key).is_none_or(|seen| seen < serial)) {
            self.trust(|trusted| {
                for key in signers {
                    let seen = trusted.serials.entry(key.origin()).or_default().entry(claims.name.clone()).or_default();
                    *seen = serial.max(*seen);
                }
            })?;
        }
        Ok(())
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Seconds for people.
fn period(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} minutes", seconds / 60),
        7_200..172_800 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
