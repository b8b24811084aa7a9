//! One record's document: bytes come in, a judgement goes out; a record comes in, bytes go out.

use serde::Deserialize;

use crate::backends::backend::ReadResult;
use crate::format::sealed::{readable, seal, unseal};
use crate::format::sound::unsound;
use crate::io::sanitize_text::shown;
use crate::names::{Kind, Place};
use crate::records::record::{Record, SCHEMA};
use crate::{Checked, MAX_RECORD, StoreError};

/// What was found at `place`, which should hold its record. `None`: there is none.
pub(crate) fn judge(result: &ReadResult, place: &Place) -> Option<Checked> {
    let bytes = match result {
        ReadResult::Nothing => return None,
        ReadResult::Unfit(why) => return Some(Checked::Damaged(why.clone())),
        ReadResult::Bytes(bytes) => bytes,
    };
    let body = match unseal(Kind::Record.word(), bytes) {
        Ok(body) => body,
        Err(why) => return Some(Checked::Damaged(why.to_string())),
    };
    Some(match parse(body) {
        Ok(record) => match Place::of_record(&record) {
            Ok(own) if own == *place => Checked::Whole(Box::new(record)),
            Ok(own) => Checked::Misplaced(format!("it belongs to {}/{}", own.device(), own.name())),
            Err(e) => Checked::Damaged(e.to_string()),
        },
        Err(other) => other,
    })
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
            let damaged = || Checked::Damaged(format!("it is no record: {}", shown(e)));
            return Err(form.and_then(|f| newer(f.schema)).unwrap_or_else(damaged));
        }
    };
    if let Some(newer) = newer(record.schema) {
        return Err(newer);
    }
    match unsound(&record) {
        Some(why) => Err(Checked::Damaged(why)),
        None => Ok(record),
    }
}

/// The bytes of a record's file. What could not be read back (an infinite time, too many bytes) is refused here, while
/// the caller still has it. Where it is only the sum of many editions that is too large, the oldest leave.
pub(crate) fn encode(mut record: Record) -> Result<String, StoreError> {
    let invalid = |why: String| StoreError::Invalid(why);
    if let Some(why) = unsound(&record) {
        return Err(invalid(why));
    }
    loop {
        let body = readable(&record).map_err(|e| invalid(e.to_string()))?;
        let back: Record = serde_json::from_str(&body).map_err(|e| invalid(format!("it cannot be read back: {e}")))?;
        if readable(&back).map_err(|e| invalid(e.to_string()))? != body {
            return Err(invalid("it reads back as something else".into()));
        }
        let text = seal(Kind::Record.word(), &body);
        if text.len() as u64 <= MAX_RECORD {
            return Ok(text);
        }
        if record.editions.len() < 2 {
            return Err(invalid(format!("it has {} bytes, more than {MAX_RECORD}", text.len())));
        }
        record.editions.remove(0);
    }
}
