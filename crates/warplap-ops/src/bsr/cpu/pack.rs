//! Packing B: some of its rows and columns come in as they lie; panels as wide as a register tile go out, in f32.

use std::ops::Range;

use warplap_cpu::Typed;
use warplap_cpu::simd::{Element, Lanes, Task};

use super::matrix::{Matrix, Shared};
use crate::gemm::Layout;

/// Which block columns any block stands in: rows of B that none meets need no packing.
pub(super) fn met<T: Typed + Copy>(a: &Matrix<'_, T>) -> Vec<bool> {
    let mut met = vec![false; a.problem.columns()];
    for column in a.columns(0..a.nnz()) {
        met[*column as usize] = true;
    }
    met
}

/// Copies rows of B into panels, widened, with zeros beyond the last column. Panel i of k rows of `width` numbers holds
/// the columns from `columns.start + i * width` on.
///
/// # Safety of the pointer
/// `to` holds `ceil(columns / width)` panels, and nobody else writes `rows` of them.
pub(super) struct Pack<'a, T> {
    pub(super) b: &'a [T],
    pub(super) layout: Layout,
    pub(super) k: usize,
    pub(super) n: usize,
    pub(super) width: usize,
    pub(super) columns: Range<usize>,
    pub(super) rows: Range<usize>,
    pub(super) to: Shared<f32>,
}

impl<T: Element> Task for Pack<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let Pack { b, layout, k, n, width, columns, rows, to } = self;
        assert!(b.len() >= k * n && columns.end <= n && rows.end <= k, "B holds k rows of n columns");
        for (panel, first) in columns.clone().step_by(width).enumerate() {
            let there = width.min(columns.end - first);
            // SAFETY: rows and columns lie inside B (asserted); `to` holds the panel.
            unsafe {
                let to = to.at(panel * k * width);
                if layout == Layout::Row {
                    for r in rows.clone() {
                        let (from, to) = (b.as_ptr().add(r * n + first), to.add(r * width));
                        for at in (0..width).step_by(L::N) {
                            let v = match there.saturating_sub(at) {
                                0 => L::zero(),
                                left if left < L::N => T::load_first::<L>(from.add(at), left),
                                _ => T::load::<L>(from.add(at)),
                            };
                            L::store(to.add(at), v);
                        }
                    }
                } else {
                    for column in 0..width {
                        for r in rows.clone() {
                            let x = if column < there { b[(first + column) * k + r].widen() } else { 0.0 };
                            *to.add(r * width + column) = x;
                        }
                    }
                }
            }
        }
    }
}
