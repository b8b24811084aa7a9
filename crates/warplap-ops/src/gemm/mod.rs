//! Dense matrix product C = A·B, or a batch of them. C is row-major; A and B may be row- or column-major, with padded rows.

pub mod cpu;
pub mod cuda;
mod problem;

pub use problem::{GemmProblem, Kind, Layout};

use rayon::prelude::*;
use warplap_core::array::Array;
use warplap_core::device::{Device, Span};
use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::{Answer, Op};
use warplap_core::rejection::Rejection;
use warplap_core::tolerance::Tolerance;

use crate::{right, typed};

/// The operation C = A·B.
#[derive(Clone, Copy, Debug)]
pub struct Gemm;

/// The borrowed buffers of one product.
pub struct GemmArgs<'a, D: Device> {
    /// Shapes, layouts and leading dimensions.
    pub problem: &'a GemmProblem,
    /// A, `problem.a_len()` elements.
    pub a: D::View<'a>,
    /// B, `problem.b_len()` elements.
    pub b: D::View<'a>,
    /// C, `problem.c_len()` elements; padding between rows is left as it is.
    pub c: D::ViewMut<'a>,
}

/// A, B and C.
pub(crate) type Buffers<'a, T> = (&'a [T], &'a [T], &'a mut [T]);

impl<'a, D: Device<View<'a>: Span, ViewMut<'a>: Span>> GemmArgs<'a, D> {
    /// Checks that the buffers have the problem's type and hold what it spans.
    pub fn check(&self) -> Result<(), Error> {
        let p = self.problem;
        typed::argument("a", &self.a, (p.dtype, p.a_len()))?;
        typed::argument("b", &self.b, (p.dtype, p.b_len()))?;
        typed::argument("c", &self.c, (p.dtype, p.c_len()))
    }
}

impl<'a> GemmArgs<'a, warplap_cpu::Cpu> {
    /// The typed slices, checked to hold what the problem spans: kernels rely on it.
    pub(crate) fn typed<T: warplap_cpu::Typed>(self) -> Result<Buffers<'a, T>, Rejection> {
        let p = self.problem;
        let (a, b, c) = (typed::read::<T>(self.a)?, typed::read::<T>(self.b)?, typed::write::<T>(self.c)?);
        typed::spans("a", a.len(), p.a_len())?;
        typed::spans("b", b.len(), p.b_len())?;
        typed::spans("c", c.len(), p.c_len())?;
        Ok((a, b, c))
    }
}

impl Op for Gemm {
    const NAME: &'static str = "gemm";

    type Problem = GemmProblem;
    type Args<'a, D: Device> = GemmArgs<'a, D>;

    fn draw(p: &GemmProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        vec![Array::random(p.dtype, p.a_len(), rng), Array::random(p.dtype, p.b_len(), rng)]
    }

    fn output(p: &GemmProblem) -> (DType, usize) {
        (p.dtype, p.c_len())
    }

    fn answer(p: &GemmProblem, inputs: &[Array]) -> Answer {
        let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
        let [a_stride, b_stride, c_stride] = p.strides().map(|s| s as usize);
        let ldc = p.ldc as usize;
        // Padding between the rows of C must stay as it was: NaN in the answer says so.
        let mut values = vec![f64::NAN; p.c_len()];
        let mut magnitude = 0f64;
        for one in 0..p.batch as usize {
            let a = dense(&inputs[0], one * a_stride, (m, k), p.a, p.lda as usize);
            let b = dense(&inputs[1], one * b_stride, (k, n), p.b, p.ldb as usize);
            let product = right::product(m, n, k, &a, &b);
            magnitude = magnitude.max(right::largest_row_norm(m, k, &a) * right::largest_column_norm(k, n, &b));
            for i in 0..m {
                let at = one * c_stride + i * ldc;
                values[at..at + n].copy_from_slice(&product[i * n..(i + 1) * n]);
            }
        }
        Answer { values, tolerance: tolerance(p, magnitude) }
    }

    fn bind<'a, D: Device>(
        problem: &'a GemmProblem,
        inputs: Vec<D::View<'a>>,
        output: D::ViewMut<'a>,
    ) -> GemmArgs<'a, D> {
        GemmArgs { problem, a: inputs[0], b: inputs[1], c: output }
    }
}

/// How far a product may be off, given the largest product of the norm of a row of A and that of a column of B.
fn tolerance(p: &GemmProblem, magnitude: f64) -> Tolerance {
    match p.tf32 {
        true => Tolerance::rounded_dot(p.k as usize, magnitude),
        false => Tolerance::dot(p.dtype, DType::F32, p.k as usize, magnitude),
    }
}

/// A matrix that begins at an element, in double precision, row-major and without padding.
fn dense(array: &Array, start: usize, (rows, columns): (usize, usize), layout: Layout, ld: usize) -> Vec<f64> {
    let mut out = vec![0f64; rows * columns];
    // Millions of elements, for an answer that a whole race waits for.
    out.par_chunks_mut(columns.max(1)).enumerate().for_each(|(i, row)| {
        for (j, value) in row.iter_mut().enumerate() {
            *value = array.at(match layout {
                Layout::Row => start + i * ld + j,
                Layout::Col => start + j * ld + i,
            });
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_the_plain_triple_loop_in_every_layout_and_says_where_padding_is() {
        for text in [
            "gemm:m=3,n=4,k=5,dtype=f32",
            "gemm:m=7,n=2,k=9,dtype=f16,a=col,ldc=5",
            "gemm:m=5,n=6,k=1,dtype=bf16,b=col,lda=3,ldb=4",
            "gemm:m=6,n=3,k=8,dtype=f32,a=col,b=col,lda=9,ldb=10,ldc=4",
            "gemm:m=6,n=3,k=8,dtype=f32,a=col,b=col,lda=9,ldb=10,ldc=4,batch=3",
            "gemm:m=2,n=3,k=4,dtype=f16,b=col,batch=2",
        ] {
            let p = Gemm::parse(text).unwrap();
            let inputs = Gemm::draw(&p, &mut fastrand::Rng::with_seed(5));
            let answer = Gemm::answer(&p, &inputs);
            let at = |layout, ld: u64, i: u64, j: u64| {
                if layout == Layout::Row { (i * ld + j) as usize } else { (j * ld + i) as usize }
            };
            assert_eq!(answer.values.len(), p.c_len());
            for (index, value) in answer.values.iter().enumerate() {
                let (one, inside) = (index as u64 / p.strides()[2], index as u64 % p.strides()[2]);
                let (i, j) = (inside / p.ldc, inside % p.ldc);
                let [a0, b0, _] = p.strides().map(|s| (one * s) as usize);
                if j >= p.n {
                    assert!(value.is_nan(), "{text}: padding at {index}");
                    continue;
                }
                let right: f64 = (0..p.k)
                    .map(|q| inputs[0].at(a0 + at(p.a, p.lda, i, q)) * inputs[1].at(b0 + at(p.b, p.ldb, q, j)))
                    .sum();
                assert!((value - right).abs() < 1e-12, "{text} ({i}, {j})");
            }
        }
    }
}
