//! Products with one short side (a vector or a few of them): the large operand is streamed once, from where it is.
//!
//! The few vectors are packed first. Lines of the large operand that run along k are met by dot products, lines across
//! k by register tiles that add multiples of them. Tasks take parts of the long side, and of k as well where the long
//! side alone has too few.

use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa};

use super::blocked::Product;
use super::dot::{self, Dots};
use super::epilogue::Part;
use super::pack::{SLACK, Strip, pack};
use super::tile::{self, Tile};
use super::{Shared, scratch};
use crate::gemm::Layout;

/// The most vectors on the short side.
pub(crate) const MOST: usize = 14;

/// How the loops are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Instruction set.
    pub isa: Isa,
    /// Most vectors of a register tile's width.
    pub nv: usize,
    /// Parts of k, each with sums of its own.
    pub parts: usize,
    /// Threads.
    pub threads: usize,
}

/// C = A·B with its epilogue, where m or n is at most [`MOST`].
///
/// # Safety
/// The operands and C span what the shapes say, and nobody else touches C.
pub(crate) unsafe fn product<T: Element>(pool: &Pool, cut: Cut, p: Product<'_, T>) {
    // The short side as rows: otherwise the transposed product, written the other way round.
    let turned = p.n < p.m;
    let p = if turned { Product { m: p.n, n: p.m, a: p.b.transposed(), b: p.a.transposed(), ..p } } else { p };
    if p.m == 0 || p.n == 0 {
        return;
    }
    debug_assert!(p.m <= MOST);
    let along = p.b.layout == Layout::Row;
    let width = if along { strip_width(cut, p.m) } else { 16 };
    let units = p.n.div_ceil(width);
    let threads = cut.threads.min(pool.threads()).max(1);
    let parts = cut.parts.clamp(1, p.k.max(1));
    let chunks = if threads == 1 { 1 } else { (4 * threads).min(units) };
    let made = if along { tile::rows_made(p.m) } else { p.m };
    scratch::with(made * p.k.max(1) + SLACK, |vectors| {
        // SAFETY: the scratch memory holds all vectors and the slack; the strip is all of the short operand.
        unsafe { pack_vectors(cut.isa, &p, along, made, vectors.as_mut_ptr()) };
        let vectors = &*vectors;
        scratch::with(parts * p.m * p.n, |sums| {
            let sums = Shared(sums.as_mut_ptr());
            pool.each(threads, chunks * parts, |task| {
                let (part, chunk) = (task / chunks, task % chunks);
                let steps = part * p.k / parts..(part + 1) * p.k / parts;
                let columns = chunk * units / chunks * width..((chunk + 1) * units / chunks * width).min(p.n);
                // SAFETY: each task has its own columns of its part's sums; all ranges lie inside the operands.
                unsafe {
                    let to = sums.add(part * p.m * p.n);
                    if along {
                        add_multiples(cut.isa, &p, vectors, made, width, steps, columns.clone(), to);
                    } else {
                        let dots = Dots {
                            k: steps.len(),
                            lines: p.b.element(steps.start, columns.start),
                            ld: p.b.ld,
                            count: columns.len(),
                            vectors: vectors.as_ptr().add(steps.start),
                            vector_ld: p.k,
                            vectors_count: p.m,
                            to: to.add(columns.start),
                            to_row: p.n,
                        };
                        dot::run(cut.isa, dots);
                    }
                    if parts == 1 {
                        finish(cut.isa, &p, turned, 1, sums.0, columns);
                    }
                }
            });
            if parts > 1 {
                // SAFETY: all tasks have ended; the sums of all parts are there.
                unsafe { finish(cut.isa, &p, turned, parts, sums.0, 0..p.n) };
            }
        });
    });
}

/// Columns of one strip: as many vectors as leave the sums of `rows` rows in registers.
fn strip_width(cut: Cut, rows: usize) -> usize {
    let vectors = (1..=cut.nv).rev().find(|v| tile::most_rows(cut.isa, *v) >= tile::rows_made(rows)).unwrap_or(1);
    vectors * cut.isa.lanes()
}

/// The short operand as f32: step by step for tiles, vector after vector for dot products.
unsafe fn pack_vectors<T: Element>(isa: Isa, p: &Product<'_, T>, along: bool, made: usize, to: *mut f32) {
    let by_rows = p.a.layout == Layout::Row;
    let (from, ld) = (p.a.at, p.a.ld);
    // SAFETY: the strips lie inside A; `to` holds `made * k` numbers and the slack.
    unsafe {
        if along {
            pack(isa, Strip { from, ld, turned: by_rows, k: p.k, valid: p.m, room: p.m, stride: made, to });
            return;
        }
        for i in 0..p.m {
            for q in 0..p.k {
                *to.add(i * p.k + q) = (*p.a.element(i, q)).widen();
            }
        }
    }
}

/// Strips of B in place against all rows.
#[allow(clippy::too_many_arguments)] // One call, kept flat for the compiler.
unsafe fn add_multiples<T: Element>(
    isa: Isa,
    p: &Product<'_, T>,
    vectors: &[f32],
    made: usize,
    width: usize,
    steps: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
    to: *mut f32,
) {
    for first in columns.clone().step_by(width) {
        let wide = (columns.end - first).min(width);
        // A narrow instruction set may have no tile of so many rows: then several of fewer.
        let most = tile::most_rows(isa, wide.div_ceil(isa.lanes()));
        debug_assert!(most >= made);
        // SAFETY: strip and rows lie inside the operands and sums.
        unsafe {
            let tile = Tile {
                k: steps.len(),
                a: vectors.as_ptr().add(steps.start * made),
                a_row: 1,
                a_step: made,
                b: p.b.element(steps.start, first),
                b_step: p.b.ld,
                b_padded: false,
                from: std::ptr::null(),
                from_row: 0,
                to: to.add(first),
                to_row: p.n,
                rows: p.m,
                columns: wide,
            };
            tile::run(isa, &tile);
        }
    }
}

/// Adds the parts' sums, finishes them and writes columns of C.
unsafe fn finish<T: Element>(
    isa: Isa,
    p: &Product<'_, T>,
    turned: bool,
    mut parts: usize,
    sums: *mut f32,
    columns: std::ops::Range<usize>,
) {
    if !p.epilogue.is_none() {
        let (row, rows) = (p.n, p.m);
        let (top, first) = if turned { (columns.start, 0) } else { (0, columns.start) };
        // SAFETY: the columns lie inside the sums of every part.
        unsafe {
            let at = sums.add(columns.start);
            for (part, i) in (1..parts).flat_map(|part| (0..p.m).map(move |i| (part, i))) {
                for j in 0..columns.len() {
                    *at.add(i * row + j) += *at.add((part * p.m + i) * row + j);
                }
            }
            p.epilogue.run(isa, Part { at, row, rows, columns: columns.len(), top, first, turned });
        }
        parts = 1;
    }
    for i in 0..p.m {
        for j in columns.clone() {
            // SAFETY: (i, j) lies inside the sums and C.
            unsafe {
                let sum: f32 = (0..parts).map(|part| *sums.add((part * p.m + i) * p.n + j)).sum();
                *p.c.add(if turned { j * p.ldc + i } else { i * p.ldc + j }) = T::narrow(sum);
            }
        }
    }
}
