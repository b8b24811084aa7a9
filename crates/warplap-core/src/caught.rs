//! Panics of candidate code: code comes in; what it gives goes out, and a panic becomes an answer instead.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::rejection::Rejection;

/// Runs candidate code and turns a panic into a Rejection.
pub fn contained<T>(f: impl FnOnce() -> Result<T, Rejection>) -> Result<T, Rejection> {
    caught(f).unwrap_or_else(|reason| Err(Rejection::Crashed { reason }))
}

/// Runs candidate code; a panic becomes its message.
pub(crate) fn caught<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        panic
            .downcast_ref::<&str>()
            .map(|s| s.to_string())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "panicked without a message".into())
    })
}
