//! Panics of candidate code: code comes in; what it gives goes out, and a panic becomes an answer instead.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use crate::rejection::Rejection;

thread_local! {
    // How many calls of candidate code this thread is in.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}
static HOOK: Once = Once::new();

/// A thread inside of candidate code, until this is dropped.
struct InCandidate;

impl InCandidate {
    /// From the first one on, a panic of candidate code is a line of the log, with its place, and nothing on a user's
    /// screen. What panics elsewhere is told as before.
    fn new() -> InCandidate {
        HOOK.call_once(|| {
            let usual = take_hook();
            set_hook(Box::new(move |panic| match INSIDE.try_with(Cell::get) {
                Ok(0) | Err(_) => usual(panic),
                Ok(_) => tracing::debug!("a candidate {panic}"),
            }));
        });
        INSIDE.set(INSIDE.get() + 1);
        InCandidate
    }
}

impl Drop for InCandidate {
    fn drop(&mut self) {
        INSIDE.set(INSIDE.get() - 1);
    }
}

/// Runs candidate code and turns a panic into a Rejection.
pub fn contained<T>(f: impl FnOnce() -> Result<T, Rejection>) -> Result<T, Rejection> {
    caught(f).unwrap_or_else(|reason| Err(Rejection::Crashed { reason }))
}

/// Runs candidate code; a panic becomes its message.
pub(crate) fn caught<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    let _inside = InCandidate::new();
    catch_unwind(AssertUnwindSafe(f)).map_err(message)
}

#[cold]
fn message(panic: Box<dyn Any + Send>) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|s| s.to_string())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panicked without a message".into())
}
