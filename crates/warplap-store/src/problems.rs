//! Problems of keys: a record comes in; what speaks against its being of its key goes out. The store knows no operation:
//! whoever does says once how a problem is held against a key.

use std::sync::OnceLock;

use crate::records::key::Key;
use crate::records::record::Record;

/// Whether a problem, by its text, has a key. Of an operation or a rounding that is not known here it is believed.
pub type HasKey = fn(problem: &str, key: &Key) -> bool;

static HAS_KEY: OnceLock<HasKey> = OnceLock::new();

/// Lets records from elsewhere whose problem is not their key's be refused, in this process from now on. Who comes first
/// is asked.
pub fn hold_problems_to_keys(has_key: HasKey) {
    let _ = HAS_KEY.set(has_key);
}

/// The problem of a record that is not its key's, if there is one.
pub(crate) fn misfit(record: &Record) -> Option<&str> {
    let has_key = HAS_KEY.get()?;
    let key = Key::new(&record.op, record.key.clone());
    let sizes = record.editions.iter().flat_map(|edition| &edition.sizes).map(|size| &*size.problem);
    std::iter::once(&*record.problem).chain(sizes).find(|problem| !has_key(problem, &key))
}
