//! The register tile that the blocked variants share: some rows of one block row times some vectors of columns.
//!
//! A tile of `rows × vectors` sums stays in registers over all blocks of a run; each step loads `vectors` of B and
//! broadcasts one number of each row of A from where it lies (a block's rows are `bc` apart, so no packing of A).
//! 8×3 vectors leave 24 independent chains for two fused units of latency four, and need 11 loads per 24 of them.

use warplap_cpu::simd::{Element, Isa, Lanes, Task};

use super::finish::Finish;

/// The shape of a register tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) rows: usize,
    pub(super) vectors: usize,
}

/// Tiles that kernels exist for, the usual best first.
const TILES: [(&str, Tile); 4] = [
    ("8x3", Tile { rows: 8, vectors: 3 }),
    ("8x2", Tile { rows: 8, vectors: 2 }),
    ("4x6", Tile { rows: 4, vectors: 6 }),
    ("4x3", Tile { rows: 4, vectors: 3 }),
];

impl Tile {
    /// The names of all, for an axis.
    pub(super) fn names() -> Vec<&'static str> {
        TILES.iter().map(|(name, _)| *name).collect()
    }

    /// The tile of a name.
    pub(super) fn named(name: &str) -> Option<Tile> {
        TILES.iter().find(|(n, _)| *n == name).map(|(_, t)| *t)
    }

    /// Whether its sums and one step's operands fit the registers, and leave less than half of them idle.
    pub(super) fn suits(self, isa: Isa) -> bool {
        suits(self.rows, self.vectors, isa.registers())
    }

    /// Columns of C it covers.
    pub(super) fn columns(self, isa: Isa) -> usize {
        self.vectors * isa.lanes()
    }
}

/// See [`Tile::suits`]; only those that do are compiled.
const fn suits(rows: usize, vectors: usize, registers: usize) -> bool {
    let taken = rows * vectors + vectors + 1;
    taken <= registers && 2 * taken > registers
}

/// One block row (or a run of its blocks) times a strip of columns.
///
/// # Safety of the pointers
/// `values` holds `blocks.len()` blocks of `bs * bc`; the rows `blocks[i] * bc ..+ bc` of B lie at
/// `b + blocks[i] * b_block + row * b_row`, valid for `columns` elements (rounded up to whole tiles when `padded`); `c`
/// is valid for `bs` rows of `columns` elements, `ldc` apart, and nobody else touches them.
pub(super) struct Strip<'a, E, T> {
    pub(super) tile: Tile,
    pub(super) bs: usize,
    pub(super) bc: usize,
    pub(super) blocks: &'a [i32],
    pub(super) values: *const f32,
    pub(super) b: *const E,
    pub(super) b_block: usize,
    pub(super) b_row: usize,
    /// Elements from one tile's columns of B to the next one's: the tile's width where B lies in place, a whole panel
    /// where it was packed.
    pub(super) b_tile: usize,
    /// Whether loads may go past `columns` to the end of the tile.
    pub(super) padded: bool,
    pub(super) c: *mut T,
    pub(super) ldc: usize,
    pub(super) columns: usize,
    /// What happens to sums before they are stored; its addend begins where `c` does.
    pub(super) finish: Finish<T>,
}

impl<'a, E, T> Strip<'a, E, T> {
    /// The same work with its result elsewhere.
    pub(super) fn to<U>(self, c: *mut U, finish: Finish<U>) -> Strip<'a, E, U> {
        let Strip { tile, bs, bc, blocks, values, b, b_block, b_row, b_tile, padded, ldc, columns, .. } = self;
        Strip { tile, bs, bc, blocks, values, b, b_block, b_row, b_tile, padded, c, ldc, columns, finish }
    }
}

impl<E: Element, T: Element> Task for Strip<'_, E, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: the caller of `Isa::run` built the strip under its contract.
        unsafe {
            match (self.tile.rows, self.tile.vectors) {
                (8, 3) => self.sweep::<L, 8, 3>(),
                (8, 2) => self.sweep::<L, 8, 2>(),
                (4, 6) => self.sweep::<L, 4, 6>(),
                (4, 3) => self.sweep::<L, 4, 3>(),
                other => debug_assert!(false, "no tile {other:?}"),
            }
        }
    }
}

impl<E: Element, T: Element> Strip<'_, E, T> {
    /// All tiles of the strip: columns outside, so that a tile's columns of B stay near while the rows pass over them.
    #[inline(always)]
    unsafe fn sweep<L: Lanes, const R: usize, const V: usize>(&self) {
        if !suits(R, V, L::REGISTERS) {
            debug_assert!(false, "a tile of {R} rows and {V} vectors does not suit the registers");
            return;
        }
        let width = V * L::N;
        let mut first = 0;
        while first < self.columns {
            let left = (self.columns - first).min(width);
            for row in (0..self.bs).step_by(R) {
                let at = (row, first, first / width * self.b_tile);
                // SAFETY: the strip's contract; `left` columns are there.
                unsafe {
                    self.columns::<L, R, V>(at, left);
                }
            }
            first += width;
        }
    }

    /// Columns of one tile, in as few vectors as hold them.
    #[inline(always)]
    unsafe fn columns<L: Lanes, const R: usize, const V: usize>(&self, at: (usize, usize, usize), columns: usize) {
        let vectors = columns.div_ceil(L::N);
        let lanes = columns - (vectors - 1) * L::N;
        // SAFETY: passed on; the vectors hold the columns.
        unsafe {
            match vectors {
                1 => self.tile::<L, R, 1>(at, lanes),
                2 if V > 2 => self.tile::<L, R, 2>(at, lanes),
                3 if V > 3 => self.tile::<L, R, 3>(at, lanes),
                4 if V > 4 => self.tile::<L, R, 4>(at, lanes),
                5 if V > 5 => self.tile::<L, R, 5>(at, lanes),
                _ => self.tile::<L, R, V>(at, lanes),
            }
        }
    }

    /// One tile over all blocks: `V` vectors of columns, of whose last `lanes` lanes are there.
    #[inline(always)]
    unsafe fn tile<L: Lanes, const R: usize, const V: usize>(
        &self,
        (row, column, b_column): (usize, usize, usize),
        lanes: usize,
    ) {
        let (bs, bc, b_row) = (self.bs, self.bc, self.b_row);
        // SAFETY: the strip's contract: rows row..row+R of every block, and the columns of B and C named, are there.
        unsafe {
            let mut sums = [[L::zero(); V]; R];
            let mut a = self.values.add(row * bc);
            let part = lanes < L::N;
            let masked = part && !self.padded;
            for block in self.blocks {
                let mut b = self.b.add(*block as usize * self.b_block + b_column);
                for p in 0..bc {
                    let mut line = [L::zero(); V];
                    for (v, part) in line.iter_mut().enumerate() {
                        let at = b.add(v * L::N);
                        *part = if masked && v == V - 1 { E::load_first::<L>(at, lanes) } else { E::load::<L>(at) };
                    }
                    for (r, sums) in sums.iter_mut().enumerate() {
                        let x = L::splat(*a.add(r * bc + p));
                        for (sum, part) in sums.iter_mut().zip(line) {
                            *sum = L::fma(x, part, *sum);
                        }
                    }
                    b = b.add(b_row);
                }
                a = a.add(bs * bc);
            }
            for (r, sums) in sums.iter().enumerate() {
                let first = (row + r) * self.ldc + column;
                for (v, sum) in sums.iter().enumerate() {
                    let element = first + v * L::N;
                    let at = self.c.add(element);
                    if part && v == V - 1 {
                        T::store_first::<L>(at, self.finish.vector::<L>(*sum, element, lanes), lanes);
                    } else {
                        T::store::<L>(at, self.finish.vector::<L>(*sum, element, L::N));
                    }
                }
            }
        }
    }
}

/// Widens elements to f32; both slices have the same length.
pub(super) struct Widen<'a, E> {
    pub(super) from: &'a [E],
    pub(super) to: &'a mut [f32],
}

impl<E: Element> Task for Widen<'_, E> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let len = self.from.len().min(self.to.len());
        let whole = len / L::N * L::N;
        for i in (0..whole).step_by(L::N) {
            // SAFETY: i + N <= whole <= both lengths.
            unsafe { L::store(self.to.as_mut_ptr().add(i), E::load::<L>(self.from.as_ptr().add(i))) }
        }
        for (to, from) in self.to[whole..len].iter_mut().zip(&self.from[whole..len]) {
            *to = from.widen();
        }
    }
}
