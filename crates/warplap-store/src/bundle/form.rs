//! The form of a bundle: a header line, one record a line, one artifact a line, and an index of the records behind them.
//! Parts come in, bytes go out, and back; all of it or nothing.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::index::Index;
use super::{Bundle, BundleError, Claims, MAX_ARTIFACT, MAX_ARTIFACTS, MAX_BUNDLE, MAX_RECORDS};
use crate::format::file::parse as parse_record;
use crate::io::sanitize_text::shown;
use crate::names::{Place, is_note, shorten};
use crate::records::record::Record;
use crate::{Checked, MAX_RECORD};

const FORMAT: &str = "warplap-bundle";
pub(super) const VERSION: u32 = 1;
/// No header is longer than this.
pub(super) const MAX_HEADER: usize = 1024;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    format: String,
    version: u32,
    pub(super) count: usize,
    checksum: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    artifacts: usize,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serial: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) index: Option<Section>,
}

/// A part of the file: its size, and its hash.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    pub(super) bytes: u64,
    pub(super) checksum: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Carried {
    artifact: String,
    packed: String,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

fn damaged(why: &str) -> BundleError {
    BundleError::Damaged(why.to_string())
}

pub(super) fn checksum(bytes: &[u8]) -> String {
    format!("blake3:{}", blake3::hash(bytes).to_hex())
}

impl Header {
    /// The header of a file's beginning, and where it ends.
    pub(super) fn read(bytes: &[u8]) -> Result<(Header, usize), BundleError> {
        let end = bytes.iter().take(MAX_HEADER).position(|b| *b == b'\n');
        let end = end.ok_or_else(|| BundleError::NotABundle("it has no header line".into()))?;
        let header: Header = serde_json::from_slice(&bytes[..end])
            .map_err(|e| BundleError::NotABundle(format!("its header: {}", shown(e))))?;
        if header.format != FORMAT || header.version != VERSION {
            return Err(BundleError::NotABundle(format!("it says {} {}", shorten(&header.format), header.version)));
        }
        for (count, most, what) in
            [(header.count, MAX_RECORDS, "records"), (header.artifacts, MAX_ARTIFACTS, "artifacts")]
        {
            if count > most {
                return Err(BundleError::TooLarge(format!("{count} {what}, at most {most}")));
            }
        }
        if !header.name.is_empty() && !is_note(&header.name) {
            return Err(damaged("its name is not made of lower case letters, digits, _ and -"));
        }
        Ok((header, end))
    }

    pub(super) fn claims(&self) -> Claims {
        Claims { name: self.name.clone(), serial: self.serial, expires: self.expires }
    }

    /// What a signature's comment says of a bundle: its claims, and the hash of its header line, which covers the rest.
    pub(super) fn comment(&self, line: &[u8]) -> String {
        let claimed = |name: &str, value: Option<u64>| value.map(|v| format!(" {name}={v}")).unwrap_or_default();
        let (serial, expires) = (claimed("serial", self.serial), claimed("expires", self.expires));
        let name = if self.name.is_empty() { String::new() } else { format!(" name={}", self.name) };
        format!("{FORMAT}{name}{serial}{expires} records={} header={}", self.count, checksum(line))
    }
}

/// The file's bytes. The same parts give the same bytes.
pub(super) fn written(bundle: &Bundle) -> Vec<u8> {
    let mut body = Vec::with_capacity(bundle.records.values().map(|text| text.len() + 1).sum());
    let mut index = Index::default();
    for (place, text) in &bundle.records {
        index.add(place, body.len(), text);
        body.extend_from_slice(text.as_bytes());
        body.push(b'\n');
    }
    for (digest, packed) in &bundle.artifacts {
        let line = Carried { artifact: digest.clone(), packed: STANDARD.encode(packed) };
        body.extend(serde_json::to_vec(&line).unwrap_or_default());
        body.push(b'\n');
    }
    let index = index.into_bytes();
    let Claims { name, serial, expires } = bundle.claims.clone();
    let header = Header {
        format: FORMAT.into(),
        version: VERSION,
        count: bundle.records.len(),
        checksum: checksum(&body),
        artifacts: bundle.artifacts.len(),
        name,
        serial,
        expires,
        index: Some(Section { bytes: index.len() as u64, checksum: checksum(&index) }),
    };
    let mut bytes = serde_json::to_vec(&header).unwrap_or_default();
    bytes.push(b'\n');
    bytes.append(&mut body);
    bytes.extend(index);
    bytes
}

/// Reads a bundle from bytes, all of it or nothing.
pub(super) fn parse(bytes: &[u8]) -> Result<Bundle, BundleError> {
    if bytes.len() as u64 > MAX_BUNDLE {
        return Err(BundleError::TooLarge(format!("{} bytes, at most {MAX_BUNDLE}", bytes.len())));
    }
    let (header, end) = Header::read(bytes)?;
    let rest = &bytes[end + 1..];
    let indexed = header.index.as_ref().map_or(0, |section| section.bytes);
    let at = (rest.len() as u64).checked_sub(indexed).ok_or_else(|| damaged("it is cut short"))?;
    let (body, index) = rest.split_at(at as usize);
    if checksum(body) != header.checksum {
        return Err(damaged("it is cut short or changed (its checksum does not fit)"));
    }
    let body = std::str::from_utf8(body).map_err(|_| damaged("it is not text"))?;
    if !body.is_empty() && !body.ends_with('\n') {
        return Err(damaged("its last line has no end"));
    }
    let mut bundle = Bundle { claims: header.claims(), ..Bundle::default() };
    let (mut expected, mut at) = (Index::default(), 0);
    for (n, text) in body.lines().enumerate() {
        let bad = |why: String| BundleError::BadRecord { line: n + 1, why };
        if n >= header.count {
            let (digest, packed) = carried(text).ok_or_else(|| damaged("it has more records than its header says"))?;
            if bundle.artifacts.last_key_value().is_some_and(|(last, _)| *last >= digest) {
                return Err(damaged("an artifact is there twice, or out of order"));
            }
            bundle.artifacts.insert(digest, packed);
            continue;
        }
        let (place, canonical) = check_line(text).map_err(bad)?;
        if bundle.records.last_key_value().is_some_and(|(last, _)| *last >= place) {
            return Err(bad("it is there twice, or out of order".into()));
        }
        expected.add(&place, at, text);
        at += text.len() + 1;
        bundle.records.insert(place, canonical);
    }
    if bundle.records.len() != header.count {
        return Err(damaged("it has fewer records than its header says"));
    }
    if bundle.artifacts.len() != header.artifacts {
        return Err(damaged("it has another number of artifacts than its header says"));
    }
    match &header.index {
        Some(section) if checksum(index) != section.checksum || expected.into_bytes() != index => {
            Err(damaged("its index is not that of its records"))
        }
        _ => Ok(bundle),
    }
}

fn carried(text: &str) -> Option<(String, Vec<u8>)> {
    let Carried { artifact, packed } = serde_json::from_str(text).ok()?;
    let packed = STANDARD.decode(packed).ok().filter(|bytes| bytes.len() <= MAX_ARTIFACT)?;
    is_digest(&artifact).then_some((artifact, packed))
}

/// Whether a text can be an artifact's digest.
pub(crate) fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// A record's place and its line; `None` when it has none that could be read again.
pub(super) fn line(record: &Record) -> Option<(Place, Box<str>)> {
    let text = serde_json::to_string(record).ok()?;
    check_line(&text).ok()
}

pub(super) fn check_line(text: &str) -> Result<(Place, Box<str>), String> {
    let (place, record) = read_line(text)?;
    let canonical = serde_json::to_string(&record).map_err(|e| e.to_string())?;
    Ok((place, canonical.into_boxed_str()))
}

/// A record as a bundle carries it. Who vouched for it elsewhere is for nobody else to know or to claim.
pub(super) fn read_line(text: &str) -> Result<(Place, Record), String> {
    if text.len() as u64 > MAX_RECORD {
        return Err(format!("it has {} bytes, more than {MAX_RECORD}", text.len()));
    }
    let mut record = parse_record(text).map_err(|checked| match checked {
        Checked::Newer(schema) => format!("a newer warplap wrote it (form {schema})"),
        Checked::Damaged(why) => why,
        other => format!("{other:?}"),
    })?;
    record.editions.iter_mut().for_each(|edition| edition.vouched.clear());
    record.settle();
    let place = Place::of_record(&record).map_err(|e| e.to_string())?;
    Ok((place, record))
}

/// Packed artifacts by their digest.
pub type Artifacts = BTreeMap<String, Vec<u8>>;
