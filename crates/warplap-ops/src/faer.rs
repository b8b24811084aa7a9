//! Products by the `gemm` crates of the faer project, which this package calls for right answers and as a library to
//! race.
//!
//! Its crates are named by type here: the one that gathers them all compiles complex products too, which takes minutes.

pub(crate) use gemm_common::Parallelism;

/// The version of those crates, which is a part of who calls them.
pub(crate) const VERSION: &str = "0.19";

/// A matrix: its first element, and the steps from column to column and from row to row.
#[derive(Clone, Copy)]
pub(crate) struct Strided<P> {
    pub(crate) first: P,
    pub(crate) column: usize,
    pub(crate) row: usize,
}

impl<P> Strided<P> {
    /// A matrix whose rows are contiguous and so many elements apart.
    pub(crate) fn rows(first: P, row: usize) -> Self {
        Strided { first, column: 1, row }
    }

    pub(crate) fn turned(self) -> Self {
        Strided { first: self.first, column: self.row, row: self.column }
    }
}

/// A type there are products of.
pub(crate) trait Number: Copy {
    /// C = A·B, where steps between rows of C are not the larger ones.
    ///
    /// # Safety
    /// As for [`product`].
    unsafe fn run(
        sizes: (usize, usize, usize),
        a: Strided<*const Self>,
        b: Strided<*const Self>,
        c: Strided<*mut Self>,
        threads: Parallelism,
    );
}

macro_rules! number {
    ($T:ident, $kernel:expr) => {
        impl Number for $T {
            unsafe fn run(
                (m, n, k): (usize, usize, usize),
                a: Strided<*const $T>,
                b: Strided<*const $T>,
                c: Strided<*mut $T>,
                threads: Parallelism,
            ) {
                let steps = |column: usize, row: usize| (column as isize, row as isize);
                let ((a_column, a_row), (b_column, b_row)) = (steps(a.column, a.row), steps(b.column, b.row));
                let (c_column, c_row) = steps(c.column, c.row);
                // What was in C is not read, and nothing is conjugated.
                let (reads, plain) = (false, false);
                // SAFETY: the caller's word.
                unsafe {
                    $kernel()(
                        m, n, k, c.first, c_column, c_row, reads, a.first, a_column, a_row, b.first, b_column, b_row,
                        0.0, 1.0, plain, plain, plain, threads,
                    );
                }
            }
        }
    };
}

number!(f32, gemm_f32::gemm::f32::get_gemm_fn);
number!(f64, gemm_f64::gemm::f64::get_gemm_fn);

/// C (m×n) = A (m×k) · B (k×n).
///
/// # Safety
/// The three lie where their steps say, and nobody else touches C.
pub(crate) unsafe fn product<T: Number>(
    (m, n, k): (usize, usize, usize),
    a: Strided<*const T>,
    b: Strided<*const T>,
    c: Strided<*mut T>,
    threads: Parallelism,
) {
    // Its kernels write columns: where rows of C are contiguous, Cᵀ = Bᵀ·Aᵀ is the same work.
    // SAFETY: the caller's word; a turned matrix lies where it lay.
    unsafe {
        match c.column < c.row {
            true => T::run((n, m, k), b.turned(), a.turned(), c.turned(), threads),
            false => T::run((m, n, k), a, b, c, threads),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_version_is_the_one_that_is_compiled_in() {
        let place = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
        let manifest = std::fs::read_to_string(place).expect("the workspace");
        let lines = manifest.lines().filter(|line| line.starts_with("gemm-"));
        let versions: Vec<&str> = lines.map(|line| line.split('"').nth(1).expect("a version")).collect();
        assert!(versions.len() >= 3 && versions.iter().all(|v| *v == super::VERSION), "{versions:?}");
    }
}
