//! Bundles: records of one or several stores in one file, and back. JSON lines: a header with the count and a checksum
//! over all that follows, then one record a line, sorted by device, operation and key hash.
//!
//! A bundle is read whole and checked whole before anything of it is used. It has no paths: where a record goes follows
//! from what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::care::{for_each, spread};
use super::file::parse;
use super::names::Place;
use super::signing::{PublicKey, SecretKey};
use super::{Checked, Entry, MAX_RECORD, Merged, Store, StoreError};
use crate::given;
use crate::letters::shown;
use crate::record::Record;

const FORMAT: &str = "warplap-bundle";
const VERSION: u32 = 1;
/// Writers at once during an import: one waits for the disk while the other computes.
const WRITERS: usize = 3;
/// Records written in one go. Each holds two open files meanwhile, and some systems give a process 256 in all.
const BATCH: usize = 32;

/// The largest bundle that is read, in bytes.
pub const MAX_BUNDLE: u64 = 1 << 30;
/// The most records in one bundle.
pub const MAX_RECORDS: usize = 1_000_000;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: String,
    version: u32,
    count: usize,
    checksum: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signed: Option<Signed>,
}

/// Who vouches for a bundle.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signed {
    key: String,
    signature: String,
}

impl Header {
    /// What is signed: the form, how many records there are, and what they are.
    fn message(&self) -> String {
        format!("{} {}\n{}\n{}\n", self.format, self.version, self.count, self.checksum)
    }
}

/// Records in one file.
#[derive(Clone, Debug, PartialEq)]
pub struct Bundle {
    // As text: a bundle of many trials is several times larger once parsed.
    records: BTreeMap<Place, Box<str>>,
    // Who signed what is in it; nothing where somebody did not.
    signers: Option<BTreeSet<PublicKey>>,
    /// Records of the store that could not be taken: damaged, misplaced, or a newer program's.
    pub left_out: usize,
}

impl Default for Bundle {
    /// A bundle of nothing, which everybody has signed.
    fn default() -> Self {
        Bundle { records: BTreeMap::new(), signers: Some(BTreeSet::new()), left_out: 0 }
    }
}

/// Why a bundle was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// It could not be read.
    #[error("the bundle cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// It is larger than allowed.
    #[error("the bundle is too large: {0}")]
    TooLarge(String),
    /// It does not start like a bundle, or is of a version this program does not know.
    #[error("this is no bundle of version {VERSION}: {0}")]
    NotABundle(String),
    /// It is cut short, changed, or two records share a place.
    #[error("the bundle is damaged: {0}; nothing was imported")]
    Damaged(String),
    /// Its signature is not its key's.
    #[error(
        "the bundle's signature does not fit: it was changed after {key} signed it, or never signed by it; nothing was imported"
    )]
    Forged {
        /// The key that is named in it.
        key: String,
    },
    /// A line is no sound record.
    #[error("record {line} of the bundle cannot be used: {why}; nothing was imported")]
    BadRecord {
        /// Which record, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

/// What an import did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Records for keys that had none.
    pub added: usize,
    /// Records that brought something new.
    pub joined: usize,
    /// Records that were known already.
    pub unchanged: usize,
    /// Records a newer program keeps here, which this one must not touch: why, each.
    pub refused: Vec<String>,
}

impl Bundle {
    /// The records of a store for which `keep` says yes.
    pub fn of(store: &Store, keep: impl Fn(&Entry) -> bool) -> Bundle {
        let entries: Vec<Entry> = store.entries().into_iter().filter(keep).collect();
        let found = Mutex::new(Bundle { signers: None, ..Bundle::default() });
        for_each(store, &entries, |_, checked| {
            let line = match checked {
                Checked::Whole(record) => line(&record),
                _ => None,
            };
            let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match line {
                Some((place, text)) => drop(found.records.insert(place, text)),
                None => found.left_out += 1,
            }
        });
        found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A bundle of these records; those of one key and device are merged.
    pub fn of_records(records: impl IntoIterator<Item = Record>) -> Bundle {
        let mut bundle = Bundle { signers: None, ..Bundle::default() };
        for record in records {
            bundle.add(record);
        }
        bundle
    }

    fn add(&mut self, mut record: Record) {
        let there = Place::of_record(&record).ok().and_then(|place| self.records.get(&place));
        record = match there.and_then(|text| parse(text).ok()) {
            Some(there) => there.merge(record),
            None => {
                record.settle();
                record
            }
        };
        match line(&record) {
            Some((place, text)) => drop(self.records.insert(place, text)),
            None => self.left_out += 1,
        }
    }

    /// How many records it has.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The records, in their order.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.records.values().filter_map(|text| parse(text).ok())
    }

    /// The records of both. The order of merging, and merging twice, make no difference.
    pub fn merge(mut self, other: Bundle) -> Bundle {
        for (place, text) in other.records {
            match self.records.get(&place) {
                Some(there) if *there == text => {}
                Some(_) => drop(parse(&text).map(|record| self.add(record))),
                None => drop(self.records.insert(place, text)),
            }
        }
        self.left_out = self.left_out.max(other.left_out);
        self.signers = self.signers.zip(other.signers).map(|(one, two)| one.into_iter().chain(two).collect());
        self
    }

    /// Who signed what is in it; `None` where somebody did not.
    pub fn signers(&self) -> Option<&BTreeSet<PublicKey>> {
        self.signers.as_ref()
    }

    /// The file's bytes. The same records give the same bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.written(None)
    }

    /// The file's bytes with a signature.
    pub fn to_signed_bytes(&self, key: &SecretKey) -> Vec<u8> {
        self.written(Some(key))
    }

    fn written(&self, key: Option<&SecretKey>) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.records.values().map(|text| text.len() + 1).sum());
        for text in self.records.values() {
            body.extend_from_slice(text.as_bytes());
            body.push(b'\n');
        }
        let (format, checksum) = (FORMAT.into(), format!("blake3:{}", blake3::hash(&body).to_hex()));
        let mut header = Header { format, version: VERSION, count: self.records.len(), checksum, signed: None };
        header.signed =
            key.map(|key| Signed { key: key.public().to_string(), signature: key.sign(header.message().as_bytes()) });
        let mut bytes = serde_json::to_vec(&header).unwrap_or_default();
        bytes.push(b'\n');
        bytes.append(&mut body);
        bytes
    }

    /// Reads a bundle from bytes, all of it or nothing.
    pub fn parse(bytes: &[u8]) -> Result<Bundle, BundleError> {
        if bytes.len() as u64 > MAX_BUNDLE {
            return Err(BundleError::TooLarge(format!("{} bytes, at most {MAX_BUNDLE}", bytes.len())));
        }
        let damaged = |why: &str| BundleError::Damaged(why.to_string());
        // No header is longer than this, and without an end of line there is none.
        let end = bytes.iter().take(1024).position(|b| *b == b'\n');
        let end = end.ok_or_else(|| BundleError::NotABundle("it has no header line".into()))?;
        let header: Header = serde_json::from_slice(&bytes[..end])
            .map_err(|e| BundleError::NotABundle(format!("its header: {}", shown(e))))?;
        if header.format != FORMAT || header.version != VERSION {
            let what = format!("it says {} {}", super::names::shorten(&header.format), header.version);
            return Err(BundleError::NotABundle(what));
        }
        if header.count > MAX_RECORDS {
            return Err(BundleError::TooLarge(format!("{} records, at most {MAX_RECORDS}", header.count)));
        }
        let body = &bytes[end + 1..];
        if format!("blake3:{}", blake3::hash(body).to_hex()) != header.checksum {
            return Err(damaged("it is cut short or changed (its checksum does not fit)"));
        }
        let signers = header.signed.as_ref().map(|signed| signer(&header, signed)).transpose()?;
        let body = std::str::from_utf8(body).map_err(|_| damaged("it is not text"))?;
        if !body.is_empty() && !body.ends_with('\n') {
            return Err(damaged("its last line has no end"));
        }
        let mut bundle = Bundle { signers: signers.map(|key| BTreeSet::from([key])), ..Bundle::default() };
        for (n, text) in body.lines().enumerate() {
            let bad = |why: String| BundleError::BadRecord { line: n + 1, why };
            if n >= header.count {
                return Err(damaged("it has more records than its header says"));
            }
            let (place, canonical) = check_line(text).map_err(bad)?;
            if bundle.records.last_key_value().is_some_and(|(last, _)| *last >= place) {
                return Err(bad("it is there twice, or out of order".into()));
            }
            bundle.records.insert(place, canonical);
        }
        if bundle.records.len() != header.count {
            return Err(damaged("it has fewer records than its header says"));
        }
        Ok(bundle)
    }

    /// Reads a bundle's file.
    pub fn read(path: &Path) -> Result<Bundle, BundleError> {
        Bundle::parse(&given::bytes(path, MAX_BUNDLE)?)
    }

    /// Writes the bundle to a file, whole or not at all; through what is no regular file.
    pub fn write(&self, path: &Path) -> Result<(), StoreError> {
        given::write(path, &self.to_bytes()).map_err(|e| StoreError::io("writing", path, e))
    }

    /// Merges every record into a store, durably. An error (a full disk) ends it; what was put by then stays, and
    /// importing again goes on from there. A store that says so takes what trusted keys signed, and nothing else.
    pub fn put_into(&self, store: &Store) -> Result<Imported, StoreError> {
        store.takes(self.signers.as_ref())?;
        let texts: Vec<&str> = self.records.values().map(|text| &**text).collect();
        let batches: Vec<&[&str]> = texts.chunks(BATCH).collect();
        let done = Mutex::new((Imported::default(), None::<StoreError>));
        let done_of = || done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        spread(batches.len(), WRITERS, |n| {
            if done_of().1.is_some() {
                return;
            }
            let merged = store.merge_many(batches[n].iter().filter_map(|text| parse(text).ok()).collect());
            let mut done = done_of();
            for merged in merged {
                match merged {
                    Ok(Merged::Added) => done.0.added += 1,
                    Ok(Merged::Joined) => done.0.joined += 1,
                    Ok(Merged::Unchanged) => done.0.unchanged += 1,
                    Err(e @ StoreError::NewerSchema { .. }) => done.0.refused.push(e.to_string()),
                    Err(e) => done.1 = Some(e),
                }
            }
        });
        let (mut imported, failed) = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        imported.refused.sort();
        failed.map_or(Ok(imported), Err)
    }
}

/// The key that signed a bundle, if it did.
fn signer(header: &Header, signed: &Signed) -> Result<PublicKey, BundleError> {
    let key = signed.key.parse::<PublicKey>().ok();
    let forged = || BundleError::Forged { key: super::names::shorten(&signed.key) };
    key.filter(|key| key.signed(header.message().as_bytes(), &signed.signature)).ok_or_else(forged)
}

/// A record's place and its line; `None` when it has none that could be read again.
fn line(record: &Record) -> Option<(Place, Box<str>)> {
    let text = serde_json::to_string(record).ok()?;
    check_line(&text).ok()
}

fn check_line(text: &str) -> Result<(Place, Box<str>), String> {
    if text.len() as u64 > MAX_RECORD {
        return Err(format!("it has {} bytes, more than {MAX_RECORD}", text.len()));
    }
    let mut record = parse(text).map_err(|checked| match checked {
        Checked::Newer(schema) => format!("a newer warplap wrote it (form {schema})"),
        Checked::Damaged(why) => why,
        other => format!("{other:?}"),
    })?;
    record.settle();
    let place = Place::of_record(&record).map_err(|e| e.to_string())?;
    let canonical = serde_json::to_string(&record).map_err(|e| e.to_string())?;
    Ok((place, canonical.into_boxed_str()))
}
