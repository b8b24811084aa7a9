//! The sampled product: those blocks of G·Bᵀ that a block-sparse pattern names. It is the gradient of the stored blocks
//! of A where G is the gradient of C = A·B.

#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod edges;
mod op;

pub use op::SampledProblem;

use warplap_core::arg::Arg;
use warplap_core::array::Array;
use warplap_core::device::Device;
use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::{Answer, Op};
use warplap_core::slot::{Signature, Slot};
use warplap_core::tolerance::Tolerance;
use warplap_cpu::{Cpu, Slice};

use crate::bsr::{ALIGN, Bsr, dense, validate};
use crate::gemm::Layout;
use crate::right;

/// The operation A-pattern ∘ (G·Bᵀ).
#[derive(Clone, Copy, Debug)]
pub struct Sampled;

/// The slots of a sampled product.
pub mod slot {
    /// Where each block row begins in the column indices: `m / bs + 1` indices.
    pub const ROW_PTR: usize = 0;
    /// The block column of each block: `nnz` indices.
    pub const COL_IDX: usize = 1;
    /// G, m×n.
    pub const G: usize = 2;
    /// B, k×n.
    pub const B: usize = 3;
    /// The blocks, each row-major.
    pub const VALUES: usize = 4;
}

/// How many slots there are.
pub(crate) const SLOTS: usize = 5;

/// Why no kernel takes a problem, if so: a product may have blocks that are not square.
pub(crate) fn no_square(p: &SampledProblem) -> Option<String> {
    let p = &p.pattern;
    (!p.is_square()).then(|| format!("blocks are {}x{}: the sampled product takes square ones", p.bs, p.bc))
}

/// Checks that a problem is one for the sampled product and that arguments are those of it. The indices are not looked
/// at.
pub fn check<D: Device>(p: &SampledProblem, args: &[Arg<'_, D>]) -> Result<(), Error> {
    if let Some(reason) = no_square(p) {
        return Err(Error::Argument { argument: "values".into(), reason });
    }
    Sampled::signature(p).check(args)
}

/// Checks the same, and that the indices are a block-sparse matrix.
pub fn check_indices(p: &SampledProblem, args: &[Arg<'_, Cpu>]) -> Result<(), Error> {
    check(p, args)?;
    let indices = |slot: usize| match args[slot].view() {
        Some(Slice::I32(indices)) => indices,
        _ => &[],
    };
    Ok(validate(indices(slot::ROW_PTR), indices(slot::COL_IDX), p.pattern.values_len(), &p.pattern)?)
}

#[cfg(feature = "cpu")]
fn check_on_cpu(p: &SampledProblem, args: &[Arg<'_, Cpu>], _: &Cpu) -> Result<(), Error> {
    check_indices(p, args)
}

#[cfg(feature = "cuda")]
fn check_on_cuda(
    p: &SampledProblem,
    args: &[Arg<'_, warplap_cuda::Cuda>],
    _: &warplap_cuda::Cuda,
) -> Result<(), Error> {
    check(p, args)
}

/// How far a kernel may be off, from the largest product of the norms of a row of G and a row of B that it meets.
fn tolerance(p: &SampledProblem, magnitude: f64) -> Tolerance {
    Tolerance::dot(p.pattern.dtype, DType::F32, p.pattern.n as usize, magnitude)
}

/// A matrix of `n` columns as rows in double precision.
fn rows_of(matrix: &Array, layout: Layout, rows: usize, n: usize) -> Vec<f64> {
    let all = matrix.to_f64();
    if layout == Layout::Row { all } else { (0..rows * n).map(|i| all[i % n * rows + i / n]).collect() }
}

impl Op for Sampled {
    const NAME: &'static str = "sampled";

    type Problem = SampledProblem;

    fn signature(p: &SampledProblem) -> Signature {
        let (p, g) = (&p.pattern, p.g);
        let index = |name: &'static str, len: u64| Slot::input(name, DType::I32, &[len]);
        Signature(vec![
            index("row_ptr", p.rows() as u64 + 1),
            index("col_idx", p.nnz),
            dense(Slot::input("g", p.dtype, &[p.m, p.n]), g),
            dense(Slot::input("b", p.dtype, &[p.k, p.n]), p.b),
            Slot::output("values", p.dtype, &[p.nnz, p.bs, p.bc]).aligned(ALIGN),
        ])
    }

    fn draw(p: &SampledProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        // The pattern is drawn as for the product it is the gradient of.
        let mut inputs = Bsr::draw(&p.pattern, rng);
        inputs.truncate(SLOTS);
        inputs[slot::G] = Array::random(p.pattern.dtype, (p.pattern.m * p.pattern.n) as usize, rng);
        inputs[slot::VALUES] = Array::none();
        inputs
    }

    fn answer(problem: &SampledProblem, inputs: &[Array]) -> Vec<Answer> {
        let p = (&problem.pattern, problem.g);
        let (n, bs, bc) = (p.0.n as usize, p.0.bs as usize, p.0.bc as usize);
        let indices = |slot: usize| inputs[slot].indices().unwrap_or(&[]);
        let (row_ptr, col_idx) = (indices(slot::ROW_PTR), indices(slot::COL_IDX));
        let g = rows_of(&inputs[slot::G], p.1, p.0.m as usize, n);
        let b = rows_of(&inputs[slot::B], p.0.b, p.0.k as usize, n);
        let (mut values, mut magnitude) = (Vec::with_capacity(p.0.values_len()), 0f64);
        for (row, ends) in row_ptr.windows(2).enumerate() {
            let left = &g[row * bs * n..][..bs * n];
            for column in &col_idx[ends[0] as usize..ends[1] as usize] {
                let right = &b[*column as usize * bc * n..][..bc * n];
                let turned: Vec<f64> = (0..n * bc).map(|i| right[i % bc * n + i / bc]).collect();
                values.extend(right::product(bs, bc, n, left, &turned));
                let norms = right::largest_row_norm(bs, n, left) * right::largest_row_norm(bc, n, right);
                magnitude = magnitude.max(norms);
            }
        }
        vec![Answer { values, tolerance: tolerance(problem, magnitude) }]
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
        let args: [Arg<'_, Cpu>; SLOTS] = [
            Arg::Read(Slice::I32(&[0, 3, 6])),
            Arg::Read(Slice::I32(&[0, 1, 2, 0, 1, 2])),
            Arg::Read(Slice::F32(&zeros[..64])),
            Arg::Read(Slice::F32(&zeros)),
            Arg::Write(warplap_cpu::SliceMut::F32(&mut out)),
        ];
        assert!(check_indices(&problem, &args).unwrap_err().to_string().contains("square"));
        let device = Cpu::new();
        for variant in cpu::catalog().variants() {
            let config = variant.space(&problem, &device).default_config().unwrap();
            let refusal = variant.build(&problem, &config, &device).err().unwrap();
            assert!(refusal.to_string().contains("square"), "{}: {refusal}", variant.id());
        }
    }

    #[test]
    fn the_right_answer_is_that_of_plain_loops() {
        for text in ["m=32,k=48,n=7,bs=8,density=0.4", "m=32,k=32,n=9,bs=16,density=0.6,g=col,b=col,dtype=f16"] {
            let problem = Sampled::parse(text).unwrap();
            let inputs = Sampled::draw(&problem, &mut fastrand::Rng::with_seed(4));
            let answer = &Sampled::answer(&problem, &inputs)[0].values;
            let p = problem.pattern;
            let (m, k, n, bs) = (p.m as usize, p.k as usize, p.n as usize, p.bs as usize);
            let indices = |slot: usize| inputs[slot].indices().unwrap();
            let (row_ptr, col_idx) = (indices(slot::ROW_PTR), indices(slot::COL_IDX));
            for (at, column) in col_idx.iter().enumerate() {
                let row = row_ptr.iter().filter(|start| **start as usize <= at).count() - 1;
                for (r, c) in (0..bs).flat_map(|r| (0..bs).map(move |c| (r, c))) {
                    let (i, j) = (row * bs + r, *column as usize * bs + c);
                    let g = |q| inputs[slot::G].at(if problem.g == Layout::Row { i * n + q } else { q * m + i });
                    let b = |q| inputs[slot::B].at(if p.b == Layout::Row { j * n + q } else { q * k + j });
                    let sum: f64 = (0..n).map(|q| g(q) * b(q)).sum();
                    assert!((answer[(at * bs + r) * bs + c] - sum).abs() < 1e-12, "{text} at {at}, {r}, {c}");
                }
            }
        }
    }
}
