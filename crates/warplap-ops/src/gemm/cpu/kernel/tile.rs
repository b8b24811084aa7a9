//! The register tile: `R` rows by `V` vectors of C stay in registers while k runs; a step is V loads of B and R
//! broadcasts of A for R·V multiply-adds.
//!
//! A comes packed (R numbers per step) or in place, B packed or in place, and sums may go on from earlier steps of k.
//! They are written as f32 ([`Narrow`] makes other types of them). One function is compiled per (R, V) and instruction
//! set; [`run`] picks it.

use warplap_cpu::simd::{Element, Isa, Lanes, Task};

/// What one tile needs to know.
#[derive(Clone, Copy)]
pub(crate) struct Tile<B> {
    /// Steps of k.
    pub k: usize,
    /// A: element (i, p) lies at `i * a_row + p * a_step`.
    pub a: *const f32,
    /// See `a`.
    pub a_row: usize,
    /// See `a`.
    pub a_step: usize,
    /// B: element (p, j) lies at `p * b_step + j`.
    pub b: *const B,
    /// See `b`.
    pub b_step: usize,
    /// Whether B may be read past `columns` up to full vectors (packed panels are padded with zeros).
    pub b_padded: bool,
    /// Earlier sums to go on from, row by row; null starts from zero.
    pub from: *const f32,
    /// Numbers from one row of `from` to the next.
    pub from_row: usize,
    /// Where the tile is written.
    pub to: *mut f32,
    /// Numbers from one row of `to` to the next.
    pub to_row: usize,
    /// Rows that are written, up to R.
    pub rows: usize,
    /// Columns that are written, up to V vectors and more than V - 1.
    pub columns: usize,
}

macro_rules! pick {
    ($isa:expr, $t:expr, $packed:literal; $($v:literal: $($r:literal)*;)*) => {
        match ($t.columns.div_ceil($isa.lanes()), rows_made($t.rows)) {
            $($(($v, $r) => $isa.run(Fixed::<_, $r, $v, $packed>($t)),)*)*
            _ => debug_assert!(false, "no tile of {} rows by {} columns", $t.rows, $t.columns),
        }
    };
}

/// Rows rounded up to what [`run`] has a tile for.
pub(crate) const fn rows_made(rows: usize) -> usize {
    if rows <= 1 { 1 } else { rows.next_multiple_of(2) }
}

/// Whether a tile of `r` rows and `v` vectors leaves its sums, a line of B and a broadcast in registers; only those
/// that do are compiled.
const fn in_registers(r: usize, v: usize, registers: usize) -> bool {
    r * v + if r == 1 { 1 } else { v } < registers
}

/// The largest even number of rows (or one) of a tile of `v` vectors that [`run`] has for an instruction set; 0 where
/// it has none.
pub(crate) const fn most_rows(isa: Isa, v: usize) -> usize {
    let mut rows = match v {
        1 | 2 => 14,
        3 => 8,
        4 => 6,
        5..=8 => 2,
        _ => return 0,
    };
    while rows > 1 && !in_registers(rows, v, isa.registers()) {
        rows -= if rows == 2 { 1 } else { 2 };
    }
    if in_registers(rows, v, isa.registers()) { rows } else { 0 }
}

/// Runs one tile of `rows_made(t.rows)` rows on packed A: `a_row` is 1 and `a_step` is `rows_made(t.rows)`, so that
/// addresses are constants.
///
/// # Safety
/// A, B, `from` and `to` span what the tile reads and writes; A's missing rows (between `t.rows` and `rows_made`) are
/// readable. `t.rows <= most_rows(isa, v)`, where v is the vectors that hold `t.columns`.
pub(crate) unsafe fn run<B: Element>(isa: Isa, t: &Tile<B>) {
    debug_assert_eq!((t.a_row, t.a_step), (1, rows_made(t.rows)));
    pick!(isa, t, true;
        1: 1 2 4 6 8 10 12 14;
        2: 1 2 4 6 8 10 12 14;
        3: 1 2 4 6 8;
        4: 1 2 4 6;
        5: 1 2;
        6: 1 2;
        7: 1 2;
        8: 1 2;
    )
}

/// Runs one tile on A in place, of a number of rows that [`rows_made`] does not change, at most 8.
///
/// # Safety
/// As for [`run`].
pub(crate) unsafe fn run_in_place(isa: Isa, t: &Tile<f32>) {
    debug_assert_eq!(t.rows, rows_made(t.rows));
    pick!(isa, t, false; 1: 1 2 4 6 8; 2: 1 2 4 6 8; 3: 1 2 4 6 8;)
}

struct Fixed<'a, B, const R: usize, const V: usize, const PACKED: bool>(&'a Tile<B>);

impl<B: Element, const R: usize, const V: usize, const PACKED: bool> Task for Fixed<'_, B, R, V, PACKED> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        if !in_registers(R, V, L::REGISTERS) {
            debug_assert!(false, "a tile of {R} rows and {V} vectors does not stay in registers");
            return;
        }
        let t = *self.0;
        let last = t.columns - (V - 1) * L::N;
        // SAFETY: the caller of `run` promised the memory.
        unsafe {
            for i in 0..R.min(t.rows) {
                let row = t.to.add(i * t.to_row);
                for v in 0..V {
                    L::prefetch(row.add(v * L::N));
                }
            }
            let mut sums = [[L::zero(); V]; R];
            // Asked at every step, where two loops would double what is compiled.
            let part = !t.b_padded && last < L::N;
            for p in 0..t.k {
                step::<B, L, R, V, PACKED>(&t, p, last, part, &mut sums);
            }
            for (i, row) in sums.iter().enumerate() {
                if i >= t.rows {
                    break;
                }
                let (from, to) = (t.from.wrapping_add(i * t.from_row), t.to.add(i * t.to_row));
                for (v, sum) in row.iter().enumerate() {
                    let part = v + 1 == V && last < L::N;
                    let mut sum = *sum;
                    if !t.from.is_null() {
                        let from = from.add(v * L::N);
                        sum = L::add(sum, if part { L::load_first(from, last) } else { L::load(from) });
                    }
                    let to = to.add(v * L::N);
                    if part { L::store_first(to, sum, last) } else { L::store(to, sum) }
                }
            }
        }
    }
}

/// Steps of k of A that a tile asks for in advance.
const AHEAD: usize = 16;

/// The same of B: its lines come from the second cache or, in place, from a page each.
const AHEAD_B: usize = 8;

/// One step of k.
#[inline(always)]
unsafe fn step<B: Element, L: Lanes, const R: usize, const V: usize, const PACKED: bool>(
    t: &Tile<B>,
    p: usize,
    last: usize,
    part: bool,
    sums: &mut [[L::V; V]; R],
) {
    // SAFETY: the caller of `run` promised the memory.
    unsafe {
        let b = t.b.add(p * t.b_step);
        let mut line = [L::zero(); V];
        for (v, x) in line.iter_mut().enumerate() {
            let b = b.add(v * L::N);
            L::prefetch(b.wrapping_add(AHEAD_B * t.b_step));
            *x = if part && v + 1 == V { B::load_first::<L>(b, last) } else { B::load::<L>(b) };
        }
        let a = t.a.add(p * if PACKED { R } else { t.a_step });
        if PACKED {
            // A comes from the second cache each time; its panel is read once per tile.
            L::prefetch(a.wrapping_add(AHEAD * R));
        }
        for (i, row) in sums.iter_mut().enumerate() {
            let x = L::splat(*a.add(i * if PACKED { 1 } else { t.a_row }));
            for (sum, y) in row.iter_mut().zip(&line) {
                *sum = L::fma(x, *y, *sum);
            }
        }
    }
}

/// Rounds a tile of sums to the elements of C.
#[derive(Clone, Copy)]
pub(crate) struct Narrow<T> {
    /// Sums.
    pub from: *const f32,
    /// Numbers from one row of sums to the next.
    pub from_row: usize,
    /// Where they go.
    pub to: *mut T,
    /// Elements from one row of `to` to the next.
    pub to_row: usize,
    /// Rows.
    pub rows: usize,
    /// Columns; sums may be read up to full vectors.
    pub columns: usize,
}

impl<T: Element> Task for Narrow<T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        for i in 0..self.rows {
            for j in (0..self.columns).step_by(L::N) {
                let left = self.columns - j;
                // SAFETY: whoever runs this promises `rows` by `columns` elements, and full vectors of sums.
                unsafe {
                    let (sums, to) = (L::load(self.from.add(i * self.from_row + j)), self.to.add(i * self.to_row + j));
                    if left >= L::N { T::store::<L>(to, sums) } else { T::store_first::<L>(to, sums, left) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_of_every_instruction_set_is_the_plain_triple_loop() {
        for isa in Isa::available() {
            for v in 1..=8 {
                for rows in 1..=most_rows(isa, v) {
                    let columns = v * isa.lanes() - (rows % isa.lanes()).min(isa.lanes() - 1);
                    check(isa, rows, columns, 5, true, true, true);
                    check(isa, rows, columns, 5, true, false, false);
                    if v <= 3 && rows <= 8 && rows_made(rows) == rows {
                        check(isa, rows, columns, 5, false, false, true);
                    }
                }
            }
        }
    }

    fn check(isa: Isa, rows: usize, columns: usize, k: usize, packed: bool, padded: bool, goes_on: bool) {
        let (made, wide) = (rows_made(rows), columns.next_multiple_of(isa.lanes()));
        let a: Vec<f32> = (0..made * k).map(|i| (i % 11) as f32 - 5.0).collect();
        let b_step = if padded { wide } else { columns };
        let b: Vec<f32> = (0..b_step * k).map(|i| (i % 7) as f32 - 3.0).collect();
        let from: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
        let mut to = vec![0.5f32; rows * columns + 1];
        let (a_row, a_step) = if packed { (1, made) } else { (k, 1) };
        let tile = Tile {
            k,
            a: a.as_ptr(),
            a_row,
            a_step,
            b: b.as_ptr(),
            b_step,
            b_padded: padded,
            from: if goes_on { from.as_ptr() } else { std::ptr::null() },
            from_row: columns,
            to: to.as_mut_ptr(),
            to_row: columns,
            rows,
            columns,
        };
        // SAFETY: all vectors span what the tile says.
        unsafe { if packed { run(isa, &tile) } else { run_in_place(isa, &tile) } };
        for i in 0..rows {
            for j in 0..columns {
                let sum: f32 = (0..k).map(|p| a[i * a_row + p * a_step] * b[p * b_step + j]).sum();
                let right = sum + if goes_on { from[i * columns + j] } else { 0.0 };
                assert_eq!(to[i * columns + j], right, "{isa:?} {rows}x{columns} {packed} {padded} ({i}, {j})");
            }
        }
        assert_eq!(to[rows * columns], 0.5);
    }
}
