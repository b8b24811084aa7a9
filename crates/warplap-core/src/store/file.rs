//! One record file: bytes come in, a judgement goes out; a record comes in, bytes go out.

use std::io;
use std::path::Path;

use serde::Deserialize;

use super::files::{Files, ReadError};
use super::names::{Place, unsound};
use super::sealed::{readable, seal, unseal};
use super::{Checked, MAX_RECORD, StoreError};
use crate::record::{Record, SCHEMA};

/// Reads and judges the file at `path`, which should hold the record of `place`. `Ok(None)`: there is none.
/// An error says nothing about the file, only about this attempt.
pub(crate) fn look(files: &Files, path: &Path, place: &Place) -> io::Result<Option<Checked>> {
    match files.read(path, MAX_RECORD) {
        Ok(bytes) => Ok(Some(judge(&bytes, place))),
        Err(ReadError::Bad(why)) => Ok(Some(Checked::Damaged(why))),
        Err(ReadError::Io(e)) => match e.kind() {
            io::ErrorKind::NotFound => Ok(None),
            _ => Err(e),
        },
    }
}

fn judge(bytes: &[u8], place: &Place) -> Checked {
    let body = match unseal("record", bytes) {
        Ok(body) => body,
        Err(why) => return Checked::Damaged(why.to_string()),
    };
    match parse(body) {
        Ok(record) => match Place::of_record(&record) {
            Ok(own) if own == *place => Checked::Whole(Box::new(record)),
            Ok(own) => Checked::Misplaced(format!("it belongs to {}/{}/{}", own.device, own.op, own.hash)),
            Err(e) => Checked::Damaged(e.to_string()),
        },
        Err(other) => other,
    }
}

/// A record from its JSON, or why it is none: never `Whole` or `Misplaced`.
pub(crate) fn parse(body: &str) -> Result<Record, Checked> {
    #[derive(Deserialize)]
    struct Form {
        schema: u32,
    }
    // A newer form need not have the fields of this one, but it says its version.
    let newer = |schema| (schema > SCHEMA).then_some(Checked::Newer(schema));
    let record = match serde_json::from_str::<Record>(body) {
        Ok(record) => record,
        Err(e) => {
            let form = serde_json::from_str::<Form>(body).ok();
            let damaged = || Checked::Damaged(format!("it is no record: {e}"));
            return Err(form.and_then(|f| newer(f.schema)).unwrap_or_else(damaged));
        }
    };
    if let Some(newer) = newer(record.schema) {
        return Err(newer);
    }
    match unsound(&record) {
        Some(why) => Err(Checked::Damaged(why.to_string())),
        None => Ok(record),
    }
}

/// The bytes of a record's file. What could not be read back (an infinite time, too many bytes) is refused here, while
/// the caller still has it. Where it is only the sum of many editions that is too large, the oldest leave.
pub(crate) fn encode(mut record: Record) -> Result<String, StoreError> {
    let invalid = |why: String| StoreError::Invalid(why);
    if let Some(why) = unsound(&record) {
        return Err(invalid(why.to_string()));
    }
    loop {
        let body = readable(&record).map_err(|e| invalid(e.to_string()))?;
        let back: Record = serde_json::from_str(&body).map_err(|e| invalid(format!("it cannot be read back: {e}")))?;
        if readable(&back).map_err(|e| invalid(e.to_string()))? != body {
            return Err(invalid("it reads back as something else".into()));
        }
        let text = seal("record", &body);
        if text.len() as u64 <= MAX_RECORD {
            return Ok(text);
        }
        if record.editions.len() < 2 {
            return Err(invalid(format!("it has {} bytes, more than {MAX_RECORD}", text.len())));
        }
        record.editions.remove(0);
    }
}
