//! The door for other operations: one plain function for f32 products of row-major matrices.

use warplap_cpu::pool::Pool;
use warplap_cpu::simd::Isa;

use super::blocked::{self, Blocking, Product};
use super::epilogue::Epilogue;
use super::{Operand, Shared};
use crate::gemm::Layout;

/// A slice is shorter than the shapes say: which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub &'static str);

/// C (m×n) = A (m×k) · B (k×n), all f32 and row-major, lines `lda`, `ldb`, `ldc` elements apart, on at most `threads`
/// threads of the pool. C is overwritten; elements between its rows are left as they are.
///
/// It uses this machine's best instruction set and the register tile that is best there. From inside a task of the
/// same pool, call it with `threads = 1`.
#[allow(clippy::too_many_arguments, dead_code)] // The usual arguments of such a function; used by other operations.
pub(crate) fn sgemm(
    pool: &Pool,
    threads: usize,
    (m, n, k): (usize, usize, usize),
    a: &[f32],
    lda: usize,
    b: &[f32],
    ldb: usize,
    c: &mut [f32],
    ldc: usize,
) -> Result<(), Refused> {
    let spans = |lines: usize, line: usize, ld: usize, len: usize| {
        let end = lines.saturating_sub(1).checked_mul(ld).and_then(|e| e.checked_add(line));
        lines == 0 || line == 0 || ((lines == 1 || ld >= line) && end.is_some_and(|end| end <= len))
    };
    for (name, fits) in
        [("a", spans(m, k, lda, a.len())), ("b", spans(k, n, ldb, b.len())), ("c", spans(m, n, ldc, c.len()))]
    {
        if !fits {
            return Err(Refused(name));
        }
    }
    let row = |at: &[f32], ld| Operand { at: at.as_ptr(), ld, layout: Layout::Row };
    let (a, b, c, epilogue) = (row(a, lda), row(b, ldb), Shared(c.as_mut_ptr()), Epilogue::NONE);
    let product = Product { m, n, k, a, b, c, ldc, epilogue };
    // SAFETY: checked above; c is borrowed mutably for the time of the call.
    unsafe { blocked::product(pool, Blocking::usual(Isa::best(), threads), product) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_plain_triple_loop_and_refuses_short_slices() {
        let pool = Pool::new(2);
        for (m, n, k) in [(0, 3, 2), (2, 3, 0), (1, 1, 1), (5, 7, 9), (45, 70, 33), (130, 65, 700), (3, 400, 20)] {
            let (lda, ldb, ldc) = (k + 1, n + 2, n + 3);
            let a: Vec<f32> = (0..m * lda).map(|i| (i % 13) as f32 - 6.0).collect();
            let b: Vec<f32> = (0..k * ldb).map(|i| (i % 5) as f32 - 2.0).collect();
            for threads in [1, 2] {
                let mut c = vec![0.5; m * ldc];
                sgemm(&pool, threads, (m, n, k), &a, lda, &b, ldb, &mut c, ldc).unwrap();
                for i in 0..m {
                    for j in 0..ldc {
                        let right =
                            if j < n { (0..k).map(|p| a[i * lda + p] * b[p * ldb + j]).sum::<f32>() } else { 0.5 };
                        assert_eq!(c[i * ldc + j], right, "{m}x{n}x{k} ({i}, {j})");
                    }
                }
            }
        }
        let (a, mut c) = (vec![1.0; 4], vec![0.0; 4]);
        assert_eq!(sgemm(&pool, 1, (2, 2, 3), &a, 3, &a, 2, &mut c, 2), Err(Refused("a")));
        assert_eq!(sgemm(&pool, 1, (2, 2, 2), &a, 2, &a, 1, &mut c, 2), Err(Refused("b")));
        assert_eq!(sgemm(&pool, 1, (2, 2, 2), &a, 2, &a, 2, &mut c[..3], 2), Err(Refused("c")));
    }
}
