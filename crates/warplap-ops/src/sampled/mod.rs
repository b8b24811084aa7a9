//! The sampled product: those blocks of G·Bᵀ that a block-sparse pattern names. It is the gradient of the stored blocks of A
//! where G is the gradient of C = A·B.

pub mod cpu;
pub mod cuda;
mod problem;

pub use problem::SampledProblem;

use warplap_core::array::Array;
use warplap_core::device::{Device, Span};
use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::{Answer, Op};
use warplap_core::tolerance::Tolerance;

use crate::bsr::{Bsr, validate};
use crate::gemm::Layout;
use crate::{right, typed};

/// The operation A-pattern ∘ (G·Bᵀ).
#[derive(Clone, Copy, Debug)]
pub struct Sampled;

/// The borrowed buffers of one sampled product.
pub struct SampledArgs<'a, D: Device> {
    /// Shapes, block size and counts.
    pub problem: &'a SampledProblem,
    /// Where each block row begins in `col_idx`: `m / bs + 1` indices.
    pub row_ptr: D::View<'a>,
    /// The block column of each block: `nnz` indices.
    pub col_idx: D::View<'a>,
    /// G, `m * n` elements.
    pub g: D::View<'a>,
    /// B, `k * n` elements.
    pub b: D::View<'a>,
    /// The blocks, each row-major: `nnz * bs * bs` elements.
    pub values: D::ViewMut<'a>,
}

impl<'a, D: Device<View<'a>: Span, ViewMut<'a>: Span>> SampledArgs<'a, D> {
    /// Checks that the buffers have the problem's types and lengths; what the indices say is not looked at.
    pub fn check_spans(&self) -> Result<(), Error> {
        let p = &self.problem.pattern;
        if !p.is_square() {
            let reason = format!("blocks are {}x{}: the sampled product takes square ones", p.bs, p.bc);
            return Err(Error::Argument { argument: "values", reason });
        }
        typed::argument("row_ptr", &self.row_ptr, (DType::I32, p.rows() + 1))?;
        typed::argument("col_idx", &self.col_idx, (DType::I32, p.nnz as usize))?;
        typed::argument("g", &self.g, (p.dtype, (p.m * p.n) as usize))?;
        typed::argument("b", &self.b, (p.dtype, (p.k * p.n) as usize))?;
        typed::argument("values", &self.values, (p.dtype, p.values_len()))
    }
}

impl SampledArgs<'_, warplap_cpu::Cpu> {
    /// Checks that the buffers have the problem's types and lengths and that the indices are a block-sparse matrix.
    pub fn check(&self) -> Result<(), Error> {
        self.check_spans()?;
        let (warplap_cpu::Slice::I32(row_ptr), warplap_cpu::Slice::I32(col_idx)) = (self.row_ptr, self.col_idx) else {
            return Ok(());
        };
        let p = &self.problem.pattern;
        validate(row_ptr, col_idx, p.values_len(), p)
            .map_err(|e| Error::Argument { argument: e.argument(), reason: e.to_string() })
    }
}

impl SampledArgs<'_, warplap_cuda::Cuda> {
    /// Checks that the buffers have the problem's types and lengths. The indices lie in device memory and are not looked at.
    pub fn check(&self) -> Result<(), Error> {
        self.check_spans()
    }
}

/// A matrix of `n` columns as rows in double precision.
fn rows_of(matrix: &Array, layout: Layout, rows: usize, n: usize) -> Vec<f64> {
    let all = matrix.to_f64();
    if layout == Layout::Row { all } else { (0..rows * n).map(|i| all[i % n * rows + i / n]).collect() }
}

impl Op for Sampled {
    const NAME: &'static str = "sampled";

    type Problem = SampledProblem;
    type Args<'a, D: Device> = SampledArgs<'a, D>;

    fn draw(p: &SampledProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        // The pattern is drawn as for the product it is the gradient of.
        let mut inputs = Bsr::draw(&p.pattern, rng);
        inputs[2] = Array::random(p.pattern.dtype, (p.pattern.m * p.pattern.n) as usize, rng);
        inputs
    }

    fn output(p: &SampledProblem) -> (DType, usize) {
        (p.pattern.dtype, p.pattern.values_len())
    }

    fn answer(p: &SampledProblem, inputs: &[Array]) -> Answer {
        let p = (&p.pattern, p.g);
        let (n, bs) = (p.0.n as usize, p.0.bs as usize);
        let (row_ptr, col_idx) = (inputs[0].indices().unwrap_or(&[]), inputs[1].indices().unwrap_or(&[]));
        let g = rows_of(&inputs[2], p.1, p.0.m as usize, n);
        let b = rows_of(&inputs[3], p.0.b, p.0.k as usize, n);
        let (mut values, mut magnitude) = (Vec::with_capacity(p.0.values_len()), 0f64);
        for (row, ends) in row_ptr.windows(2).enumerate() {
            let left = &g[row * bs * n..][..bs * n];
            for column in &col_idx[ends[0] as usize..ends[1] as usize] {
                let right = &b[*column as usize * bs * n..][..bs * n];
                let turned: Vec<f64> = (0..n * bs).map(|i| right[i % bs * n + i / bs]).collect();
                values.extend(right::product(bs, bs, n, left, &turned));
                let norms = right::largest_row_norm(bs, n, left) * right::largest_row_norm(bs, n, right);
                magnitude = magnitude.max(norms);
            }
        }
        Answer { values, tolerance: Tolerance::dot(p.0.dtype, DType::F32, n, magnitude) }
    }

    fn bind<'a, D: Device>(
        problem: &'a SampledProblem,
        inputs: Vec<D::View<'a>>,
        values: D::ViewMut<'a>,
    ) -> SampledArgs<'a, D> {
        let (row_ptr, col_idx, g, b) = (inputs[0], inputs[1], inputs[2], inputs[3]);
        SampledArgs { problem, row_ptr, col_idx, g, b, values }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_are_not_square_never_reach_a_kernel() {
        let product = Bsr::parse("m=32,k=48,n=2,bs=16,bc=8,density=0.5").unwrap();
        let problem = SampledProblem::of(&product, Layout::Row);
        let (zeros, mut out) = (vec![0f32; 96], vec![0f32; product.values_len()]);
        let args = SampledArgs::<warplap_cpu::Cpu> {
            problem: &problem,
            row_ptr: warplap_cpu::Slice::I32(&[0, 3, 6]),
            col_idx: warplap_cpu::Slice::I32(&[0, 1, 2, 0, 1, 2]),
            g: warplap_cpu::Slice::F32(&zeros[..64]),
            b: warplap_cpu::Slice::F32(&zeros),
            values: warplap_cpu::SliceMut::F32(&mut out),
        };
        assert!(args.check().unwrap_err().to_string().contains("square"));
    }

    #[test]
    fn the_right_answer_is_that_of_plain_loops() {
        for text in ["m=32,k=48,n=7,bs=8,density=0.4", "m=32,k=32,n=9,bs=16,density=0.6,g=col,b=col,dtype=f16"] {
            let problem = Sampled::parse(text).unwrap();
            let inputs = Sampled::draw(&problem, &mut fastrand::Rng::with_seed(4));
            let answer = Sampled::answer(&problem, &inputs).values;
            let p = problem.pattern;
            let (m, k, n, bs) = (p.m as usize, p.k as usize, p.n as usize, p.bs as usize);
            let (row_ptr, col_idx) = (inputs[0].indices().unwrap(), inputs[1].indices().unwrap());
            for (at, column) in col_idx.iter().enumerate() {
                let row = row_ptr.iter().filter(|start| **start as usize <= at).count() - 1;
                for (r, c) in (0..bs).flat_map(|r| (0..bs).map(move |c| (r, c))) {
                    let (i, j) = (row * bs + r, *column as usize * bs + c);
                    let g = |q| inputs[2].at(if problem.g == Layout::Row { i * n + q } else { q * m + i });
                    let b = |q| inputs[3].at(if p.b == Layout::Row { j * n + q } else { q * k + j });
                    let sum: f64 = (0..n).map(|q| g(q) * b(q)).sum();
                    assert!((answer[(at * bs + r) * bs + c] - sum).abs() < 1e-12, "{text} at {at}, {r}, {c}");
                }
            }
        }
    }
}
