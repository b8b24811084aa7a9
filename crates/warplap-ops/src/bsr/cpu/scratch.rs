//! Scratch memory that outlives a launch: fresh pages for tens of megabytes cost more than many a product.

use std::cell::RefCell;

thread_local! {
    static KEPT: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Buffers one thread keeps, and the largest of them in numbers (256 MiB).
const KEEP: usize = 3;
const LARGEST: usize = 64 << 20;

/// Numbers of one cache line.
const LINE: usize = 16;

/// Runs a body with `len` numbers of any value that start on a cache line. Calls may nest.
pub(super) fn with<R>(len: usize, body: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut buffer = KEPT.with_borrow_mut(|kept| {
        // The smallest that is large enough, else the largest to grow.
        let fits = (0..kept.len()).filter(|i| kept[*i].len() >= len + LINE).min_by_key(|i| kept[*i].len());
        let best = fits.or_else(|| (0..kept.len()).max_by_key(|i| kept[*i].len()));
        best.map(|i| kept.swap_remove(i)).unwrap_or_default()
    });
    if buffer.len() < len + LINE {
        buffer = vec![0.0; len + LINE];
    }
    let skip = buffer.as_ptr().align_offset(4 * LINE).min(LINE);
    let result = body(&mut buffer[skip..skip + len]);
    KEPT.with_borrow_mut(|kept| {
        if kept.len() < KEEP && buffer.len() <= LARGEST {
            kept.push(buffer);
        }
    });
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_is_aligned_nests_and_comes_back() {
        let first = with(1000, |outer| {
            assert_eq!(outer.as_ptr() as usize % 64, 0);
            with(10, |inner| assert_ne!(inner.as_ptr(), outer.as_ptr()));
            outer.as_ptr() as usize
        });
        assert_eq!(with(900, |again| again.as_ptr() as usize), first);
    }
}
