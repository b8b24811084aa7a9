//! A bundle read record by record: a file comes in, opened without reading its records; a place comes in, and its record
//! goes out, checked against the index. The index is checked against the header, and the header against a signature.

use std::fs::File;
use std::path::Path;

use super::form::{Header, MAX_HEADER, checksum, read_line};
use super::index::{all, find, fits, line_hash};
use super::{BundleError, Claims};
use crate::MAX_RECORD;
use crate::format::file::encode;
use crate::keys::minisign::MinisignSignature;
use crate::keys::signing::PublicKey;
use crate::names::Place;
use crate::records::record::Record;

/// An open bundle.
pub struct Reader {
    file: File,
    index: Vec<u8>,
    /// Where the records begin, and where they end at the latest.
    body: (u64, u64),
    claims: Claims,
    comment: String,
    count: usize,
}

impl Reader {
    /// Opens a bundle's file: its header and its index are read and checked, its records are not.
    pub fn open(path: &Path) -> Result<Reader, BundleError> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut first = vec![0; MAX_HEADER.min(length as usize)];
        read_at(&file, &mut first, 0)?;
        let (header, end) = Header::read(&first)?;
        let damaged = |why: &str| BundleError::Damaged(why.to_string());
        let section = header.index.as_ref().ok_or_else(|| damaged("it has no index: export it again"))?;
        let begin = end as u64 + 1;
        let at = length.checked_sub(section.bytes).filter(|at| *at >= begin && fits(section.bytes, header.count));
        let at = at.ok_or_else(|| damaged("it is cut short, or its index is none"))?;
        let mut index = vec![0; section.bytes as usize];
        read_at(&file, &mut index, at)?;
        if checksum(&index) != section.checksum {
            return Err(damaged("its index is cut short or changed (its checksum does not fit)"));
        }
        let (claims, comment, count) = (header.claims(), header.comment(&first[..end]), header.count);
        Ok(Reader { file, index, body: (begin, at), claims, comment, count })
    }

    /// Whether one of these signatures is a key's for this bundle. The header is checked, which has the index's hash,
    /// which has every record's: so each record that is read is one that the key signed.
    pub fn is_signed(&self, key: &PublicKey, signatures: &[MinisignSignature]) -> bool {
        signatures.iter().any(|s| s.comment() == self.comment && s.vouches(key))
    }

    /// Whether these bytes, which somebody read later, are the file whose index is used here.
    pub fn is_of(&self, bytes: &[u8]) -> bool {
        bytes.ends_with(&self.index) && bytes.len() as u64 == self.body.1 + self.index.len() as u64
    }

    /// What it says of itself.
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// How many records it has.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The document of a record's place, as a backend keeps it; `None` where it has none. The origins of its editions are
    /// told to have been vouched for by these.
    pub fn document(&self, place: &Place, vouched: &[PublicKey]) -> Result<Option<Vec<u8>>, BundleError> {
        let Some(result) = find(&self.index, place) else { return Ok(None) };
        let (own, mut record) = self.record(result)?;
        if own != *place {
            return Ok(None);
        }
        for edition in &mut record.editions {
            edition.vouched.extend(vouched.iter().map(PublicKey::origin));
        }
        let text = encode(record).map_err(|e| BundleError::Damaged(e.to_string()))?;
        Ok(Some(text.into_bytes()))
    }

    /// Every record's place and size. Reads all of them.
    pub fn places(&self) -> Result<Vec<(Place, u64)>, BundleError> {
        let listed = |result: super::index::RecordSpan| {
            let bytes = result.span.end - result.span.start;
            self.record(result).map(|(place, _)| (place, bytes))
        };
        all(&self.index).map(listed).collect()
    }

    fn record(&self, result: super::index::RecordSpan) -> Result<(Place, Record), BundleError> {
        let damaged = |why: &str| BundleError::Damaged(why.to_string());
        let ((begin, end), span) = (self.body, &result.span);
        let from = begin.checked_add(span.start);
        let fits = from.is_some_and(|from| from <= end && span.end - span.start <= (end - from).min(MAX_RECORD));
        let from = from.filter(|_| fits).ok_or_else(|| damaged("its index points behind its end"))?;
        let mut text = vec![0; (span.end - span.start) as usize];
        read_at(&self.file, &mut text, from)?;
        if line_hash(&text) != result.hash {
            return Err(damaged("a record was changed (its hash in the index does not fit)"));
        }
        let text = std::str::from_utf8(&text).map_err(|_| damaged("a record is not text"))?;
        read_line(text).map_err(BundleError::Damaged)
    }
}

#[cfg(unix)]
fn read_at(file: &File, into: &mut [u8], at: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, at)
}

#[cfg(not(unix))]
fn read_at(mut file: &File, into: &mut [u8], at: u64) -> std::io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(into)
}
