//! Who holds a key, and until when.

pub(crate) mod holder;
pub(crate) mod lease;
pub(crate) mod lock;
