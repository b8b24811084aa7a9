//! Block-sparse times dense: C = alpha·A·B + beta·C, A in compressed rows of blocks (BSR), each block row-major.

pub mod cpu;
pub mod cuda;
mod factor;
mod pattern;
mod problem;
mod turn;
mod validate;

pub use factor::Factor;
pub use pattern::Pattern;
pub use problem::BsrProblem;
pub use turn::{TurnedIndex, turned_index};
pub use validate::{BsrError, validate, validate_places};

use warplap_core::array::Array;
use warplap_core::device::{Device, Span};
use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::{Answer, Op};
use warplap_core::tolerance::Tolerance;

use crate::gemm::Layout;
use crate::{right, typed};

/// The operation C = alpha·A·B + beta·C with a block-sparse A.
#[derive(Clone, Copy, Debug)]
pub struct Bsr;

/// The borrowed buffers of one product.
pub struct BsrArgs<'a, D: Device> {
    /// Shapes, block size and counts.
    pub problem: &'a BsrProblem,
    /// Where each block row begins in `col_idx`: `m / bs + 1` indices.
    pub row_ptr: D::View<'a>,
    /// The block column of each stored block: `nnz` indices.
    pub col_idx: D::View<'a>,
    /// The stored blocks, each row-major: `nnz * bs * bc` elements.
    pub values: D::View<'a>,
    /// B, `k * n` elements.
    pub b: D::View<'a>,
    /// C, `m * n` elements.
    pub c: D::ViewMut<'a>,
    /// What beta multiplies where it is not 0, `m * n` elements in C's order; C's own former elements where there is none.
    pub add: Option<D::View<'a>>,
    /// Where each block is stored, `nnz` indices, for a turned A.
    pub place: Option<D::View<'a>>,
}

impl<'a, D: Device<View<'a>: Span, ViewMut<'a>: Span>> BsrArgs<'a, D> {
    /// Checks that the buffers have the problem's types and lengths; what the indices say is not looked at.
    pub fn check_spans(&self) -> Result<(), Error> {
        let p = self.problem;
        typed::argument("row_ptr", &self.row_ptr, (DType::I32, p.rows() + 1))?;
        typed::argument("col_idx", &self.col_idx, (DType::I32, p.nnz as usize))?;
        typed::argument("values", &self.values, (p.dtype, p.values_len()))?;
        typed::argument("b", &self.b, (p.dtype, (p.k * p.n) as usize))?;
        typed::argument("c", &self.c, (p.dtype, (p.m * p.n) as usize))?;
        if let Some(add) = self.add.as_ref().filter(|_| p.adds()) {
            typed::argument("add", add, (p.dtype, (p.m * p.n) as usize))?;
        }
        match &self.place {
            Some(place) if p.turned => typed::argument("place", place, (DType::I32, p.nnz as usize)),
            None if p.turned => {
                let reason = "is missing: expected where each block of a turned A is stored".into();
                Err(Error::Argument { argument: "place", reason })
            }
            _ => Ok(()),
        }
    }
}

impl BsrArgs<'_, warplap_cpu::Cpu> {
    /// Checks that the buffers have the problem's types and lengths and that the indices are a block-sparse matrix.
    pub fn check(&self) -> Result<(), Error> {
        self.check_spans()?;
        let p = self.problem;
        let (warplap_cpu::Slice::I32(row_ptr), warplap_cpu::Slice::I32(col_idx)) = (self.row_ptr, self.col_idx) else {
            return Ok(());
        };
        let wrong = |e: BsrError| Error::Argument { argument: e.argument(), reason: e.to_string() };
        validate(row_ptr, col_idx, self.values.len(), p).map_err(wrong)?;
        match self.place {
            Some(warplap_cpu::Slice::I32(place)) if p.turned => validate_places(place, p).map_err(wrong),
            _ => Ok(()),
        }
    }
}

/// How far a kernel may be off, from the largest product of the norms of a row of A and the column of B that it meets.
pub(crate) fn tolerance(p: &BsrProblem, magnitude: f64) -> Tolerance {
    let magnitude = magnitude * f64::from(p.alpha.get()).abs() + f64::from(p.beta.get()).abs();
    let length = (p.row_max * p.bc) as usize;
    match p.tf32 {
        true => Tolerance::rounded_dot(length, magnitude),
        false => Tolerance::dot(p.dtype, DType::F32, length, magnitude),
    }
}

impl Op for Bsr {
    const NAME: &'static str = "bsr";

    type Problem = BsrProblem;
    type Args<'a, D: Device> = BsrArgs<'a, D>;

    fn draw(p: &BsrProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let counts =
            pattern::Counts { rows: p.rows(), columns: p.columns(), nnz: p.nnz as usize, row_max: p.row_max as usize };
        let (row_ptr, col_idx) = pattern::draw(p.pattern, counts, rng);
        let values = Array::random(p.dtype, p.values_len(), rng);
        let b = Array::random(p.dtype, (p.k * p.n) as usize, rng);
        let mut inputs = vec![Array::I32(row_ptr), Array::I32(col_idx), values, b];
        if p.adds() {
            inputs.push(Array::random(p.dtype, (p.m * p.n) as usize, rng));
        }
        if p.turned {
            let mut place: Vec<i32> = (0..p.nnz as i32).collect();
            rng.shuffle(&mut place);
            inputs.push(Array::I32(place));
        }
        inputs
    }

    fn output(p: &BsrProblem) -> (DType, usize) {
        (p.dtype, (p.m * p.n) as usize)
    }

    fn answer(p: &BsrProblem, inputs: &[Array]) -> Answer {
        let (m, k, n) = (p.m as usize, p.k as usize, p.n as usize);
        let (bs, bc) = (p.bs as usize, p.bc as usize);
        let (row_ptr, col_idx) = (inputs[0].indices().unwrap_or(&[]), inputs[1].indices().unwrap_or(&[]));
        let mut values = inputs[2].to_f64();
        if let Some(place) = inputs.last().and_then(|last| last.indices()).filter(|_| p.turned) {
            values = turn::turned(&values, place, (bs, bc));
        }
        let mut b = inputs[3].to_f64();
        if p.b == Layout::Col {
            b = (0..k * n).map(|i| b[i % n * k + i / n]).collect();
        }
        let mut answer = Vec::with_capacity(p.rows() * bs * n);
        let mut magnitude = 0f64;
        // A block row is a dense product of its blocks side by side and the rows of B that they meet.
        for ends in row_ptr.windows(2) {
            let blocks = ends[0] as usize..ends[1] as usize;
            let width = blocks.len() * bc;
            let (mut left, mut below) = (vec![0f64; bs * width], Vec::with_capacity(width * n));
            for (i, at) in blocks.enumerate() {
                for r in 0..bs {
                    left[r * width + i * bc..][..bc].copy_from_slice(&values[(at * bs + r) * bc..][..bc]);
                }
                below.extend_from_slice(&b[col_idx[at] as usize * bc * n..][..bc * n]);
            }
            answer.extend(right::product(bs, n, width, &left, &below));
            let norms = right::largest_row_norm(bs, width, &left) * right::largest_column_norm(width, n, &below);
            magnitude = magnitude.max(norms);
        }
        if p.c == Layout::Col {
            answer = (0..m * n).map(|i| answer[i % m * n + i / m]).collect();
        }
        let (alpha, beta) = (f64::from(p.alpha.get()), f64::from(p.beta.get()));
        answer.iter_mut().for_each(|x| *x *= alpha);
        if p.adds() {
            answer.iter_mut().enumerate().for_each(|(i, x)| *x += beta * inputs[4].at(i));
        }
        Answer { values: answer, tolerance: tolerance(p, magnitude) }
    }

    fn bind<'a, D: Device>(p: &'a BsrProblem, inputs: Vec<D::View<'a>>, output: D::ViewMut<'a>) -> BsrArgs<'a, D> {
        let (row_ptr, col_idx, values, b) = (inputs[0], inputs[1], inputs[2], inputs[3]);
        let (add, place) = (p.adds().then(|| inputs[4]), p.turned.then(|| inputs[inputs.len() - 1]));
        BsrArgs { problem: p, row_ptr, col_idx, values, b, c: output, add, place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_answer_is_that_of_plain_loops() {
        for text in [
            "m=32,k=48,n=7,bs=8,density=0.4",
            "m=48,k=32,n=5,bs=16,density=0.5,imbalance=1.5,b=col,dtype=bf16",
            "m=16,k=16,n=3,bs=8,density=0,dtype=f16",
            "m=32,k=48,n=7,bs=8,density=0.4,alpha=-0.5,beta=2,turned=true",
            "m=48,k=48,n=4,bs=16,density=0.4,alpha=3",
            "m=48,k=64,n=4,bs=24,bc=16,density=0.4,c=col,beta=2,turned=true",
            "m=48,k=64,n=4,bs=16,bc=32,density=0.4,b=col,c=col",
        ] {
            let p = Bsr::parse(text).unwrap();
            let inputs = Bsr::draw(&p, &mut fastrand::Rng::with_seed(4));
            let answer = Bsr::answer(&p, &inputs).values;
            let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
            let (bs, bc) = (p.bs as usize, p.bc as usize);
            let (row_ptr, col_idx) = (inputs[0].indices().unwrap(), inputs[1].indices().unwrap());
            for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let mut sum = 0.0;
                let blocks = row_ptr[i / bs] as usize..row_ptr[i / bs + 1] as usize;
                for (at, column) in blocks.clone().zip(&col_idx[blocks]) {
                    for q in 0..bc {
                        let row = *column as usize * bc + q;
                        let place = if p.b == Layout::Row { row * n + j } else { j * k + row };
                        let a = match p.turned {
                            true => (inputs.last().unwrap().indices().unwrap()[at] as usize * bc + q) * bs + i % bs,
                            false => (at * bs + i % bs) * bc + q,
                        };
                        sum += inputs[2].at(a) * inputs[3].at(place);
                    }
                }
                sum *= f64::from(p.alpha.get());
                let place = if p.c == Layout::Row { i * n + j } else { j * m + i };
                if p.adds() {
                    sum += f64::from(p.beta.get()) * inputs[4].at(place);
                }
                assert!((answer[place] - sum).abs() < 1e-12, "{text} at {i}, {j}");
            }
        }
    }
}
