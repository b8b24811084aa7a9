//! Register tiles on B in place (row-major): no copy of B, so nothing is wasted where each element is used only a few
//! times. A is packed a few rows at a time, or read in place as well.

use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa};

use super::blocked::Product;
use super::epilogue::Part;
use super::pack::{SLACK, Strip, pack};
use super::scratch;
use super::tile::{self, Narrow, Tile};
use crate::gemm::Layout;

/// How the loops are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Instruction set.
    pub isa: Isa,
    /// Rows of a register tile.
    pub mr: usize,
    /// Vectors of a register tile.
    pub nv: usize,
    /// Whether A is packed; element types other than f32 always are.
    pub pack: bool,
    /// Threads.
    pub threads: usize,
}

/// C = A·B with B row-major, with its epilogue.
///
/// # Safety
/// The operands and C span what the shapes say, nobody else touches C, and B is row-major. With A in place, `mr` is at
/// most 8, and `nv` at most 3.
pub(crate) unsafe fn product<T: Element>(pool: &Pool, cut: Cut, p: Product<'_, T>) {
    debug_assert!(p.b.layout == Layout::Row);
    if p.m == 0 || p.n == 0 {
        return;
    }
    let nr = cut.nv * cut.isa.lanes();
    let (row_panels, column_panels) = (p.m.div_ceil(cut.mr), p.n.div_ceil(nr));
    // Tasks by rows where they come out even (each then reads all of B), else by columns.
    let threads = cut.threads.min(pool.threads()).max(1);
    let share = |panels: usize| panels as f64 / (threads * panels.div_ceil(threads)) as f64;
    let by_rows = share(row_panels) >= share(column_panels);
    let tasks = if by_rows { threads.min(row_panels) } else { threads.min(column_panels) };
    pool.each(threads, tasks, |task| {
        let cut_of = |panels: usize| task * panels / tasks..(task + 1) * panels / tasks;
        let (rows, columns) =
            if by_rows { (cut_of(row_panels), 0..column_panels) } else { (0..row_panels, cut_of(column_panels)) };
        scratch::with(if cut.pack { cut.mr * (nr + p.k) + SLACK } else { 0 }, |memory| {
            let (square, packed) = memory.split_at_mut(if cut.pack { cut.mr * nr } else { 0 });
            for row_panel in rows {
                let row = row_panel * cut.mr;
                let height = (p.m - row).min(cut.mr);
                for column_panel in columns.clone() {
                    let first = column_panel * nr;
                    let width = (p.n - first).min(nr);
                    // SAFETY: the tile lies inside A, B and C; the scratch memory holds one panel of A and its slack.
                    unsafe {
                        let c = p.c.add(row * p.ldc + first);
                        let narrow = size_of::<T>() < 4;
                        let to = if narrow { (square.as_mut_ptr(), nr) } else { (c.cast::<f32>(), p.ldc) };
                        let tile = Tile {
                            k: p.k,
                            a: packed.as_ptr(),
                            a_row: 1,
                            a_step: tile::rows_made(height),
                            b: p.b.element(0, first),
                            b_step: p.b.ld,
                            b_padded: false,
                            from: std::ptr::null(),
                            from_row: 0,
                            to: to.0,
                            to_row: to.1,
                            rows: height,
                            columns: width,
                        };
                        if cut.pack {
                            if column_panel == columns.start {
                                pack_rows(&cut, &p, row, height, packed.as_mut_ptr());
                            }
                            tile::run(cut.isa, &tile);
                        } else {
                            read_in_place(cut.isa, &p, (row, 0), &tile);
                        }
                        let (rows, columns) = (height, width);
                        let part = Part { at: to.0, row: to.1, rows, columns, top: row, first, turned: false };
                        p.epilogue.run(cut.isa, part);
                        if narrow {
                            cut.isa.run(Narrow {
                                from: to.0,
                                from_row: to.1,
                                to: c,
                                to_row: p.ldc,
                                rows: height,
                                columns: width,
                            });
                        }
                    }
                }
            }
        });
    });
}

/// Packs `height` rows of A.
unsafe fn pack_rows<T: Element>(cut: &Cut, p: &Product<'_, T>, row: usize, height: usize, to: *mut f32) {
    // SAFETY: the rows lie inside A; `to` holds a panel and its slack.
    unsafe {
        let strip = Strip {
            from: p.a.element(row, 0),
            ld: p.a.ld,
            turned: p.a.layout == Layout::Row,
            k: p.k,
            valid: height,
            room: p.m - row,
            stride: tile::rows_made(height),
            to,
        };
        pack(cut.isa, strip);
    }
}

/// Runs a tile with A where it is, from (row, step) on. Only f32 gets here: other types are widened by packing.
///
/// # Safety
/// A spans the tile's rows and steps; B, `from` and `to` as for [`tile::run`]. `rows` is at most 8, and there are at
/// most 3 vectors of columns.
pub(super) unsafe fn read_in_place<T: Element, B: Element>(
    isa: Isa,
    p: &Product<'_, T>,
    (row, step): (usize, usize),
    tile: &Tile<B>,
) {
    debug_assert!(size_of::<T>() == 4 && size_of::<B>() == 4);
    let (a_row, a_step) = if p.a.layout == Layout::Row { (p.a.ld, 1) } else { (1, p.a.ld) };
    // An even number of rows, then the one left over: a tile must not read a row that is not there.
    let even = if tile.rows == 1 { 1 } else { tile.rows - tile.rows % 2 };
    for (start, rows) in [(0, even), (even, tile.rows - even)] {
        if rows == 0 {
            continue;
        }
        // SAFETY: the rows lie inside A and C.
        unsafe {
            let part = Tile {
                k: tile.k,
                a: p.a.element(row + start, step).cast::<f32>(),
                a_row,
                a_step,
                b: tile.b.cast::<f32>(),
                b_step: tile.b_step,
                b_padded: tile.b_padded,
                from: if tile.from.is_null() { tile.from } else { tile.from.add(start * tile.from_row) },
                from_row: tile.from_row,
                to: tile.to.add(start * tile.to_row),
                to_row: tile.to_row,
                rows,
                columns: tile.columns,
            };
            tile::run_in_place(isa, &part);
        }
    }
}
