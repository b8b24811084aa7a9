//! Right answers: double-precision products that every operation's answer is made of.

use rayon::prelude::*;

use crate::faer::{self, Parallelism, Strided};
use crate::host::in_parallel;

/// `c = a * b` in double precision, row-major, through a library; a plain triple loop checks it in the tests.
pub(crate) fn product(m: usize, n: usize, k: usize, a: &[f64], b: &[f64]) -> Vec<f64> {
    assert!(a.len() >= m * k && b.len() >= k * n, "a product of {m}x{k} and {k}x{n} needs that many numbers");
    let mut c = vec![0f64; m * n];
    if m * n * k == 0 {
        return c;
    }
    in_parallel(|| {
        // SAFETY: the three buffers hold m*k, k*n and m*n numbers (asserted above), c is ours alone.
        unsafe {
            faer::product(
                (m, n, k),
                Strided::rows(a.as_ptr(), k),
                Strided::rows(b.as_ptr(), n),
                Strided::rows(c.as_mut_ptr(), n),
                Parallelism::Rayon(0),
            );
        }
    });
    c
}

/// The largest Euclidean norm of the rows of a row-major matrix.
pub(crate) fn largest_row_norm(rows: usize, columns: usize, a: &[f64]) -> f64 {
    let norm = |i: usize| a[i * columns..(i + 1) * columns].iter().map(|x| x * x).sum::<f64>().sqrt();
    in_parallel(|| (0..rows).into_par_iter().map(norm).reduce(|| 0.0, f64::max))
}

/// The largest Euclidean norm of the columns of a row-major matrix.
pub(crate) fn largest_column_norm(rows: usize, columns: usize, a: &[f64]) -> f64 {
    let mut squares = vec![0f64; columns];
    for i in 0..rows {
        for (s, x) in squares.iter_mut().zip(&a[i * columns..(i + 1) * columns]) {
            *s += x * x;
        }
    }
    squares.into_iter().fold(0.0, f64::max).sqrt()
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
}
