//! Names: operations, devices, keys and notes come in, places go out. Nothing else becomes part of a path.

use crate::records::fingerprint::Fingerprint;
use crate::records::key::Key;
use crate::records::record::{Record, SCHEMA, TuningRun};
use crate::{MAX_RECORD, StoreError, slug_of};

/// The longest key or problem text that is kept.
pub(crate) const MAX_TEXT: usize = 1 << 20;
/// The end of the year 9999: a time after it is not one.
pub(crate) const MAX_TIME: u64 = 253_402_300_799;

/// The largest small document: identity, missed key, note.
pub(crate) const MAX_SMALL: u64 = 4 << 20;

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

/// What a document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// All that is known of a key on a device; its name is `<operation>/<hash of the key>`.
    Record,
    /// A key that was asked for and not found; named like a record.
    Miss,
    /// A small document on a device, under a name of its own.
    Note,
}

impl Kind {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Record => "record",
            Kind::Miss => "miss",
            Kind::Note => "note",
        }
    }

    /// The largest document of this kind, in bytes.
    pub fn limit(self) -> u64 {
        if self == Kind::Record { MAX_RECORD } else { MAX_SMALL }
    }
}

/// Where a document stands: device, kind and name. The names are plain (lower case letters, digits, `_` and `-`; one
/// `/` between a record's operation and hash), so they can be parts of a path, a URL or a table's key as they are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    kind: Kind,
    device: String,
    name: String,
}

impl Place {
    /// A place by its parts; an error when one of them is no such name.
    pub fn new(kind: Kind, device: &str, name: &str) -> Result<Place, StoreError> {
        match (kind, name.split_once('/')) {
            (Kind::Note, _) => Place::note(device, name),
            (_, Some((op, hash))) => Place::filed(kind, device, op, hash),
            (_, None) => Place::filed(kind, device, name, ""),
        }
    }

    /// The place of a key's record on a device.
    pub fn of(key: &Key, device_slug: &str) -> Result<Place, StoreError> {
        Place::filed(Kind::Record, device_slug, &key.op, &key.hash())
    }

    /// The place a record belongs to, by its content alone.
    pub fn of_record(record: &Record) -> Result<Place, StoreError> {
        let key = Key::new(&record.op, record.key.clone());
        Place::of(&key, &slug_of(&record.device))
    }

    /// The place of a note on a device.
    pub fn note(device: &str, name: &str) -> Result<Place, StoreError> {
        if !is_slug(device) || !is_note(name) {
            let names = format!("'{}' or '{}'", shorten(device), shorten(name));
            return Err(StoreError::Invalid(format!("{names} is no name for a note")));
        }
        Ok(Place { kind: Kind::Note, device: device.into(), name: name.into() })
    }

    /// The place of a record or a miss by device, operation and hash.
    pub(crate) fn filed(kind: Kind, device: &str, op: &str, hash: &str) -> Result<Place, StoreError> {
        if !is_op(op) {
            return Err(StoreError::Invalid(format!("'{}' is no operation's name", shorten(op))));
        }
        if !is_slug(device) {
            return Err(StoreError::Invalid(format!("'{}' is no device's folder name", shorten(device))));
        }
        if !is_hash(hash) {
            return Err(StoreError::Invalid(format!("'{}' is no key's hash", shorten(hash))));
        }
        Ok(Place { kind, device: device.into(), name: format!("{op}/{hash}") })
    }

    /// What stands there.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The device's folder name, [`Fingerprint::slug`].
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The name among the documents of its kind and device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same name on another device.
    pub(crate) fn on(&self, device: &str) -> Place {
        Place { device: device.into(), ..self.clone() }
    }

    /// Where the key of a record counts as missed.
    pub(crate) fn miss(&self) -> Place {
        Place { kind: Kind::Miss, ..self.clone() }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind.word(), self.device, self.name)
    }
}

/// A name for a message, whatever was put in it.
pub(crate) fn shorten(text: &str) -> String {
    text.chars().take(40).map(|c| if crate::io::sanitize_text::is_unseen(c) { '?' } else { c }).collect()
}

/// A new record of one edition.
pub(crate) fn new_record(key: &Key, device: &Fingerprint, edition: TuningRun, problem: &str) -> Record {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_sort_by_device_then_operation_then_hash() {
        let at = |op: &str, digit: &str| Place::filed(Kind::Record, "cpu", op, &digit.repeat(32)).unwrap();
        assert!([at("a", "f"), at("a0", "e"), at("a_b", "0"), at("ab", "0"), at("ab", "1")].is_sorted());
    }

    #[test]
    fn only_plain_names_become_part_of_a_path() {
        let hash = "0123456789abcdef0123456789abcdef";
        assert!(Place::filed(Kind::Record, "cpu-1", "matmul_2", hash).is_ok());
        for bad in ["", ".", "..", "../../etc", "a/b", "a\\b", "A", "a b", "a\0", "ä", &"x".repeat(65)] {
            for kind in [Kind::Record, Kind::Miss] {
                assert!(Place::filed(kind, "cpu", bad, hash).is_err(), "{bad}");
                assert!(Place::filed(kind, bad, "op", hash).is_err(), "{bad}");
                assert!(Place::filed(kind, "cpu", "op", bad).is_err(), "{bad}");
                assert!(Place::new(kind, "cpu", &format!("{bad}/{hash}")).is_err(), "{bad}");
                assert!(Place::new(kind, "cpu", bad).is_err(), "{bad}");
            }
            assert!(Place::note("cpu", bad).is_err() && Place::new(Kind::Note, bad, "n").is_err(), "{bad}");
        }
    }
}
