//! Blocked loops over AMX tiles: brain floats, or pairs of signed bytes, come in as they are; sums are f32 or i32.
//!
//! The loops are those of `blocked`; what differs is the form of the panels (pairs of k side by side, 32 rows or
//! columns at a time, zeros at the edges) and that sums pass through memory between tiles and C. With [`BY_PANEL`] there
//! are no blocks: A is packed whole, and each thread packs 32 columns of B and uses them while they are near.

use half::bf16;
use warplap_cpu::amx::{Amx, DEPTH, SIDE, STEP};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::Isa;

pub(crate) use super::amx_pack::{Factors, turned};
use super::amx_sums::Floats;
pub(crate) use super::amx_sums::Sums;
use super::blocked::Product;
use super::stages::Stages;
use super::{Shared, scratch};

/// Columns of B packed at a time where every thread packs its own.
pub(crate) const BY_PANEL: usize = SIDE;

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

struct AmxCut<S> {
    p: Factors,
    kind: S,
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
    let factors = Factors { size: [p.m, p.n, p.k], a: p.a, b: p.b };
    // SAFETY: the caller's word.
    unsafe { squares(amx, pool, cut, factors, Floats::of(p)) };
}

/// The product of factors, in squares of sums of a kind.
///
/// # Safety
/// As for `product`.
pub(crate) unsafe fn squares(amx: Amx, pool: &Pool, cut: Cut, p: Factors, kind: impl Sums) {
    let [m, n, k] = p.size;
    if m == 0 || n == 0 {
        return;
    }
    let threads = cut.threads.min(pool.threads()).max(1);
    if cut.nc == BY_PANEL {
        // SAFETY: the caller's word.
        return unsafe { by_panel(amx, pool, threads, p, kind) };
    }
    let row_panels = m.div_ceil(SIDE);
    let columns = n.div_ceil(n.div_ceil(cut.nc)).next_multiple_of(SIDE);
    let column_blocks = n.div_ceil(columns);
    let kc = k.div_ceil(k.div_ceil(cut.kc).max(1)).next_multiple_of(DEPTH).max(DEPTH);
    let depth_blocks = k.div_ceil(kc).max(1);
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
        let plan =
            AmxCut { p, kind, isa: Isa::best(), kc, columns, depth_blocks, packs, row_blocks, column_parts, sums };
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

impl<S: Sums> AmxCut<S> {
    /// (first column, columns, first step, steps) of a stage.
    fn stage(&self, stage: usize) -> (usize, usize, usize, usize) {
        let (column, depth) = (stage / self.depth_blocks * self.columns, stage % self.depth_blocks * self.kc);
        (column, (self.p.size[1] - column).min(self.columns), depth, (self.p.size[2] - depth).min(self.kc))
    }

    unsafe fn pack_b(&self, stage: usize, share: usize, to: *mut u16) {
        let (column, columns, depth, k) = self.stage(stage);
        let (panels, steps) = (columns.div_ceil(SIDE), k.div_ceil(DEPTH));
        for panel in share * panels / self.packs..(share + 1) * panels / self.packs {
            let there = column + panel * SIDE..column + columns;
            // SAFETY: the panel lies inside B and the packed block.
            unsafe { self.p.pack_b(self.isa, there, (depth, k), to.add(panel * steps * STEP)) };
        }
    }

    unsafe fn multiply(&self, amx: Amx, stage: usize, task: usize, b: *const u16) {
        let (column, columns, depth, k) = self.stage(stage);
        let (block, part) = (task / self.column_parts, task % self.column_parts);
        let (row_panels, panels, steps) = (self.p.size[0].div_ceil(SIDE), columns.div_ceil(SIDE), k.div_ceil(DEPTH));
        let rows = block * row_panels / self.row_blocks..(block + 1) * row_panels / self.row_blocks;
        let part = part * panels / self.column_parts..(part + 1) * panels / self.column_parts;
        let last = depth + k == self.p.size[2];
        scratch::with(rows.len() * steps * STEP / 2 + SIDE * SIDE, |memory| {
            let (square, a) = memory.split_at_mut(SIDE * SIDE);
            let a = a.as_mut_ptr().cast::<u16>();
            // SAFETY: panels lie inside A, B, C and the scratch memory; sums are whole tiles.
            amx.with(|tiles| unsafe {
                for (i, panel) in rows.clone().enumerate() {
                    self.p.pack_a(self.isa, panel, (depth, k), a.add(i * steps * STEP));
                }
                for panel in part {
                    for (i, row_panel) in rows.clone().enumerate() {
                        let (row, first) = (row_panel * SIDE, panel * SIDE);
                        let sums = self.sums.0.wrapping_add(row * self.columns + first);
                        let from = if depth == 0 { std::ptr::null() } else { sums.cast_const() };
                        let to = if last { (square.as_mut_ptr(), SIDE) } else { (sums, self.columns) };
                        let factors = [a.add(i * steps * STEP).cast_const(), b.add(panel * steps * STEP)];
                        self.kind.multiply(tiles, steps, factors, (from, self.columns), to);
                        if last {
                            let size = ((self.p.size[0] - row).min(SIDE), (columns - first).min(SIDE));
                            self.kind.finish(self.isa, square.as_mut_ptr(), (row, column + first), size);
                        }
                    }
                }
            });
        });
    }
}

/// The product without blocks.
///
/// # Safety
/// As for `product`.
unsafe fn by_panel(amx: Amx, pool: &Pool, threads: usize, p: Factors, kind: impl Sums) {
    let ([m, n, k], isa) = (p.size, Isa::best());
    let (row_panels, steps) = (m.div_ceil(SIDE), k.div_ceil(DEPTH));
    scratch::with(row_panels * steps * STEP / 2, |memory| {
        let all = Shared(memory.as_mut_ptr());
        // SAFETY: every task packs a panel of its own, inside of the scratch memory.
        let a = |panel: usize| unsafe { all.add(panel * steps * STEP / 2).cast::<u16>() };
        // SAFETY: panels lie inside A and the scratch memory.
        pool.each(threads, row_panels, |panel| unsafe { p.pack_a(isa, panel, (0, k), a(panel)) });
        pool.each(threads, n.div_ceil(SIDE), |panel| {
            scratch::with(steps * STEP / 2 + SIDE * SIDE, |memory| {
                let (square, b) = memory.split_at_mut(SIDE * SIDE);
                let (square, b, first) = (square.as_mut_ptr(), b.as_mut_ptr().cast::<u16>(), panel * SIDE);
                // SAFETY: panels lie inside B, C and the scratch memory; nobody else has these columns of C.
                amx.with(|tiles| unsafe {
                    p.pack_b(isa, first..n, (0, k), b);
                    for row in (0..m).step_by(SIDE) {
                        let factors = [a(row / SIDE).cast_const(), b.cast_const()];
                        kind.multiply(tiles, steps, factors, (std::ptr::null(), 0), (square, SIDE));
                        kind.finish(isa, square, (row, first), ((m - row).min(SIDE), (n - first).min(SIDE)));
                    }
                });
            });
        });
    });
}
