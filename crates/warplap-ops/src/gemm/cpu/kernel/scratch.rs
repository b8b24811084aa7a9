//! Scratch memory: each thread keeps what it used before, so that a launch costs no page faults. A length comes in;
//! a slice that starts on a cache line goes out for the time of a call.

use std::cell::RefCell;

/// One cache line.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Larger pieces are given back to the system after use.
const KEPT_LINES: usize = (256 << 20) / 64;

thread_local! {
    static KEPT: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` with `len` numbers of any value. Calls may nest.
pub(crate) fn with<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut lines = KEPT.with_borrow_mut(Vec::pop).unwrap_or_default();
    let wanted = len.div_ceil(16);
    if lines.len() < wanted {
        // Growing in place would copy what nobody reads.
        lines = vec![Line::default(); wanted];
    }
    // SAFETY: a Line is 16 numbers without padding, and there are at least len / 16 of them.
    let numbers = unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast::<f32>(), len) };
    let out = f(numbers);
    if lines.len() <= KEPT_LINES {
        KEPT.with_borrow_mut(|kept| kept.push(lines));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_scratch_is_disjoint_and_starts_on_a_cache_line() {
        for len in [1, 17, 1000, 5] {
            with(len, |outer| {
                outer.fill(1.0);
                with(len, |inner| {
                    inner.fill(2.0);
                    assert_eq!((inner.len(), inner.as_ptr() as usize % 64), (len, 0));
                });
                assert!(outer.len() == len && outer.iter().all(|x| *x == 1.0));
            });
        }
    }
}
