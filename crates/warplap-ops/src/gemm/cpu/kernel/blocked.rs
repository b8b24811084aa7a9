//! Blocked loops over packed panels: operands and a [`Blocking`] come in; C goes out.
//!
//! For each block of columns and each block of k (a stage) B is packed once and shared by all threads; then threads
//! take blocks of rows, pack them for themselves and run register tiles.

use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa};

use super::epilogue::{Epilogue, Part};
use super::in_place::read_in_place;
use super::pack::{SLACK, Strip, pack};
use super::stages::Stages;
use super::tile::{self, Narrow, Tile};
use super::{Operand, Shared, scratch};
use crate::gemm::Layout;

/// How the loops are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocking {
    /// Instruction set.
    pub isa: Isa,
    /// Rows of a register tile.
    pub mr: usize,
    /// Vectors of a register tile.
    pub nv: usize,
    /// Rows of A packed at a time; the block should stay in the core's second cache.
    pub mc: usize,
    /// Steps of k packed at a time; one panel of B should stay in the first cache.
    pub kc: usize,
    /// Columns of B packed at a time.
    pub nc: usize,
    /// Whose panel stays in the first cache while the other's pass by.
    pub keep: Keep,
    /// Threads.
    pub threads: usize,
}

/// Whose panel stays in the first cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// B's: all rows of a block of A go over it; `mc` times `kc` should fit in the second cache.
    B,
    /// A's: all columns of a block of B go over it; `nc` times `kc` should fit in the second cache.
    A,
    /// The same with A read in place: nothing of A is copied. For f32 and tiles of at most 8 rows and 3 vectors.
    Raw,
}

/// Rows of A packed at a time without tuning.
pub(crate) const MC: usize = 240;

impl Keep {
    /// Columns of B to pack at a time: all of them pass by again and again where A's panel stays, and must then fit in
    /// the second cache (1 MiB of it) together.
    pub(crate) fn columns(self, kc: usize) -> usize {
        match self {
            Keep::B => 2048,
            Keep::A | Keep::Raw => ((1 << 18) / kc.max(1)).clamp(256, 2048),
        }
    }
}

/// What is multiplied and where it goes.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a, T> {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// A, m by k.
    pub a: Operand<T>,
    /// B, k by n.
    pub b: Operand<T>,
    /// C, row-major.
    pub c: Shared<T>,
    /// Elements from one row of C to the next.
    pub ldc: usize,
    /// What is done to every element before it is stored.
    pub epilogue: Epilogue<'a, T>,
}

/// How the tasks of one product are laid out.
struct BlockedCut<'a, T> {
    p: Product<'a, T>,
    blocking: Blocking,
    /// Columns of a register tile.
    nr: usize,
    /// Blocks of k.
    depth_blocks: usize,
    /// Tasks of one stage: packing B, then products of row blocks by parts of the columns.
    packs: usize,
    row_blocks: usize,
    column_parts: usize,
    /// Sums between blocks of k where C cannot hold them; null where it can, or where k is one block.
    sums: Shared<f32>,
}

/// C = A·B, with its epilogue.
///
/// # Safety
/// The operands and C span what the shapes say, and nobody else touches C. [`Keep::Raw`] only as it says.
pub(crate) unsafe fn product<T: Element>(pool: &Pool, blocking: Blocking, p: Product<'_, T>) {
    if p.m == 0 || p.n == 0 {
        return;
    }
    let threads = blocking.threads.min(pool.threads()).max(1);
    let nr = blocking.nv * blocking.isa.lanes();
    let panels = p.m.div_ceil(blocking.mr);
    let column_blocks = p.n.div_ceil(blocking.nc);
    let columns = p.n.div_ceil(column_blocks).next_multiple_of(nr);
    let column_blocks = p.n.div_ceil(columns);
    // Even blocks: a last block of a few steps would cost a whole pass over C.
    let depth_blocks = p.k.div_ceil(blocking.kc).max(1);
    let kc = p.k.div_ceil(depth_blocks).max(1);
    let depth_blocks = p.k.div_ceil(kc).max(1);
    // As many row blocks for each thread; where there are too few rows, columns are cut as well.
    let row_blocks = (panels * blocking.mr).div_ceil(blocking.mc).next_multiple_of(threads).min(panels);
    let even = row_blocks.is_multiple_of(threads) && panels / threads >= 4;
    let column_parts = if even { 1 } else { (2 * threads).min(columns.div_ceil(nr)) };
    let column_panels = columns / nr;
    let packs = if threads > 1 { (4 * threads).min(column_panels) } else { 1 };
    let half = size_of::<T>() < 4 && depth_blocks > 1;
    let (b_len, sums_len) = (kc * columns, if half { p.m * columns } else { 0 });
    let stages = column_blocks * depth_blocks;
    let buffers = if threads > 1 && stages > 1 { 2 } else { 1 };
    scratch::with(buffers * b_len + sums_len + SLACK, |memory| {
        let (b_memory, sums) = memory.split_at_mut(buffers * b_len + SLACK);
        let sums = Shared(if half { sums.as_mut_ptr() } else { std::ptr::null_mut() });
        let b_memory = Shared(b_memory.as_mut_ptr());
        let blocking = Blocking { kc, nc: columns, threads, ..blocking };
        let plan = BlockedCut { p, blocking, nr, depth_blocks, packs, row_blocks, column_parts, sums };
        let stages = Stages { threads, stages, packs, products: row_blocks * column_parts, buffers };
        // SAFETY: the buffers hold `b_len` numbers each; tasks write disjoint parts, and Stages lets no task start
        // before those whose parts it reads or overwrites.
        let block = |stage: usize| unsafe { b_memory.add(stage % buffers * b_len) };
        stages.run(
            pool,
            // SAFETY: as above.
            |stage, share| unsafe { plan.pack_b(stage, share, block(stage)) },
            // SAFETY: as above.
            |stage, task| unsafe { plan.multiply(stage, task, block(stage)) },
        );
    });
}

impl<T: Element> BlockedCut<'_, T> {
    /// Columns and steps of k of a stage: (first column, columns, first step, steps).
    fn stage(&self, stage: usize) -> (usize, usize, usize, usize) {
        let (column, depth) =
            (stage / self.depth_blocks * self.blocking.nc, stage % self.depth_blocks * self.blocking.kc);
        (column, (self.p.n - column).min(self.blocking.nc), depth, (self.p.k - depth).min(self.blocking.kc))
    }

    /// Packs one share of a stage's panels of B.
    unsafe fn pack_b(&self, stage: usize, share: usize, to: *mut f32) {
        let (column, columns, depth, k) = self.stage(stage);
        let panels = columns.div_ceil(self.nr);
        let turned = self.p.b.layout == Layout::Col;
        for panel in share * panels / self.packs..(share + 1) * panels / self.packs {
            let first = column + panel * self.nr;
            let valid = (column + columns - first).min(self.nr);
            // The last panel is only as wide as it has vectors.
            let stride = valid.next_multiple_of(self.blocking.isa.lanes());
            // SAFETY: the panel lies inside B and the packed block; widths are whole vectors, so nothing is written
            // past a panel.
            unsafe {
                let strip = Strip {
                    from: self.p.b.element(depth, first),
                    ld: self.p.b.ld,
                    turned,
                    k,
                    valid,
                    room: self.p.n - first,
                    stride,
                    to: to.add(panel * self.nr * k),
                };
                pack(self.blocking.isa, strip);
            }
        }
    }

    /// Multiplies one block of rows by one part of a stage's columns.
    unsafe fn multiply(&self, stage: usize, task: usize, b: *const f32) {
        let (column, columns, depth, k) = self.stage(stage);
        let (block, part) = (task / self.column_parts, task % self.column_parts);
        let mr = self.blocking.mr;
        let row_panels = self.p.m.div_ceil(mr);
        let rows = block * row_panels / self.row_blocks..(block + 1) * row_panels / self.row_blocks;
        let panels = columns.div_ceil(self.nr);
        let columns_of_part = part * panels / self.column_parts..(part + 1) * panels / self.column_parts;
        let last = depth + k == self.p.k;
        let raw = self.blocking.keep == Keep::Raw;
        scratch::with(mr * self.nr + if raw { 0 } else { rows.len() * mr * k + SLACK }, |memory| {
            let (square, a) = memory.split_at_mut(mr * self.nr);
            let a = a.as_mut_ptr();
            // SAFETY: panels lie inside A, B, C and the scratch memory; sums are row-major with nc columns.
            unsafe {
                for (i, panel) in rows.clone().enumerate().filter(|_| !raw) {
                    self.pack_a(panel, depth, k, a.add(i * mr * k));
                }
                let (height, width) = (rows.len(), columns_of_part.len());
                for t in 0..height * width {
                    let (i, j) = match self.blocking.keep {
                        Keep::B => (t % height, t / height),
                        Keep::A | Keep::Raw => (t / width, t % width),
                    };
                    let (row_panel, panel) = (rows.start + i, columns_of_part.start + j);
                    let first = column + panel * self.nr;
                    let width = (column + columns - first).min(self.nr);
                    let row = row_panel * mr;
                    let height = (self.p.m - row).min(mr);
                    let c = self.p.c.add(row * self.p.ldc + first);
                    let sums = if size_of::<T>() == 4 {
                        (c.cast::<f32>(), self.p.ldc)
                    } else {
                        (self.sums.0.wrapping_add(row * self.blocking.nc + first - column), self.blocking.nc)
                    };
                    let narrow = last && size_of::<T>() < 4;
                    let to = if narrow { (square.as_mut_ptr(), self.nr) } else { sums };
                    let tile = Tile {
                        k,
                        a: a.wrapping_add(i * mr * k).cast_const(),
                        a_row: 1,
                        a_step: tile::rows_made(height),
                        b: b.add(panel * self.nr * k),
                        b_step: width.next_multiple_of(self.blocking.isa.lanes()),
                        b_padded: true,
                        from: if depth == 0 { std::ptr::null() } else { sums.0.cast_const() },
                        from_row: sums.1,
                        to: to.0,
                        to_row: to.1,
                        rows: height,
                        columns: width,
                    };
                    if raw {
                        read_in_place(self.blocking.isa, &self.p, (row, depth), &tile);
                    } else {
                        tile::run(self.blocking.isa, &tile);
                    }
                    if last {
                        let (rows, columns) = (height, width);
                        let part = Part { at: to.0, row: to.1, rows, columns, top: row, first, turned: false };
                        self.p.epilogue.run(self.blocking.isa, part);
                    }
                    if narrow {
                        self.blocking.isa.run(Narrow {
                            from: to.0,
                            from_row: to.1,
                            to: c,
                            to_row: self.p.ldc,
                            rows: height,
                            columns: width,
                        });
                    }
                }
            }
        });
    }

    unsafe fn pack_a(&self, panel: usize, depth: usize, k: usize, to: *mut f32) {
        let row = panel * self.blocking.mr;
        let valid = (self.p.m - row).min(self.blocking.mr);
        // SAFETY: the panel lies inside A and the scratch memory; panels are packed in order.
        unsafe {
            let strip = Strip {
                from: self.p.a.element(row, depth),
                ld: self.p.a.ld,
                turned: self.p.a.layout == Layout::Row,
                k,
                valid,
                room: self.p.m - row,
                stride: tile::rows_made(valid),
                to,
            };
            pack(self.blocking.isa, strip);
        }
    }
}

impl Blocking {
    /// The register tiles of an instruction set, best first: (rows, vectors).
    pub(crate) fn tiles(isa: Isa) -> &'static [(usize, usize)] {
        match isa {
            Isa::Avx512 => &[(14, 2), (8, 3)],
            Isa::Avx2 => &[(6, 2)],
            _ => &[(4, 2)],
        }
    }

    /// A good blocking without tuning.
    pub(crate) fn usual(isa: Isa, threads: usize) -> Self {
        let (mr, nv) = Self::tiles(isa)[0];
        Blocking { isa, mr, nv, mc: MC, kc: 256, nc: Keep::A.columns(256), keep: Keep::A, threads }
    }
}
