//! Dot products: `G` lines of a matrix against `S` vectors at once, all contiguous along k; each line is read once.

use warplap_cpu::simd::{Element, Isa, Lanes, Task};

/// Lines against vectors.
#[derive(Clone, Copy)]
pub(crate) struct Dots<T> {
    /// Steps of k.
    pub k: usize,
    /// The first line.
    pub lines: *const T,
    /// Elements from one line to the next.
    pub ld: usize,
    /// How many lines.
    pub count: usize,
    /// The first vector.
    pub vectors: *const f32,
    /// Numbers from one vector to the next.
    pub vector_ld: usize,
    /// How many vectors.
    pub vectors_count: usize,
    /// The product of line j and vector i goes to `i * to_row + j`.
    pub to: *mut f32,
    /// See `to`.
    pub to_row: usize,
}

/// All products.
///
/// # Safety
/// Lines, vectors and `to` span what the numbers say.
pub(crate) unsafe fn run<T: Element>(isa: Isa, dots: Dots<T>) {
    isa.run(dots);
}

impl<T: Element> Task for Dots<T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let mut line = 0;
        // SAFETY: the caller of `run` promised the memory.
        unsafe {
            while line < self.count {
                let left = self.count - line;
                if self.vectors_count == 1 {
                    // Eight chains of sums: a multiply-add takes four cycles and two start in each.
                    if left >= 8 {
                        group::<T, L, 8, 1>(&self, line, 0);
                        line += 8;
                    } else {
                        single::<T, L>(&self, line, 0);
                        line += 1;
                    }
                    continue;
                }
                let lines = if left >= 4 && L::REGISTERS > 16 { 4 } else { left.min(2) };
                let mut vector = 0;
                while vector < self.vectors_count {
                    let left = self.vectors_count - vector;
                    vector += match (lines, left) {
                        (4, 4..) => group::<T, L, 4, 4>(&self, line, vector),
                        (4, 2..) => group::<T, L, 4, 2>(&self, line, vector),
                        (4, _) => group::<T, L, 4, 1>(&self, line, vector),
                        (2, 4..) => group::<T, L, 2, 4>(&self, line, vector),
                        (2, 2..) => group::<T, L, 2, 2>(&self, line, vector),
                        (2, _) => group::<T, L, 2, 1>(&self, line, vector),
                        _ => single::<T, L>(&self, line, vector),
                    };
                }
                line += lines;
            }
        }
    }
}

/// G lines by S vectors; gives S back.
#[inline(always)]
unsafe fn group<T: Element, L: Lanes, const G: usize, const S: usize>(
    d: &Dots<T>,
    line: usize,
    vector: usize,
) -> usize {
    let whole = d.k - d.k % L::N;
    // SAFETY: the caller of `run` promised the memory.
    unsafe {
        let mut sums = [[L::zero(); S]; G];
        let lines = d.lines.add(line * d.ld);
        let vectors = d.vectors.add(vector * d.vector_ld);
        for p in (0..whole).step_by(L::N) {
            let mut xs = [L::zero(); S];
            for (s, x) in xs.iter_mut().enumerate() {
                *x = L::load(vectors.add(s * d.vector_ld + p));
            }
            for (g, row) in sums.iter_mut().enumerate() {
                let y = T::load::<L>(lines.add(g * d.ld + p));
                for (sum, x) in row.iter_mut().zip(&xs) {
                    *sum = L::fma(*x, y, *sum);
                }
            }
        }
        for (g, row) in sums.iter_mut().enumerate() {
            for (s, sum) in row.iter_mut().enumerate() {
                if whole < d.k {
                    let x = L::load_first(vectors.add(s * d.vector_ld + whole), d.k - whole);
                    let y = T::load_first::<L>(lines.add(g * d.ld + whole), d.k - whole);
                    *sum = L::fma(x, y, *sum);
                }
                *d.to.add((vector + s) * d.to_row + line + g) = L::sum(*sum);
            }
        }
    }
    S
}

/// One line by one vector, in four chains; gives 1 back.
#[inline(always)]
unsafe fn single<T: Element, L: Lanes>(d: &Dots<T>, line: usize, vector: usize) -> usize {
    const CHAINS: usize = 4;
    // SAFETY: the caller of `run` promised the memory.
    unsafe {
        let (y, x) = (d.lines.add(line * d.ld), d.vectors.add(vector * d.vector_ld));
        let mut sums = [L::zero(); CHAINS];
        let mut p = 0;
        while p + CHAINS * L::N <= d.k {
            for (c, sum) in sums.iter_mut().enumerate() {
                let at = p + c * L::N;
                *sum = L::fma(L::load(x.add(at)), T::load::<L>(y.add(at)), *sum);
            }
            p += CHAINS * L::N;
        }
        while p + L::N <= d.k {
            sums[0] = L::fma(L::load(x.add(p)), T::load::<L>(y.add(p)), sums[0]);
            p += L::N;
        }
        if p < d.k {
            let n = d.k - p;
            sums[1] = L::fma(L::load_first(x.add(p), n), T::load_first::<L>(y.add(p), n), sums[1]);
        }
        let total = L::add(L::add(sums[0], sums[1]), L::add(sums[2], sums[3]));
        *d.to.add(vector * d.to_row + line) = L::sum(total);
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_is_the_plain_sum() {
        for isa in Isa::available() {
            for (count, vectors_count) in [(1, 1), (9, 1), (20, 1), (1, 3), (2, 7), (3, 4), (7, 5), (11, 2), (4, 16)] {
                for k in [0, 1, 15, 16, 70, 131] {
                    let lines: Vec<f32> = (0..count * (k + 2)).map(|i| (i % 9) as f32 - 4.0).collect();
                    let vectors: Vec<f32> = (0..vectors_count * (k + 1)).map(|i| (i % 7) as f32 - 3.0).collect();
                    let mut to = vec![0.5; vectors_count * count];
                    let dots = Dots {
                        k,
                        lines: lines.as_ptr(),
                        ld: k + 2,
                        count,
                        vectors: vectors.as_ptr(),
                        vector_ld: k + 1,
                        vectors_count,
                        to: to.as_mut_ptr(),
                        to_row: count,
                    };
                    // SAFETY: the vectors span what the numbers say.
                    unsafe { run(isa, dots) };
                    for i in 0..vectors_count {
                        for j in 0..count {
                            let right: f32 = (0..k).map(|p| lines[j * (k + 2) + p] * vectors[i * (k + 1) + p]).sum();
                            assert_eq!(to[i * count + j], right, "{isa:?} {count} {vectors_count} {k} ({i}, {j})");
                        }
                    }
                }
            }
        }
    }
}
