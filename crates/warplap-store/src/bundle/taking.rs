//! Taking a bundle in: signatures and a store come in; whether they are good, and what the records did, go out.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::form::parse;
use super::{Bundle, BundleError, Imported};
use crate::care::spread;
use crate::format::file::parse as parse_record;
use crate::keys::minisign::{Hashed, MinisignSignature};
use crate::keys::trusted::{Take, Trusted};
use crate::{Merged, PublicKey, SecretKey, Store, StoreError};

/// Writers at once during an import: one waits for the disk while the other computes.
const WRITERS: usize = 3;
/// Records written in one go. Each holds two open files meanwhile, and some systems give a process 256 in all.
const BATCH: usize = 32;

impl Bundle {
    /// Reads a bundle with the signatures beside it. Where there are some, one of a key that is trusted must be among
    /// them and fit; without any the bundle is unsigned.
    pub fn signed(bytes: &[u8], signatures: &[MinisignSignature], trusted: &Trusted) -> Result<Bundle, BundleError> {
        let signers = signers(bytes, signatures, trusted)?;
        Ok(Bundle { signers, ..parse(bytes)? })
    }

    /// The signature of a bundle's bytes. Its comment says what the bundle claims.
    pub fn sign(bytes: &[u8], key: &SecretKey) -> Result<MinisignSignature, BundleError> {
        let (header, end) = super::form::Header::read(bytes)?;
        Ok(MinisignSignature::new(key, &Hashed::of(bytes), &header.comment(&bytes[..end])))
    }

    /// Merges every record into a store, durably. An error (a full disk) ends it; what was put by then stays, and
    /// importing again goes on from there. A store that says so takes what trusted keys signed, and nothing else.
    pub fn put_into(&self, store: &Store) -> Result<Imported, StoreError> {
        self.put_into_as(store, Take::default())
    }

    /// As [`Bundle::put_into`], with a word on what is taken.
    pub fn put_into_as(&self, store: &Store, take: Take) -> Result<Imported, StoreError> {
        store.takes(&self.claims, &self.signers, take)?;
        let vouched: BTreeSet<String> = self.signers.iter().map(PublicKey::origin).collect();
        let texts: Vec<&str> = self.records.values().map(|text| &**text).collect();
        let batches: Vec<&[&str]> = texts.chunks(BATCH).collect();
        let done = Mutex::new((Imported::default(), None::<StoreError>));
        let done_of = || done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        spread(batches.len(), WRITERS, |n| {
            if done_of().1.is_some() {
                return;
            }
            let records = batches[n].iter().filter_map(|text| parse_record(text).ok()).collect();
            let merged = store.merge_vouched(records, &vouched);
            let mut done = done_of();
            for merged in merged {
                match merged {
                    Ok(Merged::Added) => done.0.added += 1,
                    Ok(Merged::Joined) => done.0.joined += 1,
                    Ok(Merged::Unchanged) => done.0.unchanged += 1,
                    Err(e @ (StoreError::NewerSchema { .. } | StoreError::OtherProblem { .. })) => {
                        done.0.refused.push(e.to_string())
                    }
                    Err(e) => done.1 = Some(e),
                }
            }
        });
        let (mut imported, failed) = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        imported.refused.sort();
        failed.map_or(Ok(imported), Err)
    }
}

/// Which of the keys that are trusted signed these bytes.
fn signers(
    bytes: &[u8],
    signatures: &[MinisignSignature],
    trusted: &Trusted,
) -> Result<BTreeSet<PublicKey>, BundleError> {
    let Some(first) = signatures.first() else { return Ok(BTreeSet::new()) };
    let (keys, revoked) = (trusted.trusted_keys(), trusted.revoked_keys());
    let file = Hashed::of(bytes);
    let of = |keys: &[PublicKey]| -> BTreeSet<PublicKey> {
        let signed = |key: &&PublicKey| signatures.iter().any(|s| s.is_of(key, &file));
        keys.iter().filter(signed).copied().collect()
    };
    let signers = of(&keys);
    if !signers.is_empty() {
        return Ok(signers);
    }
    if let Some(key) = of(&revoked).first() {
        return Err(BundleError::Revoked { key: key.to_string() });
    }
    let named = keys.iter().chain(&revoked).find(|key| signatures.iter().any(|s| s.names(key)));
    Err(match named {
        Some(key) => BundleError::Forged { key: key.to_string() },
        None => BundleError::Stranger { id: first.id() },
    })
}
