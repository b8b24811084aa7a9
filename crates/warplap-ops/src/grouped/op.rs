//! Products by groups, declared: the facts of a request, the slots of a launch, and how programs name it.

use warplap_core::array::Array;
use warplap_core::bucket::Bucket;
use warplap_core::declare::{declared, problem};
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op, drawn};
use warplap_core::problem::{Problem, ProblemError};
use warplap_core::roofline::Work;
use warplap_core::slot::{Signature, Slot};

use super::answer;
use super::counts::Spread;
use crate::extent::{MAX_ELEMENTS, rounded};
use crate::gemm::Layout;

/// Experts at the most: kernels keep where each one's rows end.
pub(crate) const MOST_EXPERTS: u64 = 1024;
const _: () = assert!(MOST_EXPERTS == 1024, "the sentence of the field says so");

problem! {
    /// The facts of y = x·w[e], by experts e. Rows of x and y, and the matrices of w, lie one behind the other.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct GroupedProblem {
        /// Rows of x and y, those of all experts.
        pub rows: u64 => size(),
        /// Columns of y.
        pub n: u64 => size(),
        /// Columns of x.
        pub k: u64 => size(),
        /// Matrices of w, one an expert.
        pub experts: u64 => whole("a whole number from 1 to 1024").only(|e| (1..=MOST_EXPERTS).contains(e)),
        /// Type of x, w and y in memory; sums are in f32.
        pub dtype: DType = DType::F32 => float().shown(),
        /// Order of each matrix of w, which is k×n.
        pub w: Layout = Layout::Row => word().shown(),
        /// How unevenly rows are dealt out to experts when inputs are drawn, which ones are busy at random.
        pub spread: Spread = Spread::Skewed => word().always_in_key(),
        /// Rows at the end that are drawn to belong to no expert.
        pub tail: u64 = 0 => whole("a number of rows").not_in_key(),
    }
}

impl GroupedProblem {
    /// Rows of each expert when inputs are drawn, the busiest first.
    pub(crate) fn counts(&self) -> Vec<u64> {
        self.spread.counts(self.rows - self.tail, self.experts)
    }
}

/// What is left of a size where tiles are to end raggedly: less, and divided by what divided it.
fn less(size: u64) -> u64 {
    if size > 512 { 256 + size % 256 } else { size }
}

impl Problem for GroupedProblem {
    type Op = Grouped;

    declared!();

    fn check(&self) -> Result<(), ProblemError> {
        let GroupedProblem { rows, n, k, experts, tail, .. } = *self;
        for (field, size, len, what) in
            [("experts", experts, experts * n * k, "w"), ("k", k, rows * k, "x"), ("n", n, rows * n, "y")]
        {
            if len > MAX_ELEMENTS {
                let expected = format!("so many that {what} has at most {MAX_ELEMENTS} elements, not {len}");
                return Err(ProblemError::value(field, size, expected));
            }
        }
        match tail > rows {
            true => Err(ProblemError::value("tail", tail, format!("at most the {rows} rows there are"))),
            false => Ok(()),
        }
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        // Rows change from call to call; columns and experts are a model's.
        let rows = rounded(bucket, "rows", self.rows, self.n.max(self.k));
        GroupedProblem { rows, tail: if bucket.is_exact() { self.tail } else { 0 }, ..*self }
    }

    fn ragged(&self) -> Option<Self> {
        // Groups of no whole number of tiles, one or more without rows, and rows behind the last.
        let (n, k, experts) = (less(self.n), less(self.k), self.experts.min(7));
        let ragged = GroupedProblem { rows: 333, n, k, experts, tail: 5, spread: Spread::Skewed, ..*self };
        (self.rows > ragged.rows).then_some(ragged)
    }

    fn work(&self) -> Work {
        let [rows, n, k] = [self.rows - self.tail, self.n, self.k].map(|size| size as f64);
        // Matrices of experts without rows are not read.
        let read = self.counts().iter().filter(|count| **count > 0).count() as f64;
        let bytes = (rows * k + rows * n + read * n * k) * self.dtype.bytes() as f64 + 4.0 * self.experts as f64;
        Work { flops: 2.0 * rows * n * k, bytes }
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

/// The operation `y = x·w[e]`.
#[derive(Clone, Copy, Debug)]
pub struct Grouped;

/// The slots of a launch.
pub mod slot {
    /// x, rows×k.
    pub const X: usize = 0;
    /// w, a matrix k×n for each expert.
    pub const W: usize = 1;
    /// Where the rows of each expert end, in rising order: an expert's begin where those before it end.
    pub const OFFSETS: usize = 2;
    /// y, rows×n; rows behind the last end stay as they were.
    pub const Y: usize = 3;
}

/// How many slots there are.
pub(crate) const SLOTS: usize = 4;

/// Bytes of one vector of a GPU.
const VECTOR: u64 = 16;

/// The bytes that lines of so many elements lie on: those of a vector, where one divides a line.
fn align(elements: u64, dtype: DType) -> u64 {
    let bytes = elements.max(1) * dtype.bytes() as u64;
    VECTOR.min(1 << bytes.trailing_zeros())
}

impl Op for Grouped {
    const NAME: &'static str = "grouped";

    type Problem = GroupedProblem;

    fn signature(p: &GroupedProblem) -> Signature {
        let GroupedProblem { rows, n, k, experts, dtype, .. } = *p;
        let (steps, line) = if p.w == Layout::Row { ([n, 1], n) } else { ([1, k], k) };
        Signature(vec![
            Slot::input("x", dtype, &[rows, k]).aligned(align(k, dtype)),
            Slot::input("w", dtype, &[experts, k, n]).strided(&[n * k, steps[0], steps[1]]).aligned(align(line, dtype)),
            Slot::input("offsets", DType::I32, &[experts]),
            Slot::output("y", dtype, &[rows, n]).aligned(align(n, dtype)),
        ])
    }

    fn draw(p: &GroupedProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let mut inputs = drawn(&Self::signature(p), rng);
        let mut counts = p.counts();
        rng.shuffle(&mut counts);
        let ends = counts.iter().scan(0, |end, count| {
            *end += *count as i32;
            Some(*end)
        });
        inputs[slot::OFFSETS] = Array::I32(ends.collect());
        inputs
    }

    fn answer(p: &GroupedProblem, inputs: &[Array]) -> Vec<Answer> {
        answer::answer(p, inputs)
    }
}

known! {
    /// Products of rows sorted by expert, one weight matrix an expert.
    Grouped {
        aliases: ["grouped_mm"],
        // An end that goes back or leads past the rows is refused on the CPU, and taken as the nearest that does not by
        // kernels of a GPU: nobody waits for offsets there.
        guarded: true,
        check: { cpu: super::ends::check_on_cpu, cuda: super::ends::check_on_cuda },
        example: "grouped:rows=8192,n=1536,k=2048,experts=128,dtype=bf16,w=row",
        cpu: "
# One token of a small mixture of experts, a prompt, and even groups.
grouped:rows=8,n=768,k=1024,experts=32,dtype=bf16,w=col
grouped:rows=2048,n=768,k=1024,experts=16,dtype=f32,w=col
grouped:rows=2048,n=1024,k=768,experts=8,dtype=bf16,w=row,spread=even
",
        cuda: "
# Decoding and prompts of Mixtral, Qwen3-30B and an eighth of DeepSeek-V3.
grouped:rows=32,n=28672,k=4096,experts=8,dtype=bf16,w=col
grouped:rows=128,n=1536,k=2048,experts=128,dtype=bf16,w=col
grouped:rows=256,n=4096,k=7168,experts=32,dtype=bf16,w=col
grouped:rows=8192,n=28672,k=4096,experts=8,dtype=bf16,w=col
grouped:rows=32768,n=1536,k=2048,experts=128,dtype=bf16,w=col
grouped:rows=32768,n=2048,k=768,experts=128,dtype=bf16,w=col
grouped:rows=16384,n=4096,k=7168,experts=32,dtype=bf16,w=col
",
    }
}

#[cfg(test)]
#[path = "op_tests.rs"]
mod tests;
