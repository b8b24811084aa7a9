//! Softmax of rows, declared: the facts of a request, the slots of a launch, and how programs name it.

use warplap_core::array::Array;
use warplap_core::bucket::Bucket;
use warplap_core::declare::{Number, declared, problem};
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op, drawn};
use warplap_core::problem::{Problem, ProblemError};
use warplap_core::roofline::Work;
use warplap_core::slot::{Signature, Slot};

use super::answer;
use crate::extent::{bounded, rounded};
use crate::host::map_floats;

problem! {
    /// The facts of y = softmax(scale · x + mask), row by row. Rows lie one after another without padding.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct SoftmaxProblem {
        /// Rows.
        pub rows: u64 => size(),
        /// Elements of one row.
        pub n: u64 => size(),
        /// Type of all buffers; arithmetic and sums are in f32.
        pub dtype: DType = DType::F32 => float().shown(),
        /// What x is multiplied with.
        scale: Number = Number::new(1.0) => finite().not_in_key(),
        /// Rows of the mask; 0 where there is none. Row r has the mask's row (r / each) modulo this.
        pub mask: u64 = 0 => whole("rows of the mask, at most those of x").always_in_key(),
        /// Rows one after another that share a row of the mask.
        pub each: u64 = 1 => whole("rows that share one of the mask").not_in_key(),
    }
}

impl SoftmaxProblem {
    /// A softmax of plain rows.
    pub fn new(rows: u64, n: u64, dtype: DType) -> Self {
        SoftmaxProblem { rows, n, dtype, scale: Number::new(1.0), mask: 0, each: 1 }
    }

    /// What x is multiplied with.
    pub fn scale(&self) -> f32 {
        self.scale.get()
    }

    /// The same problem with another factor; `None` where it is not finite.
    pub fn with_scale(mut self, scale: f32) -> Option<Self> {
        self.scale = Number::new(scale);
        scale.is_finite().then_some(self)
    }

    /// The row of the mask that a row has.
    pub fn mask_row(&self, row: u64) -> u64 {
        row / self.each.max(1) % self.mask.max(1)
    }

    /// Elements of x.
    pub fn len(&self) -> usize {
        (self.rows * self.n) as usize
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Problem for SoftmaxProblem {
    type Op = Softmax;

    declared!();

    fn check(&self) -> Result<(), ProblemError> {
        if self.mask > self.rows {
            return Err(ProblemError::value("mask", self.mask, "rows of the mask, at most those of x"));
        }
        if self.each == 0 || self.each > self.rows.max(1) || (self.mask == 0 && self.each != 1) {
            return Err(ProblemError::value("each", self.each, "rows that share one of the mask; 1 without a mask"));
        }
        bounded(self.rows, self.n, "elements in x")
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        // A row's length decides how it is cut into vectors and threads: it is never rounded.
        let rows = rounded(bucket, "rows", self.rows, self.n);
        let mask = if self.mask == 0 { 0 } else { bucket.round_changing("mask", self.mask).min(rows) };
        SoftmaxProblem { rows, mask, ..*self }
    }

    fn ragged(&self) -> Option<Self> {
        // No whole number of blocks of several rows.
        let (mask, each) = (self.mask.min(5), self.each.min(3));
        (self.rows > 13).then_some(SoftmaxProblem { rows: 13, mask, each, ..*self })
    }

    fn work(&self) -> Work {
        let all = self.rows as f64 * self.n as f64;
        let mask = self.mask.min(self.rows.div_ceil(self.each.max(1))) as f64 * self.n as f64;
        Work { flops: 5.0 * all, bytes: (2.0 * all + mask) * self.dtype.bytes() as f64 }
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

/// The operation softmax(scale · x + mask).
#[derive(Clone, Copy, Debug)]
pub struct Softmax;

/// The slots of a softmax.
pub mod slot {
    /// x, rows×n.
    pub const X: usize = 0;
    /// What is added to the scaled rows, mask×n.
    pub const MASK: usize = 1;
    /// The softmax, rows×n.
    pub const Y: usize = 2;
}

/// How many slots there are.
pub(crate) const SLOTS: usize = 3;

/// Bytes that every buffer's address is a multiple of: one vector of a GPU.
pub(crate) const ALIGN: u64 = 16;

/// What x is drawn within once it is scaled, on both sides of zero.
const SPREAD: f32 = 4.0;

impl Op for Softmax {
    const NAME: &'static str = "softmax";

    type Problem = SoftmaxProblem;

    fn signature(p: &SoftmaxProblem) -> Signature {
        let rows = [p.rows, p.n];
        Signature(vec![
            Slot::input("x", p.dtype, &rows).aligned(ALIGN),
            Slot::input("mask", p.dtype, &[p.mask, p.n]).aligned(ALIGN).when(p.mask > 0),
            Slot::output("y", p.dtype, &rows).aligned(ALIGN),
        ])
    }

    fn draw(p: &SoftmaxProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let mut inputs = drawn(&Self::signature(p), rng);
        // A power of two keeps what was drawn exact; half types end where they end.
        let by = (SPREAD / p.scale().abs().clamp(1e-3, 1e3)).log2().round().exp2();
        map_floats(&mut inputs[slot::X], p.n as usize, |_, x| x * by);
        // A fifth of the mask hides; somebody is left in every row.
        let hidden = |x: f32| if x > 0.6 { f32::NEG_INFINITY } else { x };
        map_floats(&mut inputs[slot::MASK], p.n as usize, |_, x| hidden(x));
        show_first(&mut inputs[slot::MASK], p.n as usize);
        inputs
    }

    fn answer(p: &SoftmaxProblem, inputs: &[Array]) -> Vec<Answer> {
        answer::answer(p, inputs)
    }
}

/// Makes the first element of every row of a mask one that hides nothing.
fn show_first(mask: &mut Array, n: usize) {
    fn each<T>(mask: &mut [T], n: usize, zero: impl Fn() -> T) {
        mask.chunks_mut(n.max(1)).for_each(|row| row[0] = zero());
    }
    match mask {
        Array::F32(v) => each(v, n, || 0.0),
        Array::F16(v) => each(v, n, || half::f16::ZERO),
        Array::Bf16(v) => each(v, n, || half::bf16::ZERO),
        _ => {}
    }
}

known! {
    /// Softmax of rows, scaled and masked.
    Softmax {
        aliases: [],
        example: "softmax:rows=4096,n=4096,dtype=bf16",
        cpu: "
softmax:rows=512,n=4096,dtype=f32
softmax:rows=4096,n=512,dtype=bf16,scale=0.125,mask=512
",
        cuda: "
softmax:rows=4096,n=4096,dtype=bf16
softmax:rows=65536,n=512,dtype=bf16,scale=0.125,mask=512
softmax:rows=64,n=128256,dtype=f32
",
    }
}

#[cfg(test)]
#[path = "op_tests.rs"]
mod tests;
