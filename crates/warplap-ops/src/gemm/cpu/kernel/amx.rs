//! Blocked loops over AMX tiles: brain floats come in as they are, sums are kept in f32.
//!
//! The loops are those of `blocked`; what differs is the form of the panels (pairs of k side by side, 32 rows or
//! columns at a time, zeros at the edges) and that sums pass through memory between tiles and C.

use half::bf16;
use warplap_cpu::amx::{Amx, DEPTH, SIDE, STEP};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Isa, Lanes, Task};

use super::blocked::Product;
use super::epilogue::Part;
use super::stages::Stages;
use super::tile::Narrow;
use super::{Shared, scratch};
use crate::gemm::Layout;

/// How the loops are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Rows of A packed at a time.
    pub mc: usize,
    /// Steps of k packed at a time.
    pub kc: usize,
    /// Columns of B packed at a time.
    pub nc: usize,
    /// Threads.
    pub threads: usize,
}

struct AmxCut<'a> {
    p: Product<'a, bf16>,
    isa: Isa,
    kc: usize,
    columns: usize,
    depth_blocks: usize,
    packs: usize,
    row_blocks: usize,
    column_parts: usize,
    /// Sums of one block of columns between blocks of k, in whole tiles; null where k is one block.
    sums: Shared<f32>,
}

/// C = A·B, with its epilogue.
///
/// # Safety
/// The operands and C span what the shapes say, and nobody else touches C.
pub(crate) unsafe fn product(amx: Amx, pool: &Pool, cut: Cut, p: Product<'_, bf16>) {
    if p.m == 0 || p.n == 0 {
        return;
    }
    let threads = cut.threads.min(pool.threads()).max(1);
    let row_panels = p.m.div_ceil(SIDE);
    let columns = p.n.div_ceil(p.n.div_ceil(cut.nc)).next_multiple_of(SIDE);
    let column_blocks = p.n.div_ceil(columns);
    let kc = p.k.div_ceil(p.k.div_ceil(cut.kc).max(1)).next_multiple_of(DEPTH).max(DEPTH);
    let depth_blocks = p.k.div_ceil(kc).max(1);
    let row_blocks = (row_panels * SIDE).div_ceil(cut.mc).next_multiple_of(threads).min(row_panels);
    let even = row_panels.is_multiple_of(threads) || row_panels / threads >= 4;
    let column_parts = if even { 1 } else { (2 * threads).min(columns / SIDE) };
    let packs = if threads > 1 { (4 * threads).min(columns / SIDE) } else { 1 };
    let stages = column_blocks * depth_blocks;
    let buffers = if threads > 1 && stages > 1 { 2 } else { 1 };
    // Two brain floats take the room of one number.
    let b_len = kc * columns / 2;
    let sums_len = if depth_blocks > 1 { row_panels * SIDE * columns } else { 0 };
    scratch::with(buffers * b_len + sums_len, |memory| {
        let (b, sums) = memory.split_at_mut(buffers * b_len);
        let b = Shared(b.as_mut_ptr());
        let sums = Shared(if sums_len > 0 { sums.as_mut_ptr() } else { std::ptr::null_mut() });
        let plan = AmxCut { p, isa: Isa::best(), kc, columns, depth_blocks, packs, row_blocks, column_parts, sums };
        let stages = Stages { threads, stages, packs, products: row_blocks * column_parts, buffers };
        // SAFETY: the buffers hold `b_len` numbers each; tasks write disjoint parts, and Stages lets no task start
        // before those whose parts it reads or overwrites.
        let block = |stage: usize| unsafe { b.add(stage % buffers * b_len).cast::<u16>() };
        stages.run(
            pool,
            // SAFETY: as above.
            |stage, share| unsafe { plan.pack_b(stage, share, block(stage)) },
            // SAFETY: as above.
            |stage, task| unsafe { plan.multiply(amx, stage, task, block(stage)) },
        );
    });
}

impl AmxCut<'_> {
    /// (first column, columns, first step, steps) of a stage.
    fn stage(&self, stage: usize) -> (usize, usize, usize, usize) {
        let (column, depth) = (stage / self.depth_blocks * self.columns, stage % self.depth_blocks * self.kc);
        (column, (self.p.n - column).min(self.columns), depth, (self.p.k - depth).min(self.kc))
    }

    unsafe fn pack_b(&self, stage: usize, share: usize, to: *mut u16) {
        let (column, columns, depth, k) = self.stage(stage);
        let (panels, steps) = (columns.div_ceil(SIDE), k.div_ceil(DEPTH));
        for panel in share * panels / self.packs..(share + 1) * panels / self.packs {
            for half in 0..2 {
                let first = column + panel * SIDE + half * 16;
                let valid = (column + columns).saturating_sub(first).min(16);
                // SAFETY: the half panel lies inside B and the packed block.
                unsafe {
                    let strip = Strip {
                        from: if valid > 0 { self.p.b.element(depth, first) } else { self.p.b.at },
                        ld: self.p.b.ld,
                        along_k: self.p.b.layout == Layout::Col,
                        k,
                        valid,
                        to: to.add(panel * steps * STEP + half * STEP / 2),
                    };
                    self.isa.run(Pairs(strip));
                }
            }
        }
    }

    unsafe fn multiply(&self, amx: Amx, stage: usize, task: usize, b: *const u16) {
        let (column, columns, depth, k) = self.stage(stage);
        let (block, part) = (task / self.column_parts, task % self.column_parts);
        let (row_panels, panels, steps) = (self.p.m.div_ceil(SIDE), columns.div_ceil(SIDE), k.div_ceil(DEPTH));
        let rows = block * row_panels / self.row_blocks..(block + 1) * row_panels / self.row_blocks;
        let part = part * panels / self.column_parts..(part + 1) * panels / self.column_parts;
        let last = depth + k == self.p.k;
        scratch::with(rows.len() * steps * STEP / 2 + SIDE * SIDE, |memory| {
            let (square, a) = memory.split_at_mut(SIDE * SIDE);
            let a = a.as_mut_ptr().cast::<u16>();
            // SAFETY: panels lie inside A, B, C and the scratch memory; sums are whole tiles.
            amx.with(|tiles| unsafe {
                for (i, panel) in rows.clone().enumerate() {
                    self.pack_a(panel, depth, k, a.add(i * steps * STEP));
                }
                for panel in part {
                    for (i, row_panel) in rows.clone().enumerate() {
                        let (row, first) = (row_panel * SIDE, panel * SIDE);
                        let sums = self.sums.0.wrapping_add(row * self.columns + first);
                        let from = if depth == 0 { std::ptr::null() } else { sums.cast_const() };
                        let to = if last { (square.as_mut_ptr(), SIDE) } else { (sums, self.columns) };
                        let a = a.add(i * steps * STEP);
                        tiles.multiply(steps, a, b.add(panel * steps * STEP), (from, self.columns), to);
                        if last {
                            let (rows, columns) = ((self.p.m - row).min(SIDE), (columns - first).min(SIDE));
                            let (at, first) = (square.as_mut_ptr(), column + first);
                            let part = Part { at, row: SIDE, rows, columns, first, turned: false };
                            self.p.epilogue.run(self.isa, part);
                            self.isa.run(Narrow {
                                from: square.as_ptr(),
                                from_row: SIDE,
                                to: self.p.c.add(row * self.p.ldc + first),
                                to_row: self.p.ldc,
                                rows,
                                columns,
                            });
                        }
                    }
                }
            });
        });
    }

    unsafe fn pack_a(&self, panel: usize, depth: usize, k: usize, to: *mut u16) {
        for half in 0..2 {
            let first = panel * SIDE + half * 16;
            let valid = self.p.m.saturating_sub(first).min(16);
            // SAFETY: the half panel lies inside A and the scratch memory.
            unsafe {
                let strip = Strip {
                    from: if valid > 0 { self.p.a.element(first, depth) } else { self.p.a.at },
                    ld: self.p.a.ld,
                    along_k: self.p.a.layout == Layout::Row,
                    k,
                    valid,
                    to: to.add(half * STEP / 2),
                };
                self.isa.run(Lines(strip));
            }
        }
    }
}

/// Up to 16 lines of A or B to pack, tile after tile, [`STEP`] apart, zeros after the last line and step.
#[derive(Clone, Copy)]
struct Strip {
    from: *const bf16,
    ld: usize,
    along_k: bool,
    k: usize,
    valid: usize,
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
        for start in (0..self.0.k).step_by(DEPTH) {
            // SAFETY: the caller promised strip and panel.
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

/// Turns 16 × 16 pairs in registers: moving lanes does not look at what is in them.
#[inline(always)]
unsafe fn turned<L: Lanes>(tile: [[u32; 16]; 16]) -> [[u32; 16]; 16] {
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
