//! What AMX tiles hold: how they are multiplied, and what becomes of squares of sums.

use std::arch::x86_64::{__m512i, _mm512_cvtne2ps_pbh, _mm512_load_ps, _mm512_storeu_si512};

use half::bf16;
use warplap_cpu::amx::{SIDE, Tiles};
use warplap_cpu::simd::Isa;

use super::blocked::Product;
use super::epilogue::Part;
use super::tile::Narrow;

/// One kind of sums.
pub(crate) trait Sums: Sync {
    /// Adds to 32 by 32 sums, as `Tiles::multiply` does.
    ///
    /// # Safety
    /// As `Tiles::multiply`.
    unsafe fn multiply(
        &self,
        tiles: &Tiles,
        steps: usize,
        [a, b]: [*const u16; 2],
        from: (*const f32, usize),
        to: (*mut f32, usize),
    ) {
        // SAFETY: the caller's word.
        unsafe { tiles.multiply(steps, a, b, from, to) };
    }

    /// Takes finished sums, lines of [`SIDE`], to their place in C: (row, column), and how many of each count.
    ///
    /// # Safety
    /// The place lies in C, and nobody else writes there; the sums start on a cache line.
    unsafe fn finish(&self, isa: Isa, square: *mut f32, at: (usize, usize), size: (usize, usize));
}

/// Sums of brain floats, with the epilogue of their product.
pub(super) struct Floats<'a> {
    p: Product<'a, bf16>,
    /// Whether the processor has an instruction that rounds to brain floats.
    rounds: bool,
}

impl<'a> Floats<'a> {
    pub(super) fn of(p: Product<'a, bf16>) -> Self {
        Floats { p, rounds: std::arch::is_x86_feature_detected!("avx512bf16") }
    }
}

impl Sums for Floats<'_> {
    unsafe fn finish(&self, isa: Isa, square: *mut f32, (row, first): (usize, usize), (rows, columns): (usize, usize)) {
        let (p, from_row) = (&self.p, SIDE);
        let part = Part { at: square, row: SIDE, rows, columns, top: row, first, turned: false };
        // SAFETY: the caller's word.
        unsafe {
            p.epilogue.run(isa, part);
            let (from, to, to_row) = (square.cast_const(), p.c.add(row * p.ldc + first), p.ldc);
            if columns == SIDE && self.rounds {
                rounded(from, to.cast(), to_row, rows);
            } else {
                isa.run(Narrow { from, from_row, to, to_row, rows, columns });
            }
        }
    }
}

/// Rounds rows of 32 sums, which start on cache lines.
///
/// # Safety
/// `from` holds so many rows, and `to` has room for them, `to_row` elements apart.
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn rounded(from: *const f32, to: *mut u16, to_row: usize, rows: usize) {
    for row in 0..rows {
        // SAFETY: the caller promised the memory; both halves are 64 bytes.
        unsafe {
            let [low, high] = [0, 16].map(|half| _mm512_load_ps(from.add(row * SIDE + half)));
            let line: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
            _mm512_storeu_si512(to.add(row * to_row).cast(), line);
        }
    }
}
