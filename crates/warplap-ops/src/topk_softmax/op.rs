//! The router's softmax, declared: the facts of a request, the slots of a launch, and how programs name it.

use warplap_core::array::Array;
use warplap_core::bucket::Bucket;
use warplap_core::declare::{declared, problem};
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op, drawn};
use warplap_core::problem::{Problem, ProblemError};
use warplap_core::roofline::Work;
use warplap_core::slot::{Signature, Slot};

use super::answer;
use crate::extent::{bounded, rounded};
use crate::host::map_floats_by_place;

/// Experts that are chosen of a row, at the most.
pub(crate) const MOST: usize = 64;

/// Experts of a row, at the most.
const MOST_EXPERTS: u64 = 4096;
const _: () = assert!(MOST == 64 && MOST_EXPERTS == 4096, "sentences of the fields say so");

problem! {
    /// The facts of weights, indices = topk(softmax(x), k), row by row. Rows lie one after another without padding.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct TopkSoftmaxProblem {
        /// Rows, one for each token.
        pub rows: u64 => size(),
        /// Experts: elements of one row.
        pub n: u64 => whole("a whole number from 1 to 4096").only(|n| (1..=MOST_EXPERTS).contains(n)),
        /// Experts that are chosen of a row.
        pub k: u64 => whole("a whole number from 1 to 64 and at most n").only(|k| (1..=MOST as u64).contains(k)),
        /// Type of x; arithmetic and weights are in f32.
        pub dtype: DType = DType::F32 => float().shown(),
        /// Whether the weights of a row are divided by their sum.
        pub renormalize: bool = false => flag().always_in_key(),
    }
}

impl TopkSoftmaxProblem {
    /// Elements of x.
    pub fn len(&self) -> usize {
        (self.rows * self.n) as usize
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements of the weights, and of the indices.
    pub fn chosen(&self) -> usize {
        (self.rows * self.k) as usize
    }
}

impl Problem for TopkSoftmaxProblem {
    type Op = TopkSoftmax;

    declared!();

    fn check(&self) -> Result<(), ProblemError> {
        if self.k > self.n {
            return Err(ProblemError::value("k", self.k, "a whole number from 1 to 64 and at most n"));
        }
        bounded(self.rows, self.n, "elements in x")
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        // Kernels are made for so many experts, of which so many are chosen: neither is ever rounded.
        TopkSoftmaxProblem { rows: rounded(bucket, "rows", self.rows, self.n), ..*self }
    }

    fn ragged(&self) -> Option<Self> {
        // No whole number of blocks of several rows.
        (self.rows > 13).then_some(TopkSoftmaxProblem { rows: 13, ..*self })
    }

    fn work(&self) -> Work {
        let (all, chosen) = (self.rows as f64 * self.n as f64, self.rows as f64 * self.k as f64);
        let weighted = if self.renormalize { chosen } else { all };
        Work { flops: all + 4.0 * weighted, bytes: all * self.dtype.bytes() as f64 + 8.0 * chosen }
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

/// The operation topk(softmax(x), k).
///
/// Who is chosen is decided by x itself, not by what is computed of it: larger ones first, of equal ones that with the
/// lower index, both zeros alike, NaN above all numbers. So every kernel has the same indices, exactly. A row with a
/// NaN or with +inf, and one that is -inf altogether, has weights that are NaN, as torch has it.
#[derive(Clone, Copy, Debug)]
pub struct TopkSoftmax;

/// The slots of a launch.
pub mod slot {
    /// x, rows×n.
    pub const X: usize = 0;
    /// The weights of who is chosen, rows×k, f32, the largest first.
    pub const WEIGHTS: usize = 1;
    /// Who is chosen, rows×k, i32, in the same order.
    pub const INDICES: usize = 2;
}

/// How many slots there are.
pub(crate) const SLOTS: usize = 3;

/// Bytes that the address of x is a multiple of: one vector of a GPU.
const ALIGN: u64 = 16;

/// What x is drawn within, on both sides of zero.
const SPREAD: f32 = 4.0;

impl Op for TopkSoftmax {
    const NAME: &'static str = "topk_softmax";

    type Problem = TopkSoftmaxProblem;

    fn signature(p: &TopkSoftmaxProblem) -> Signature {
        Signature(vec![
            Slot::input("x", p.dtype, &[p.rows, p.n]).aligned(ALIGN),
            Slot::output("weights", DType::F32, &[p.rows, p.k]),
            Slot::output("indices", DType::I32, &[p.rows, p.k]),
        ])
    }

    fn draw(p: &TopkSoftmaxProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let mut inputs = drawn(&Self::signature(p), rng);
        let n = p.n as usize;
        map_floats_by_place(&mut inputs[slot::X], n, |row, place, x| match row % 4 {
            // Many are equal: half a step of sixteen.
            1 => (x * 8.0).round() * (SPREAD / 8.0),
            // Some are hidden, and somebody is left.
            2 if x > 0.4 && place != row % n => f32::NEG_INFINITY,
            // All but a few are hidden.
            3 if place % 8 != row % n.min(8) => f32::NEG_INFINITY,
            _ => x * SPREAD,
        });
        inputs
    }

    fn answer(p: &TopkSoftmaxProblem, inputs: &[Array]) -> Vec<Answer> {
        answer::answer(p, inputs)
    }
}

known! {
    /// The k largest of each row and their shares of its softmax: the router of a mixture of experts.
    TopkSoftmax {
        aliases: [],
        example: "topk_softmax:rows=4096,n=128,k=8,dtype=bf16,renormalize=true",
        cpu: "
topk_softmax:rows=4096,n=8,k=2,dtype=f32,renormalize=true
topk_softmax:rows=4096,n=128,k=8,dtype=bf16,renormalize=true
topk_softmax:rows=1024,n=2048,k=32,dtype=f32
",
        cuda: "
topk_softmax:rows=4096,n=8,k=2,dtype=bf16,renormalize=true
topk_softmax:rows=64,n=128,k=8,dtype=bf16,renormalize=true
topk_softmax:rows=16384,n=128,k=8,dtype=bf16,renormalize=true
topk_softmax:rows=8192,n=512,k=10,dtype=f32
topk_softmax:rows=4096,n=4096,k=32,dtype=f32
",
    }
}

#[cfg(test)]
#[path = "op_tests.rs"]
mod tests;
