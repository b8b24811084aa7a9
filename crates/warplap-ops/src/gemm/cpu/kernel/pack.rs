//! Packing: a strip of a matrix comes in; a panel goes out that the register tile reads from front to back, widened
//! to f32.
//!
//! A panel holds `stride` numbers per step of k: the strip's `valid` lines side by side, then zeros.

use warplap_cpu::simd::{Element, Isa, Lanes, Task};

/// One strip to pack.
#[derive(Clone, Copy)]
pub(crate) struct Strip<T> {
    /// The first element.
    pub from: *const T,
    /// Elements from one line to the next.
    pub ld: usize,
    /// Whether a line runs along k (then the strip is turned), or side by side as in the panel.
    pub turned: bool,
    /// Steps of k.
    pub k: usize,
    /// Lines of the strip; the rest of the panel is zero.
    pub valid: usize,
    /// Elements that may be read in the direction across k from `from` on: full vectors are read where they fit.
    pub room: usize,
    /// Numbers per step of k in the panel.
    pub stride: usize,
    /// The panel: `k * stride` numbers, and [`SLACK`] more that may be overwritten.
    pub to: *mut f32,
}

/// Numbers after a panel that packing may overwrite.
pub(crate) const SLACK: usize = 16;

/// Steps of k that copying asks for in advance.
const AHEAD: usize = 8;

/// Packs one strip.
///
/// # Safety
/// `from` spans the strip, `to` spans the panel and its slack, and `stride >= valid`. Panels that lie one after
/// another are packed in that order, since the slack of one is the start of the next.
pub(crate) unsafe fn pack<T: Element>(isa: Isa, strip: Strip<T>) {
    isa.run(strip);
}

impl<T: Element> Task for Strip<T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // The last vectors of each step first: where they reach into the next step, its own come later.
        for first in (0..self.stride).step_by(L::N).rev() {
            // SAFETY: the caller of `pack` promised strip and panel; see there.
            unsafe { if self.turned { turn::<T, L>(&self, first) } else { copy::<T, L>(&self, first) } }
        }
    }
}

/// Lines side by side already: one vector per step.
#[inline(always)]
unsafe fn copy<T: Element, L: Lanes>(s: &Strip<T>, first: usize) {
    let valid = s.valid.saturating_sub(first).min(L::N);
    // Where the matrix goes on, a full vector is read and what lies past the panel's row is overwritten by the next
    // step; rows that are short of lines need their zeros.
    let full = first + L::N <= s.room && (valid == L::N || s.valid >= s.stride);
    // SAFETY: reads stay within `room`, writes within the panel and its slack (stride <= first + N + slack).
    unsafe {
        for p in 0..s.k {
            let from = s.from.add(p * s.ld + first);
            // Lines are often a page apart, where the hardware does not look ahead.
            L::prefetch(from.wrapping_add(AHEAD * s.ld));
            let v = if valid == 0 {
                L::zero()
            } else if full || valid == L::N {
                T::load::<L>(from)
            } else {
                T::load_first::<L>(from, valid)
            };
            L::store(s.to.add(p * s.stride + first), v);
        }
    }
}

/// Lines along k: N of them at a time are turned in registers.
#[inline(always)]
unsafe fn turn<T: Element, L: Lanes>(s: &Strip<T>, first: usize) {
    let valid = s.valid.saturating_sub(first).min(L::N);
    // SAFETY: N never exceeds 16. Reads stay within the strip's lines, writes within the panel and its slack.
    unsafe {
        for p in (0..s.k).step_by(L::N) {
            let steps = (s.k - p).min(L::N);
            let mut square = [L::zero(); 16];
            for (i, row) in square.iter_mut().enumerate().take(L::N) {
                if i < valid {
                    let from = s.from.add((first + i) * s.ld + p);
                    *row = if steps == L::N { T::load::<L>(from) } else { T::load_first::<L>(from, steps) };
                }
            }
            L::transpose(square.as_mut_ptr());
            for (i, column) in square.iter().enumerate().take(L::N) {
                if i < steps {
                    L::store(s.to.add((p + i) * s.stride + first), *column);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    fn check<T: Element>(number: impl Fn(usize) -> T) {
        for isa in Isa::available() {
            for (stride, valid) in [(14, 14), (14, 9), (32, 32), (32, 17), (6, 6), (6, 5), (4, 1), (48, 47), (2, 2)] {
                for (k, turned) in [(1, false), (1, true), (19, false), (19, true), (32, true), (33, false)] {
                    let (ld, lines) = if turned { (k + 3, valid) } else { (valid + 3, k) };
                    let from: Vec<T> = (0..(lines - 1) * ld + if turned { k } else { valid }).map(&number).collect();
                    let mut to = vec![7.0f32; k * stride + SLACK];
                    let strip =
                        Strip { from: from.as_ptr(), ld, turned, k, valid, room: valid, stride, to: to.as_mut_ptr() };
                    // SAFETY: both vectors span what the strip says.
                    unsafe { pack(isa, strip) };
                    for p in 0..k {
                        for i in 0..stride {
                            let at = if turned { i * ld + p } else { p * ld + i };
                            let right = if i < valid { from[at].widen() } else { 0.0 };
                            assert_eq!(to[p * stride + i], right, "{isa:?} {stride} {valid} {k} {turned} ({p}, {i})");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn panels_hold_the_lines_side_by_side_and_zeros_after_them() {
        check(|i| i as f32);
        check(|i| f16::from_f32((i % 512) as f32));
        check(|i| bf16::from_f32((i % 128) as f32));
    }
}
