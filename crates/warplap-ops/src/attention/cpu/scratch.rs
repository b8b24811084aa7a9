//! Workspace that threads keep between launches: fresh pages for every launch would cost more than small problems.

use std::cell::RefCell;

thread_local! {
    /// Buffers not in use, the last one given back on top: nested users get the same one each time.
    static FREE: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Numbers of one cache line.
const LINE: usize = 16;

/// More than this many numbers are given back to the system (64 MiB).
const KEPT: usize = 16 << 20;

/// Runs a body with at least `len` numbers that start on a cache line. They hold anything.
pub(super) fn with<R>(len: usize, body: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut buffer = FREE.with(|free| free.borrow_mut().pop()).unwrap_or_default();
    if buffer.len() < len + LINE {
        buffer = vec![0f32; len + LINE];
    }
    let start = (64 - buffer.as_ptr() as usize % 64) % 64 / 4;
    let result = body(&mut buffer[start..start + len]);
    if buffer.len() <= KEPT {
        FREE.with(|free| free.borrow_mut().push(buffer));
    }
    result
}

/// Cuts pieces off a workspace, each a whole number of cache lines.
pub(super) struct Pieces<'a>(pub(super) &'a mut [f32]);

impl<'a> Pieces<'a> {
    /// The next piece.
    pub(super) fn cut(&mut self, len: usize) -> &'a mut [f32] {
        let (piece, rest) = std::mem::take(&mut self.0).split_at_mut(lines(len));
        self.0 = rest;
        piece
    }
}

/// A length rounded up to whole cache lines.
pub(super) fn lines(len: usize) -> usize {
    len.next_multiple_of(LINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_workspaces_do_not_overlap_and_are_reused() {
        let first = with(100, |outer| {
            outer.fill(1.0);
            with(1000, |inner| inner.fill(2.0));
            assert!(outer.iter().all(|x| *x == 1.0));
            assert_eq!(outer.as_ptr() as usize % 64, 0);
            outer.as_ptr() as usize
        });
        assert_eq!(first, with(100, |outer| outer.as_ptr() as usize));
    }
}
