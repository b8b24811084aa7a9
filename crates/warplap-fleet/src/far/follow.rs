//! Following: what others published since the last time comes in; the near store has it afterwards. How far it came is a
//! note of the near store.

use std::collections::BTreeSet;

use serde_json::Value;
use warplap_core::record::Record;
use warplap_core::store::{Checked, Merged, Store};
use warplap_worker::artifact::Artifacts;

use super::error::FarError;
use super::kernels;
use super::session::Session;
use super::tables::{self, Claimed, Followed};

const OWNER: &str = "store";

/// What a pull did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pulled {
    /// Records for keys that had none.
    pub added: usize,
    /// Records that brought something new.
    pub joined: usize,
    /// Editions that were known, or not among the best.
    pub unchanged: usize,
    /// Editions that were not taken, and why.
    pub refused: Vec<String>,
    /// The keys that came, with their devices.
    pub records: Vec<Record>,
    /// Compiled kernels that came, and those that stayed because nobody whom the near store trusts signed them.
    pub kernels: (usize, usize),
}

/// Takes over what others published of one kind of device (of all with `None`) since the last time.
pub fn pull(
    session: &mut Session,
    near: &Store,
    own: &str,
    device: Option<&str>,
    bodies: bool,
    artifacts: Option<&Artifacts>,
) -> Result<Pulled, FarError> {
    let says = |e: postgres::Error| FarError::of(&e);
    let (schema, _) = tables::about(session).map_err(says)?;
    if schema != tables::SCHEMA {
        let known = tables::SCHEMA;
        return Err(FarError::Schema(format!("its tables are of version {schema}, this program knows {known}")));
    }
    let note = format!("fleet-followed{}", if bodies { "-whole" } else { "" });
    let of = device.unwrap_or(OWNER);
    let mark = near.note(of, &note).and_then(|note| serde_json::from_value::<Followed>(note).ok()).unwrap_or_default();
    let (claims, upto) = tables::since(session, device, own, &mark, bodies).map_err(says)?;
    let mut pulled = take(near, &claims);
    if let Some(kept) = artifacts {
        pulled.kernels = kernels::take(session, near, kept, &compiled(near, device)).map_err(says)?;
    }
    let upto: Value = serde_json::to_value(upto).unwrap_or_default();
    near.put_note(of, &note, &upto).map_err(|e| FarError::Refused(format!("the near store: {e}")))?;
    Ok(pulled)
}

/// The compiled kernels that others' winners need. All of them are looked at, not only what came now: whom the near store
/// trusts may have changed since.
fn compiled(near: &Store, device: Option<&str>) -> BTreeSet<String> {
    let entries = near.entries().into_iter().filter(|entry| device.is_none_or(|device| entry.device_slug == device));
    let records = entries.filter_map(|entry| match near.check(&entry) {
        Checked::Whole(record) => Some(record),
        _ => None,
    });
    let editions = records.flat_map(|record| record.editions).filter(|edition| edition.origin != near.id());
    editions.flat_map(|edition| edition.artifacts).collect()
}

/// Keeps what holds of what is claimed.
fn take(near: &Store, claims: &[Claimed]) -> Pulled {
    let mut pulled = Pulled::default();
    let mut records = Vec::new();
    for claim in claims {
        match claim.open() {
            Ok(record) => records.push(record),
            Err(why) => {
                let Claimed { sealed, .. } = claim;
                pulled.refused.push(format!("{}/{} of {}: {why}", sealed.op, sealed.hash, sealed.origin));
            }
        }
    }
    for merged in near.merge_many(records.clone()) {
        match merged {
            Ok(Merged::Added) => pulled.added += 1,
            Ok(Merged::Joined) => pulled.joined += 1,
            Ok(Merged::Unchanged) => pulled.unchanged += 1,
            Err(e) => pulled.refused.push(e.to_string()),
        }
    }
    pulled.records = records;
    pulled
}
