//! Packing for AMX tiles: lines of A or B come in; tiles of 16 lines of 16 pairs of brain floats go out.
//!
//! Tile products take the time of a few reads from the second-level cache, so packing must not take longer than that:
//! whole tiles whose elements lie as the tile wants them, and whole pairs of rows, go through vectors of 64 bytes; edges
//! and the other order go through the general way.

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch, _mm512_loadu_si512, _mm512_permutex2var_epi16, _mm512_store_si512};

use std::ops::Range;

use half::bf16;
use warplap_cpu::amx::{DEPTH, SIDE, STEP};
use warplap_cpu::simd::{Isa, Lanes, Task};

use super::Operand;
use crate::gemm::Layout;

/// The factors of a product: brain floats, or pairs of signed bytes.
#[derive(Clone, Copy)]
pub(crate) struct Factors {
    /// Rows, columns, and pairs of bytes along k.
    pub(crate) size: [usize; 3],
    /// A.
    pub(crate) a: Operand<bf16>,
    /// B.
    pub(crate) b: Operand<bf16>,
}

impl Factors {
    /// Packs 32 rows of A, in `k` steps from `depth` on.
    ///
    /// # Safety
    /// The steps lie inside A, and the panel has room for them.
    pub(super) unsafe fn pack_a(&self, isa: Isa, panel: usize, (depth, k): (usize, usize), to: *mut u16) {
        for half in 0..2 {
            let first = panel * SIDE + half * 16;
            let valid = self.size[0].saturating_sub(first).min(16);
            // SAFETY: the half panel lies inside A and the packed one.
            unsafe {
                let from = if valid > 0 { self.a.element(first, depth) } else { self.a.at };
                let (ld, along_k) = (self.a.ld, self.a.layout == Layout::Row);
                isa.run(Lines(Strip { from, ld, along_k, k, valid, to: to.add(half * STEP / 2) }));
            }
        }
    }

    /// Packs 32 columns of B, of which those before the end are there, in `k` steps from `depth` on.
    ///
    /// # Safety
    /// As for `pack_a`.
    pub(super) unsafe fn pack_b(&self, isa: Isa, there: Range<usize>, (depth, k): (usize, usize), to: *mut u16) {
        let (b, whole) = (&self.b, k / DEPTH);
        // All processors with tiles weave, but nobody promises it.
        let weaves = b.layout == Layout::Row && there.len() >= SIDE && std::arch::is_x86_feature_detected!("avx512bw");
        let done = if weaves { whole * DEPTH } else { 0 };
        if done > 0 {
            // SAFETY: whole tiles of a whole panel lie inside B and the packed one.
            unsafe { woven(b.element(depth, there.start).cast(), b.ld, whole, to) };
        }
        if done == k {
            return;
        }
        for half in 0..2 {
            let first = there.start + half * 16;
            let valid = there.end.saturating_sub(first).min(16);
            // SAFETY: what is left of the half panel lies inside B and the packed one.
            unsafe {
                let from = if valid > 0 { b.element(depth + done, first) } else { b.at };
                let (ld, along_k, to) = (b.ld, b.layout == Layout::Col, to.add(done / DEPTH * STEP + half * STEP / 2));
                isa.run(Pairs(Strip { from, ld, along_k, k: k - done, valid, to }));
            }
        }
    }
}

/// Up to 16 lines of A or B to pack, tile after tile, [`STEP`] apart, zeros after the last line and step.
#[derive(Clone, Copy)]
struct Strip {
    /// Its first element.
    from: *const bf16,
    /// Elements from one line (or step) to the next.
    ld: usize,
    /// Whether steps of k are neighbours in memory.
    along_k: bool,
    /// Steps of k.
    k: usize,
    /// Lines that are there, up to 16.
    valid: usize,
    /// The first tile.
    to: *mut u16,
}

impl Strip {
    /// The 16 × 32 brain floats of one tile as 16 lines of 16 pairs; `line` gives the address of a line's part along k.
    #[inline(always)]
    unsafe fn pairs_along_k(&self, start: usize) -> [[u32; 16]; 16] {
        let mut tile = [[0u32; 16]; 16];
        let steps = (self.k - start).min(DEPTH);
        for (i, line) in tile.iter_mut().enumerate().take(self.valid) {
            // SAFETY: the part of the line lies inside the matrix, and is no longer than 16 pairs.
            unsafe {
                let from = self.from.add(i * self.ld + start).cast::<u8>();
                if steps == DEPTH {
                    *line = from.cast::<[u32; 16]>().read_unaligned();
                } else {
                    std::ptr::copy_nonoverlapping(from, line.as_mut_ptr().cast::<u8>(), 2 * steps);
                }
            }
        }
        tile
    }

    /// The same brain floats as 16 pairs of k of 16 lines, from lines across k.
    #[inline(always)]
    unsafe fn pairs_across_k(&self, start: usize) -> [[u32; 16]; 16] {
        let mut tile = [[0u32; 16]; 16];
        let steps = (self.k - start).min(DEPTH);
        for (q, pairs) in tile.iter_mut().enumerate().take(steps.div_ceil(2)) {
            let (mut low, mut high) = ([0u16; 16], [0u16; 16]);
            // SAFETY: both parts lie inside the matrix; an odd last step has no second one.
            unsafe {
                let from = self.from.add((start + 2 * q) * self.ld).cast::<u16>();
                if self.valid == 16 {
                    low = from.cast::<[u16; 16]>().read_unaligned();
                } else {
                    std::ptr::copy_nonoverlapping(from, low.as_mut_ptr(), self.valid);
                }
                if 2 * q + 1 < steps {
                    let from = from.add(self.ld);
                    if self.valid == 16 {
                        high = from.cast::<[u16; 16]>().read_unaligned();
                    } else {
                        std::ptr::copy_nonoverlapping(from, high.as_mut_ptr(), self.valid);
                    }
                }
            }
            for (pair, (low, high)) in pairs.iter_mut().zip(low.iter().zip(&high)) {
                *pair = u32::from(*low) | u32::from(*high) << 16;
            }
        }
        tile
    }

    /// Copies whole tiles of 16 lines along k, and says how many steps of k that were.
    ///
    /// # Safety
    /// The strip lies inside its matrix and its panel.
    unsafe fn copied(&self) -> usize {
        if !self.along_k || self.valid < 16 {
            return 0;
        }
        let tiles = self.k / DEPTH;
        for i in 0..16 {
            for tile in 0..tiles {
                // SAFETY: 64 bytes of a line, and a line of a tile.
                unsafe {
                    let line = self.from.add(i * self.ld + tile * DEPTH).cast::<[u64; 8]>().read_unaligned();
                    self.to.add(tile * STEP + i * DEPTH).cast::<[u64; 8]>().write(line);
                }
            }
        }
        tiles * DEPTH
    }

    /// Where the tile of a step goes.
    #[inline(always)]
    unsafe fn tile(&self, start: usize) -> *mut [[u32; 16]; 16] {
        // SAFETY: inside the panel; tiles start on cache lines.
        unsafe { self.to.add(start / DEPTH * STEP).cast() }
    }
}

/// Packs a strip line by line: the form of A.
struct Lines(Strip);

impl Task for Lines {
    type Out = ();
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: the caller promised strip and panel; tiles start on cache lines.
        let done = unsafe { self.0.copied() };
        for start in (done..self.0.k).step_by(DEPTH) {
            // SAFETY: as above.
            unsafe {
                let tile = self.0.tile(start);
                if self.0.along_k {
                    *tile = self.0.pairs_along_k(start);
                } else {
                    *tile = turned::<L>(self.0.pairs_across_k(start));
                }
            }
        }
    }
}

/// Packs a strip pair of k by pair of k: the form of B.
struct Pairs(Strip);

impl Task for Pairs {
    type Out = ();
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        for start in (0..self.0.k).step_by(DEPTH) {
            // SAFETY: the caller promised strip and panel.
            unsafe {
                let tile = self.0.tile(start);
                if self.0.along_k {
                    *tile = turned::<L>(self.0.pairs_along_k(start));
                } else {
                    *tile = self.0.pairs_across_k(start);
                }
            }
        }
    }
}

/// Rows that are asked for ahead: they are far from each other, and nothing else sees them coming.
const AHEAD: usize = 16;

/// Weaves 32 columns of rows across k, two rows at a time, into so many steps of tiles.
///
/// # Safety
/// `steps` times 32 rows of 32 elements lie behind `from`, rows `ld` apart, and as many steps behind `to`, which starts on
/// a cache line.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn woven(from: *const u16, ld: usize, steps: usize, to: *mut u16) {
    let weave = |first: i16| {
        let places: [i16; 32] = std::array::from_fn(|i| first + i as i16 / 2 + i as i16 % 2 * 32);
        // SAFETY: 64 bytes are read from 64.
        unsafe { _mm512_loadu_si512(places.as_ptr().cast()) }
    };
    let halves = [weave(0), weave(16)];
    for q in 0..steps * DEPTH / 2 {
        // SAFETY: the caller promised both rows and the lines of both tiles; asking ahead reads nothing.
        unsafe {
            let [low, high] = [2 * q, 2 * q + 1].map(|row| {
                _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add((row + AHEAD) * ld).cast());
                _mm512_loadu_si512(from.add(row * ld).cast())
            });
            let line = to.add(q / 16 * STEP + q % 16 * DEPTH);
            _mm512_store_si512(line.cast(), _mm512_permutex2var_epi16(low, halves[0], high));
            _mm512_store_si512(line.add(STEP / 2).cast(), _mm512_permutex2var_epi16(low, halves[1], high));
        }
    }
}

/// Turns 16 × 16 pairs in registers: moving lanes does not look at what is in them.
#[inline(always)]
pub(crate) unsafe fn turned<L: Lanes>(tile: [[u32; 16]; 16]) -> [[u32; 16]; 16] {
    let mut out = [[0u32; 16]; 16];
    if L::N != 16 {
        for (i, line) in out.iter_mut().enumerate() {
            for (j, pair) in line.iter_mut().enumerate() {
                *pair = tile[j][i];
            }
        }
        return out;
    }
    // SAFETY: 16 lanes of 4 bytes are a line.
    unsafe {
        let mut square = [L::zero(); 16];
        for (v, line) in square.iter_mut().zip(&tile) {
            *v = L::load(line.as_ptr().cast());
        }
        L::transpose(square.as_mut_ptr());
        for (v, line) in square.iter().zip(&mut out) {
            L::store(line.as_mut_ptr().cast(), *v);
        }
    }
    out
}
