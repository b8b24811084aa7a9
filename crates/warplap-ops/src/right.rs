//! Right answers: double-precision products that every operation's answer is made of.

use rayon::prelude::*;

use crate::faer::{self, Parallelism, Strided};
use crate::host::in_parallel;

/// A matrix where it lies: its numbers, and the steps from column to column and from row to row.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(crate) numbers: &'a [f64],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) column: usize,
    pub(crate) row: usize,
}

/// Rows whose norms are found at once where their numbers are not contiguous.
const BLOCK: usize = 256;

impl<'a> Matrix<'a> {
    /// One whose rows lie one after another.
    pub(crate) fn tight(numbers: &'a [f64], rows: usize, columns: usize) -> Self {
        Matrix { numbers, rows, columns, column: 1, row: columns }
    }

    /// The same with rows for columns.
    fn turned(self) -> Self {
        let Matrix { numbers, rows, columns, column, row } = self;
        Matrix { numbers, rows: columns, columns: rows, column: row, row: column }
    }

    /// How many numbers it spans.
    fn span(&self) -> usize {
        let last = |count: usize, step: usize| count.saturating_sub(1) * step;
        if self.rows * self.columns == 0 { 0 } else { last(self.rows, self.row) + last(self.columns, self.column) + 1 }
    }

    fn strided(&self) -> Strided<*const f64> {
        Strided { first: self.numbers.as_ptr(), column: self.column, row: self.row }
    }

    /// The largest Euclidean norm of a row.
    pub(crate) fn largest_row_norm(self) -> f64 {
        let block = |first: usize| {
            let rows = first..self.rows.min(first + BLOCK);
            let mut squares = vec![0f64; rows.len()];
            if self.column == 1 {
                for (row, square) in rows.zip(&mut squares) {
                    *square = self.numbers[row * self.row..][..self.columns].iter().map(|x| x * x).sum();
                }
            } else {
                for column in 0..self.columns {
                    let from = &self.numbers[first * self.row + column * self.column..];
                    squares.iter_mut().zip(from.iter().step_by(self.row)).for_each(|(square, x)| *square += x * x);
                }
            }
            squares.into_iter().fold(0.0, f64::max).sqrt()
        };
        let firsts = || (0..self.rows.div_ceil(BLOCK)).into_par_iter().map(|i| block(i * BLOCK));
        in_parallel(|| firsts().reduce(|| 0.0, f64::max))
    }

    /// The largest Euclidean norm of a column.
    pub(crate) fn largest_column_norm(self) -> f64 {
        self.turned().largest_row_norm()
    }
}

/// `a * b` in double precision, row-major, through a library; a plain triple loop checks it in the tests.
pub(crate) fn product_of(a: Matrix<'_>, b: Matrix<'_>) -> Vec<f64> {
    let (m, n, k) = (a.rows, b.columns, a.columns);
    let holds = |x: &Matrix<'_>| x.numbers.len() >= x.span();
    assert!(b.rows == k && holds(&a) && holds(&b), "a product of {m}x{k} and {}x{n} needs that many numbers", b.rows);
    let mut c = vec![0f64; m * n];
    if m * n * k == 0 {
        return c;
    }
    in_parallel(|| {
        // SAFETY: a and b hold what their steps span (asserted above), c has m*n numbers and is ours alone.
        unsafe {
            let to = Strided::rows(c.as_mut_ptr(), n);
            faer::product((m, n, k), a.strided(), b.strided(), to, Parallelism::Rayon(0));
        }
    });
    c
}

/// The same of matrices whose rows lie one after another.
pub(crate) fn product(m: usize, n: usize, k: usize, a: &[f64], b: &[f64]) -> Vec<f64> {
    product_of(Matrix::tight(a, m, k), Matrix::tight(b, k, n))
}

/// The largest Euclidean norm of the rows of a row-major matrix.
pub(crate) fn largest_row_norm(rows: usize, columns: usize, a: &[f64]) -> f64 {
    Matrix::tight(a, rows, columns).largest_row_norm()
}

/// The largest Euclidean norm of the columns of a row-major matrix.
pub(crate) fn largest_column_norm(rows: usize, columns: usize, a: &[f64]) -> f64 {
    Matrix::tight(a, rows, columns).largest_column_norm()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_product_is_the_plain_triple_loop() {
        let mut rng = fastrand::Rng::with_seed(3);
        for (m, n, k) in [(1, 1, 1), (3, 5, 7), (17, 33, 65), (64, 64, 64), (1, 100, 9), (0, 3, 2), (2, 3, 0)] {
            let a: Vec<f64> = (0..m * k).map(|_| rng.f64() - 0.5).collect();
            let b: Vec<f64> = (0..k * n).map(|_| rng.f64() - 0.5).collect();
            let c = product(m, n, k, &a, &b);
            for i in 0..m {
                for j in 0..n {
                    let right: f64 = (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum();
                    assert!((c[i * n + j] - right).abs() < 1e-12);
                }
            }
        }
    }

    #[test]
    fn matrices_are_read_and_measured_as_they_lie() {
        let mut rng = fastrand::Rng::with_seed(3);
        for (m, n, k) in [(1, 1, 1), (3, 300, 7), (40, 33, 65), (300, 5, 9)] {
            let a: Vec<f64> = (0..m * (k + 2)).map(|_| rng.f64() - 0.5).collect();
            let b: Vec<f64> = (0..n * (k + 3)).map(|_| rng.f64() - 0.5).collect();
            let left = Matrix { numbers: &a, rows: m, columns: k, column: 1, row: k + 2 };
            // Columns lie one after another, with gaps.
            let right = Matrix { numbers: &b, rows: k, columns: n, column: k + 3, row: 1 };
            let c = product_of(left, right);
            let (at, of) = (|i: usize, p: usize| a[i * (k + 2) + p], |p: usize, j: usize| b[j * (k + 3) + p]);
            for i in 0..m {
                for j in 0..n {
                    let right: f64 = (0..k).map(|p| at(i, p) * of(p, j)).sum();
                    assert!((c[i * n + j] - right).abs() < 1e-12);
                }
            }
            let norm =
                |all: &dyn Fn(usize) -> f64, count: usize| (0..count).map(|i| all(i).powi(2)).sum::<f64>().sqrt();
            let rows = (0..m).map(|i| norm(&|p| at(i, p), k)).fold(0.0, f64::max);
            let columns = (0..n).map(|j| norm(&|p| of(p, j), k)).fold(0.0, f64::max);
            let across = (0..k).map(|p| norm(&|i| at(i, p), m)).fold(0.0, f64::max);
            for (actual, right) in [
                (left.largest_row_norm(), rows),
                (right.largest_column_norm(), columns),
                (left.largest_column_norm(), across),
            ] {
                assert!((actual - right).abs() < 1e-12, "{m} {n} {k}: {actual} {right}");
            }
        }
    }
}
