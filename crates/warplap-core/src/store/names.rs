//! Names: operations, devices, keys and notes come in, paths below the root go out. Nothing else becomes part of a path.

use std::path::{Path, PathBuf};

use super::{StoreError, slug_of};
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::record::{Edition, Record, SCHEMA};

/// The longest key or problem text that is kept.
const MAX_TEXT: usize = 1 << 20;
/// The end of the year 9999: a time after it is not one.
const MAX_TIME: u64 = 253_402_300_799;

/// The directory of records below the root.
pub(crate) const RECORDS: &str = "records-v1";
/// The directory of missed keys.
pub(crate) const MISSES: &str = "misses-v1";
/// The directory of notes on devices.
pub(crate) const DEVICES: &str = "devices-v1";
/// The directory of locks.
pub(crate) const LOCKS: &str = "locks-v1";

fn plain(name: &str, longest: usize, also: &[u8]) -> bool {
    let ok = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || also.contains(&b);
    (1..=longest).contains(&name.len()) && name.bytes().all(ok)
}

/// Whether a name can be an operation's.
pub(crate) fn is_op(name: &str) -> bool {
    plain(name, 64, b"_")
}

/// Whether a name can be a device's folder.
pub(crate) fn is_slug(name: &str) -> bool {
    plain(name, 64, b"-")
}

/// Whether a name can be a note's.
pub(crate) fn is_note(name: &str) -> bool {
    plain(name, 64, b"_-")
}

/// Whether a text can be a key's hash.
pub(crate) fn is_hash(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// A place below the root: device, operation, hash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) device: String,
    pub(crate) op: String,
    pub(crate) hash: String,
}

impl Place {
    /// The place of a key on a device.
    pub(crate) fn of(key: &Key, device_slug: &str) -> Result<Place, StoreError> {
        Place::named(device_slug, &key.op, &key.hash())
    }

    /// The place a record belongs to, by its content alone.
    pub(crate) fn of_record(record: &Record) -> Result<Place, StoreError> {
        let key = Key::new(&record.op, record.key.clone());
        Place::of(&key, &slug_of(&record.device))
    }

    pub(crate) fn named(device: &str, op: &str, hash: &str) -> Result<Place, StoreError> {
        if !is_op(op) {
            return Err(StoreError::Invalid(format!("'{}' is no operation's name", shorten(op))));
        }
        if !is_slug(device) {
            return Err(StoreError::Invalid(format!("'{}' is no device's folder name", shorten(device))));
        }
        if !is_hash(hash) {
            return Err(StoreError::Invalid(format!("'{}' is no key's hash", shorten(hash))));
        }
        Ok(Place { device: device.into(), op: op.into(), hash: hash.into() })
    }

    /// The file of this place in one of the directories below the root.
    pub(crate) fn file(&self, root: &Path, kind: &str) -> PathBuf {
        root.join(kind).join(&self.device).join(&self.op).join(format!("{}.json", self.hash))
    }

    /// The lock file of this place for one purpose.
    pub(crate) fn lock(&self, root: &Path, purpose: &str) -> PathBuf {
        root.join(LOCKS).join(format!("{}.{}.{}.{purpose}", self.device, self.op, self.hash))
    }
}

/// A name for a message, whatever was put in it.
pub(crate) fn shorten(text: &str) -> String {
    text.chars().take(40).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Whether a record that could be read also makes sense; why not.
pub(crate) fn unsound(record: &Record) -> Option<&'static str> {
    if record.schema != SCHEMA {
        return Some("its form is of an older version");
    }
    if record.key.len() > MAX_TEXT || record.problem.len() > MAX_TEXT {
        return Some("its key or problem is too long");
    }
    let odd = |e: &Edition| e.tuned_at > MAX_TIME || e.origin.len() > 64;
    record.editions.iter().any(odd).then_some("it has an edition from no possible time or place")
}

/// A new record of one edition.
pub(crate) fn new_record(key: &Key, device: &Fingerprint, edition: Edition, problem: &str) -> Record {
    let mut record = Record {
        schema: SCHEMA,
        op: key.op.clone(),
        key: key.text.clone(),
        problem: problem.to_string(),
        device: device.hard.clone(),
        editions: Vec::new(),
    };
    record.put(edition);
    record
}

/// What is there with a record merged in. What claims to come from `local` and differs from what `local` has is left out.
pub(crate) fn join(there: Record, mut other: Record, local: &str) -> Record {
    use crate::fingerprint::soft_id;
    let has = |e: &Edition| there.editions.iter().any(|t| t.origin == local && soft_id(&t.soft) == soft_id(&e.soft));
    let before = other.editions.len();
    other.editions.retain(|e| e.origin != local || !has(e));
    if other.editions.is_empty() && before > 0 {
        return there;
    }
    there.merge(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_become_part_of_a_path() {
        let hash = "0123456789abcdef0123456789abcdef";
        assert!(Place::named("cpu-1", "matmul_2", hash).is_ok());
        for bad in ["", ".", "..", "../../etc", "a/b", "a\\b", "A", "a b", "a\0", "ä", &"x".repeat(65)] {
            assert!(Place::named("cpu", bad, hash).is_err(), "{bad}");
            assert!(Place::named(bad, "op", hash).is_err(), "{bad}");
            assert!(Place::named("cpu", "op", bad).is_err(), "{bad}");
            assert!(!is_note(bad));
        }
    }
}
