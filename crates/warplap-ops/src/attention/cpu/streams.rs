//! Products that read their large operand once, as it lies: dot products along keys, and weighted sums of values.

use warplap_cpu::simd::{Element, Lanes, Task};

/// `out[r][j] = Σ_x q[r][x] · k[j][x]`.
#[derive(Clone, Copy)]
pub(super) struct Dots<T> {
    /// Rows of Q.
    pub(super) rows: usize,
    /// Keys.
    pub(super) keys: usize,
    /// Elements of a key.
    pub(super) width: usize,
    /// Rows in f32, zeros from `width` to `q_row`.
    pub(super) q: *const f32,
    /// Numbers of one row: whole vectors.
    pub(super) q_row: usize,
    /// The keys.
    pub(super) k: *const T,
    /// From one key to the next.
    pub(super) k_row: usize,
    /// The dot products.
    pub(super) out: *mut f32,
    /// From one row of them to the next.
    pub(super) out_row: usize,
}

impl<T: Element> Task for Dots<T> {
    type Out = ();

    /// The constructor's contract: see the fields.
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: tiles stay inside rows and keys.
        unsafe {
            let mut j = 0;
            while j + 4 <= self.keys {
                self.over_rows::<L, 4>(j);
                j += 4;
            }
            while j < self.keys {
                self.over_rows::<L, 1>(j);
                j += 1;
            }
        }
    }
}

impl<T: Element> Dots<T> {
    #[inline(always)]
    unsafe fn over_rows<L: Lanes, const K: usize>(self, j: usize) {
        // SAFETY: tiles stay inside the rows.
        unsafe {
            let mut r = 0;
            while r + 4 <= self.rows && L::REGISTERS >= 32 {
                self.tile::<L, 4, K>(r, j);
                r += 4;
            }
            while r + 2 <= self.rows {
                self.tile::<L, 2, K>(r, j);
                r += 2;
            }
            if r < self.rows {
                self.tile::<L, 1, K>(r, j);
            }
        }
    }

    #[inline(always)]
    unsafe fn tile<L: Lanes, const R: usize, const K: usize>(self, r: usize, j: usize) {
        // SAFETY: rows r to r + R and keys j to j + K exist; the last vector of a key reads only what is there.
        unsafe {
            let mut sums = [[L::zero(); K]; R];
            let mut x = 0;
            while x < self.width {
                let mut keys = [L::zero(); K];
                for (i, key) in keys.iter_mut().enumerate() {
                    let at = self.k.add((j + i) * self.k_row + x);
                    let left = self.width - x;
                    *key = if left >= L::N { T::load::<L>(at) } else { T::load_first::<L>(at, left) };
                }
                for (i, row) in sums.iter_mut().enumerate() {
                    let q = L::load(self.q.add((r + i) * self.q_row + x));
                    for (sum, key) in row.iter_mut().zip(&keys) {
                        *sum = L::fma(q, *key, *sum);
                    }
                }
                x += L::N;
            }
            for (i, row) in sums.iter().enumerate() {
                for (key, sum) in row.iter().enumerate() {
                    *self.out.add((r + i) * self.out_row + j + key) = L::sum(*sum);
                }
            }
        }
    }
}

/// `out[r][x] += Σ_j weights[r][j] · v[j][x]`; columns from `width` to whole vectors of `out` are not meaningful.
#[derive(Clone, Copy)]
pub(super) struct Sums<T> {
    /// Rows of weights.
    pub(super) rows: usize,
    /// Values.
    pub(super) keys: usize,
    /// Elements of a value.
    pub(super) width: usize,
    /// The weights.
    pub(super) weights: *const f32,
    /// From one row of weights to the next.
    pub(super) weights_row: usize,
    /// The values.
    pub(super) v: *const T,
    /// From one value to the next.
    pub(super) v_row: usize,
    /// The sums, room for whole vectors.
    pub(super) out: *mut f32,
    /// From one row of sums to the next.
    pub(super) out_row: usize,
}

impl<T: Element> Task for Sums<T> {
    type Out = ();

    /// The constructor's contract: see the fields.
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: tiles stay inside rows and columns; the last vector of a value reads only what is there.
        unsafe {
            let mut x = 0;
            while x + 4 * L::N <= self.width {
                self.over_rows::<L, 4>(x, L::N);
                x += 4 * L::N;
            }
            while x < self.width {
                self.over_rows::<L, 1>(x, L::N.min(self.width - x));
                x += L::N;
            }
        }
    }
}

impl<T: Element> Sums<T> {
    #[inline(always)]
    unsafe fn over_rows<L: Lanes, const C: usize>(self, x: usize, lanes: usize) {
        // SAFETY: tiles stay inside the rows.
        unsafe {
            let mut r = 0;
            while r + 4 <= self.rows && L::REGISTERS >= 32 {
                self.tile::<L, 4, C>(r, x, lanes);
                r += 4;
            }
            while r + 2 <= self.rows {
                self.tile::<L, 2, C>(r, x, lanes);
                r += 2;
            }
            if r < self.rows {
                self.tile::<L, 1, C>(r, x, lanes);
            }
        }
    }

    #[inline(always)]
    unsafe fn tile<L: Lanes, const R: usize, const C: usize>(self, r: usize, x: usize, lanes: usize) {
        // SAFETY: rows r to r + R and C vectors from column x exist, the last with `lanes` elements.
        unsafe {
            let at = |i: usize, c: usize| self.out.add((r + i) * self.out_row + x + c * L::N);
            let mut sums = [[L::zero(); C]; R];
            for (i, row) in sums.iter_mut().enumerate() {
                for (c, sum) in row.iter_mut().enumerate() {
                    *sum = L::load(at(i, c));
                }
            }
            for j in 0..self.keys {
                let from = self.v.add(j * self.v_row + x);
                let mut line = [L::zero(); C];
                for (c, v) in line.iter_mut().enumerate() {
                    let from = from.add(c * L::N);
                    *v = if lanes == L::N { T::load::<L>(from) } else { T::load_first::<L>(from, lanes) };
                }
                for (i, row) in sums.iter_mut().enumerate() {
                    let weight = L::splat(*self.weights.add((r + i) * self.weights_row + j));
                    for (sum, v) in row.iter_mut().zip(&line) {
                        *sum = L::fma(weight, *v, *sum);
                    }
                }
            }
            for (i, row) in sums.iter().enumerate() {
                for (c, sum) in row.iter().enumerate() {
                    L::store(at(i, c), *sum);
                }
            }
        }
    }
}
