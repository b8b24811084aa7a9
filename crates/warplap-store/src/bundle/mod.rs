//! Bundles: records of one or several stores in one file, and back. JSON lines: a header with the count and a checksum,
//! then one record a line, sorted by device, operation and key hash, then compiled kernels, then an index.
//!
//! A bundle is read whole and checked whole before anything of it is used, or record by record through its index
//! ([`Reader`]). It has no paths: where a record goes follows from what it says. Signatures stand beside it, in the form
//! of the program minisign ([`MinisignSignature`](crate::minisign::MinisignSignature)).

mod form;
mod index;
mod reader;
mod taking;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;

pub use form::Artifacts;
pub(crate) use form::is_digest;
use form::{VERSION, line};
pub use reader::Reader;

use super::care::for_each;
use super::names::Place;
use super::{Checked, Entry, Store, StoreError};
use crate::format::file::parse;
use crate::io::user_files;
use crate::keys::signing::PublicKey;
use crate::records::record::Record;

/// The largest bundle that is read, in bytes.
pub const MAX_BUNDLE: u64 = 1 << 30;
/// The most records in one bundle.
pub const MAX_RECORDS: usize = 1_000_000;
/// The most compiled kernels in one bundle.
pub const MAX_ARTIFACTS: usize = 100_000;
/// The largest of them, packed, in bytes.
pub const MAX_ARTIFACT: usize = 16 << 20;

/// What a bundle says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// What it is a bundle of: of two bundles of one name and signer the one with the higher serial is the newer.
    pub name: String,
    /// Its number in the row of bundles of its name. A store that took one takes no lower one of the same signer.
    pub serial: Option<u64>,
    /// Seconds since 1970 after which nobody takes it.
    pub expires: Option<u64>,
}

/// Records in one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bundle {
    // As text: a bundle of many trials is several times larger once parsed.
    records: BTreeMap<Place, Box<str>>,
    artifacts: Artifacts,
    // Those of the keys that are trusted who signed it.
    signers: BTreeSet<PublicKey>,
    /// What it says of itself.
    pub claims: Claims,
    /// Records of the store that could not be taken: damaged, misplaced, or a newer program's.
    pub left_out: usize,
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
    /// None of its signatures is of a key that is trusted here.
    #[error(
        "the bundle is signed by a key that nobody here trusts (its id says {id}), or was changed since; nothing was imported (warplap store trust add)"
    )]
    Stranger {
        /// The id in its first signature.
        id: String,
    },
    /// It was signed by a key that was trusted once.
    #[error("the bundle is signed by {key}, which was revoked here; nothing was imported")]
    Revoked {
        /// The key.
        key: String,
    },
    /// Its signature cannot be read.
    #[error("{0}; nothing was imported")]
    NoSignature(#[from] crate::keys::minisign::NoSignature),
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
        let result = Mutex::new(Bundle::default());
        for_each(store, &entries, |_, checked| {
            let line = match checked {
                Checked::Whole(record) => line(&record),
                _ => None,
            };
            let mut result = result.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match line {
                Some((place, text)) => drop(result.records.insert(place, text)),
                None => result.left_out += 1,
            }
        });
        result.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A bundle of these records; those of one key and device are merged.
    pub fn of_records(records: impl IntoIterator<Item = Record>) -> Bundle {
        let mut bundle = Bundle::default();
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
        self.artifacts.extend(other.artifacts);
        // Nobody signed the two together.
        self.signers = self.signers.intersection(&other.signers).copied().collect();
        self.claims = if self.claims == other.claims { self.claims } else { Claims::default() };
        self
    }

    /// Those of the keys that are trusted who signed it.
    pub fn signers(&self) -> &BTreeSet<PublicKey> {
        &self.signers
    }

    /// Puts compiled kernels in, packed, by their digest; a name that is no digest is an error.
    pub fn carry(&mut self, digest: &str, packed: Vec<u8>) -> Result<(), StoreError> {
        if !is_digest(digest) || packed.len() > MAX_ARTIFACT || self.artifacts.len() >= MAX_ARTIFACTS {
            return Err(StoreError::Invalid(format!("artifact {}: it is too large", super::names::shorten(digest))));
        }
        self.artifacts.insert(digest.to_string(), packed);
        Ok(())
    }

    /// The compiled kernels it carries, packed. They are code: nothing where nobody who is trusted signed it.
    pub fn artifacts(&self) -> Option<&Artifacts> {
        (!self.signers.is_empty()).then_some(&self.artifacts)
    }

    /// How many compiled kernels it carries.
    pub fn carried(&self) -> usize {
        self.artifacts.len()
    }

    /// The file's bytes. The same parts give the same bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        form::written(self)
    }

    /// Reads a bundle from bytes, all of it or nothing; as one that nobody signed.
    pub fn parse(bytes: &[u8]) -> Result<Bundle, BundleError> {
        form::parse(bytes)
    }

    /// Reads a bundle's file, as one that nobody signed.
    pub fn read(path: &Path) -> Result<Bundle, BundleError> {
        Bundle::parse(&user_files::bytes(path, MAX_BUNDLE)?)
    }

    /// Writes the bundle to a file, whole or not at all; through what is no regular file.
    pub fn write(&self, path: &Path) -> Result<(), StoreError> {
        user_files::write(path, &self.to_bytes()).map_err(|e| StoreError::io("writing", path, e))
    }
}
