//! Explicit copies: the one place that makes a tensor contiguous counts here, so that a test can hold it to none.

use std::cell::Cell;

thread_local! {
    static COPIES: Cell<u64> = const { Cell::new(0) };
}

/// Tensors that calls of this thread have made contiguous so far, because no kernel takes their strides. A copy is
/// counted where it is made, in this package alone: what Burn copies on its own account is not.
pub fn copies() -> u64 {
    COPIES.get()
}

pub(crate) fn count() {
    COPIES.set(COPIES.get() + 1);
}
