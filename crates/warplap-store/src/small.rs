//! The store's small documents: keys that were missed, and notes on devices.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backends::backend::{Change, ReadResult};
use crate::format::sealed::{readable, seal, unseal};
use crate::names::{Kind, Place};
use crate::records::fingerprint::Fingerprint;
use crate::records::key::Key;
use crate::rules::{Store, WRITE_WAIT};
use crate::{Missed, StoreError};

#[derive(Serialize, Deserialize)]
struct Note {
    device: String,
    name: String,
    value: Value,
}

impl Store {
    /// Remembers that a key was asked for and not found. Cheap, and does nothing the second time.
    pub fn miss(&self, key: &Key, device: &Fingerprint, problem: &str) {
        let Ok(place) = Place::of(key, &device.slug()) else {
            return;
        };
        let document = || {
            let (op, key) = (key.op.clone(), key.text.clone());
            let missed = Missed { op, key, problem: problem.to_string(), device: device.hard.clone() };
            seal(Kind::Miss.word(), &readable(&missed).unwrap_or_default()).into_bytes()
        };
        if let Some(far) = &self.far {
            let (op, key) = (key.op.clone(), key.text.clone());
            far.want(Missed { op, key, problem: problem.to_string(), device: device.hard.clone() });
        }
        if let Err(e) = self.backend.add(&place.miss(), &document) {
            self.warn_once("misses".into(), &format!("missed keys cannot be remembered: {e}"));
        }
    }

    /// The keys remembered by [`Store::miss`], sorted by device, operation and key.
    pub fn misses(&self) -> Vec<Missed> {
        let read = |place: &Place| {
            let Ok(ReadResult::Bytes(bytes)) = self.backend.get(place) else { return None };
            let missed: Missed = serde_json::from_str(unseal(Kind::Miss.word(), &bytes).ok()?).ok()?;
            (Place::of(&missed.key(), &missed.device_slug()).ok()?.miss() == *place).then_some(missed)
        };
        self.listed(Kind::Miss).iter().filter_map(|listed| read(&listed.place)).collect()
    }

    /// The key of a record's place counts as missed no more.
    pub(crate) fn forget_miss(&self, place: &Place) {
        let _ = self.backend.delete(&place.miss());
    }

    /// A small document on a device.
    pub fn note(&self, device_slug: &str, name: &str) -> Option<Value> {
        let place = Place::note(device_slug, name).ok()?;
        match self.backend.get(&place).map_err(|e| e.to_string()).and_then(|result| read_note(&result, &place)) {
            Ok(value) => value,
            Err(why) => {
                self.warn_about(&place, &why);
                None
            }
        }
    }

    /// Keeps a small document on a device, durably. Names are lower case letters, digits, `_` and `-`.
    pub fn put_note(&self, device_slug: &str, name: &str, value: &Value) -> Result<(), StoreError> {
        let place = Place::note(device_slug, name)?;
        let bytes = write_note(&place, value.clone())?;
        self.backend.put(&place, WRITE_WAIT, &mut |result| {
            Ok(Change { set_aside: read_note(&result, &place).err(), put: Some(bytes.clone()) })
        })
    }

    /// The notes there are, by the device's folder name and their own, sorted; none is opened.
    pub fn notes(&self) -> Vec<(String, String)> {
        let named = |place: &Place| (place.device().to_string(), place.name().to_string());
        self.listed(Kind::Note).iter().map(|listed| named(&listed.place)).collect()
    }

    /// Removes a note; `false` when it was not there.
    pub fn remove_note(&self, device_slug: &str, name: &str) -> Result<bool, StoreError> {
        self.backend.delete(&Place::note(device_slug, name)?)
    }
}

/// The bytes of a note.
pub(crate) fn write_note(place: &Place, value: Value) -> Result<Vec<u8>, StoreError> {
    let note = Note { device: place.device().into(), name: place.name().into(), value };
    let body = readable(&note).map_err(|e| StoreError::Invalid(e.to_string()))?;
    let (text, limit) = (seal(Kind::Note.word(), &body), Kind::Note.limit());
    if text.len() as u64 > limit {
        return Err(StoreError::Invalid(format!("the note has {} bytes, more than {limit}", text.len())));
    }
    Ok(text.into_bytes())
}

/// A note's value, or what is wrong with what is there.
pub(crate) fn read_note(result: &ReadResult, place: &Place) -> Result<Option<Value>, String> {
    let bytes = match result {
        ReadResult::Nothing => return Ok(None),
        ReadResult::Unfit(why) => return Err(why.clone()),
        ReadResult::Bytes(bytes) => bytes,
    };
    let note: Note = serde_json::from_str(unseal(Kind::Note.word(), bytes)?).map_err(|e| e.to_string())?;
    if note.device != place.device() || note.name != place.name() {
        return Err("it is another note".into());
    }
    Ok(Some(note.value))
}
