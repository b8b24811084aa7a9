//! Register-tiled product: `rows` scalars broadcast from A against whole vectors of B.
//!
//! Both products of attention are made of it: the scalars are what lies as it came (keys, values, or weights), the
//! vectors what was packed. An accumulator tile fills the registers: 6×4 or 12×2 vectors of 32, 6×2 of 16.

use warplap_cpu::simd::{Lanes, Task};

/// What the sums start from.
#[derive(Clone, Copy)]
pub(super) enum Start {
    /// Zero.
    Zero,
    /// What the output holds.
    Kept,
    /// What the output holds, times one factor per column.
    Scaled(*const f32),
}

/// `out[r][c] = start + Σ_k a[r·a_row + k·a_step] · b[k·b_row + c]` for whole vectors of columns.
#[derive(Clone, Copy)]
pub(super) struct Products {
    /// Rows of the output.
    pub(super) rows: usize,
    /// Columns of the output; only whole vectors of them are computed.
    pub(super) columns: usize,
    /// Terms of one sum.
    pub(super) steps: usize,
    /// The scalars.
    pub(super) a: *const f32,
    /// From one row's scalars to the next's.
    pub(super) a_row: usize,
    /// From one step's scalar to the next's.
    pub(super) a_step: usize,
    /// The vectors.
    pub(super) b: *const f32,
    /// From one step's vectors to the next's.
    pub(super) b_row: usize,
    /// The sums.
    pub(super) out: *mut f32,
    /// From one row of sums to the next.
    pub(super) out_row: usize,
    /// What the sums start from.
    pub(super) start: Start,
}

impl Task for Products {
    type Out = ();

    /// The constructor's contract: all addresses are valid for rows × columns × steps.
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let vectors = self.columns / L::N;
        let mut c = 0;
        // SAFETY: the tiles cover exactly the rows and whole vectors asked for.
        unsafe {
            if L::REGISTERS >= 32 {
                while c + 4 <= vectors {
                    band::<L, 6, 4>(self, c);
                    c += 4;
                }
            }
            while c + 2 <= vectors {
                if L::REGISTERS >= 32 {
                    band::<L, 12, 2>(self, c);
                } else {
                    band::<L, 6, 2>(self, c);
                }
                c += 2;
            }
            while c < vectors {
                band::<L, 12, 1>(self, c);
                c += 1;
            }
        }
    }
}

/// All rows of `C` vectors of columns.
///
/// # Safety
/// As [`Products`].
#[inline(always)]
unsafe fn band<L: Lanes, const R: usize, const C: usize>(p: Products, c: usize) {
    let mut r = 0;
    // SAFETY: rows stay below p.rows.
    unsafe {
        while r + R <= p.rows {
            tile::<L, R, C>(p, r, c);
            r += R;
        }
        while r + 4 <= p.rows {
            tile::<L, 4, C>(p, r, c);
            r += 4;
        }
        if r + 2 <= p.rows {
            tile::<L, 2, C>(p, r, c);
            r += 2;
        }
        if r < p.rows {
            tile::<L, 1, C>(p, r, c);
        }
    }
}

/// One tile of accumulators.
///
/// # Safety
/// As [`Products`].
#[inline(always)]
unsafe fn tile<L: Lanes, const R: usize, const C: usize>(p: Products, r: usize, c: usize) {
    // SAFETY: addresses are valid for the rows, columns and steps of the tile.
    unsafe {
        let out = p.out.add(r * p.out_row + c * L::N);
        let at = |i: usize, j: usize| out.add(i * p.out_row + j * L::N);
        let mut sums = [[L::zero(); C]; R];
        match p.start {
            Start::Zero => {}
            Start::Kept => {
                for (i, row) in sums.iter_mut().enumerate() {
                    for (j, sum) in row.iter_mut().enumerate() {
                        *sum = L::load(at(i, j));
                    }
                }
            }
            Start::Scaled(factors) => {
                for (i, row) in sums.iter_mut().enumerate() {
                    for (j, sum) in row.iter_mut().enumerate() {
                        *sum = L::mul(L::load(at(i, j)), L::load(factors.add((c + j) * L::N)));
                    }
                }
            }
        }
        let (mut a, mut b) = (p.a.add(r * p.a_row), p.b.add(c * L::N));
        for _ in 0..p.steps {
            let mut line = [L::zero(); C];
            for (j, v) in line.iter_mut().enumerate() {
                *v = L::load(b.add(j * L::N));
            }
            for (i, row) in sums.iter_mut().enumerate() {
                let x = L::splat(*a.add(i * p.a_row));
                for (sum, v) in row.iter_mut().zip(&line) {
                    *sum = L::fma(x, *v, *sum);
                }
            }
            // Past the end after the last step, where nothing is read.
            a = a.wrapping_add(p.a_step);
            b = b.wrapping_add(p.b_row);
        }
        for (i, row) in sums.iter().enumerate() {
            for (j, sum) in row.iter().enumerate() {
                L::store(at(i, j), *sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warplap_cpu::simd::Isa;

    #[test]
    fn tiles_of_every_instruction_set_give_the_plain_product() {
        let mut rng = fastrand::Rng::with_seed(9);
        for isa in Isa::available() {
            for (rows, vectors, steps) in [(1, 1, 1), (6, 4, 7), (13, 3, 5), (23, 7, 9), (2, 2, 0)] {
                let columns = vectors * isa.lanes();
                let a: Vec<f32> = (0..rows * steps).map(|_| rng.f32()).collect();
                let b: Vec<f32> = (0..steps * columns).map(|_| rng.f32()).collect();
                let factors: Vec<f32> = (0..columns).map(|_| rng.f32()).collect();
                for start in [Start::Zero, Start::Kept, Start::Scaled(factors.as_ptr())] {
                    let mut out = vec![0.5f32; rows * columns];
                    isa.run(Products {
                        rows,
                        columns,
                        steps,
                        a: a.as_ptr(),
                        a_row: steps,
                        a_step: 1,
                        b: b.as_ptr(),
                        b_row: columns,
                        out: out.as_mut_ptr(),
                        out_row: columns,
                        start,
                    });
                    for (i, got) in out.iter().enumerate() {
                        let (r, c) = (i / columns, i % columns);
                        let mut right = match start {
                            Start::Zero => 0.0,
                            Start::Kept => 0.5,
                            Start::Scaled(_) => 0.5 * factors[c],
                        };
                        right += (0..steps).map(|k| a[r * steps + k] * b[k * columns + c]).sum::<f32>();
                        assert!((got - right).abs() < 1e-5, "{isa:?} {rows}x{columns}x{steps}: {got} is not {right}");
                    }
                }
            }
        }
    }
}
