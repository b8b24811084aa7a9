//! Activations joined with another tensor, declared: the facts of a request, the slots of a launch, and how programs
//! name it.

use warplap_core::array::Array;
use warplap_core::bucket::Bucket;
use warplap_core::declare::{declared, problem};
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op, drawn};
use warplap_core::problem::{Problem, ProblemError};
use warplap_core::roofline::Work;
use warplap_core::slot::{Signature, Slot};

use super::answer;
use crate::extent::{apart, rounded};
use crate::gemm::{Activation, Join};
use crate::host::map_floats;

problem! {
    /// The facts of y = act(a), joined with b, rows×n. Rows of y lie one after another without padding.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct GatedProblem {
        /// Rows.
        pub rows: u64 => size(),
        /// Elements of a row of y.
        pub n: u64 => size(),
        /// Type of all buffers; arithmetic is in f32.
        pub dtype: DType = DType::F32 => float().shown(),
        /// What is done to a.
        pub act: Activation = Activation::Silu => word().shown(),
        /// How b is taken in then.
        pub join: Join = Join::Mul => word(),
        /// Elements from a row of a to the next.
        pub lda: u64 = n => whole("a number of elements"),
        /// Elements from a row of b to the next; n where there is none.
        pub ldb: u64 = n => whole("a number of elements"),
    }
}

impl GatedProblem {
    /// Elements of y.
    pub fn len(&self) -> usize {
        (self.rows * self.n) as usize
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Problem for GatedProblem {
    type Op = Gated;

    declared!();

    fn check(&self) -> Result<(), ProblemError> {
        apart("lda", self.lda, self.n, self.rows)?;
        apart("ldb", self.ldb, self.n, self.rows)?;
        match self.join == Join::None && self.ldb != self.n {
            true => Err(ProblemError::value("ldb", self.ldb, "left out with join=none: there is no b")),
            false => Ok(()),
        }
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        // A row's length decides how it is cut into vectors: it is never rounded.
        GatedProblem { rows: rounded(bucket, "rows", self.rows, self.lda.max(self.ldb)), ..*self }
    }

    fn ragged(&self) -> Option<Self> {
        // No whole number of blocks.
        (self.rows > 13).then_some(GatedProblem { rows: 13, ..*self })
    }

    fn work(&self) -> Work {
        let all = self.len() as f64;
        let tensors = if self.join == Join::None { 2.0 } else { 3.0 };
        Work { flops: 8.0 * all, bytes: tensors * all * self.dtype.bytes() as f64 }
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

/// The operation act(a), joined with b.
#[derive(Clone, Copy, Debug)]
pub struct Gated;

/// The slots of a launch.
pub mod slot {
    /// What is activated, rows×n.
    pub const A: usize = 0;
    /// What that is joined with, rows×n; absent where it is joined with nothing.
    pub const B: usize = 1;
    /// The result, rows×n.
    pub const Y: usize = 2;
}

/// How many slots there are.
pub(crate) const SLOTS: usize = 3;

/// Bytes of one vector of a GPU.
const VECTOR: u64 = 16;

/// What a is stretched by when it is drawn, so that activations bend where they bend.
const STRETCH: f32 = 6.0;

/// Where one in sixteen is drawn to instead, in equal parts: to where exponentials, cubes of numbers and what is left
/// of a reciprocal leave f32. What a type cannot hold is its largest number then.
const FAR: [f32; 4] = [30.0, 1e4, 1e25, f32::INFINITY];

/// The largest number that is drawn of a type: of f32 a half of the largest, which may be off by a rounding and still
/// is a number.
const fn largest(dtype: DType) -> f32 {
    match dtype {
        DType::F16 => 65504.0,
        DType::Bf16 => 3.389_531_4e38,
        _ => 1.701_411_8e38,
    }
}

/// What a number in [-1, 1] is drawn to.
fn spread(a: f32, largest: f32) -> f32 {
    let beyond = 64.0 * (a.abs() - 0.9375);
    if beyond < 0.0 { a * STRETCH } else { FAR[(beyond as usize).min(3)].min(largest).copysign(a) }
}

/// The bytes that lines of so many elements lie on: those of a vector, where one divides a line.
pub(crate) fn align(elements: u64, dtype: DType) -> u64 {
    let bytes = elements.max(1) * dtype.bytes() as u64;
    VECTOR.min(1 << bytes.trailing_zeros())
}

impl Op for Gated {
    const NAME: &'static str = "gated";

    type Problem = GatedProblem;

    fn signature(p: &GatedProblem) -> Signature {
        let shape = [p.rows, p.n];
        // The second half of a tensor begins where the first ends.
        let own = align(p.n, p.dtype);
        let input = |name: &'static str, ld: u64| Slot::input(name, p.dtype, &shape).strided(&[ld, 1]).aligned(own);
        Signature(vec![
            input("a", p.lda),
            input("b", p.ldb).when(p.join != Join::None),
            Slot::output("y", p.dtype, &shape).aligned(own),
        ])
    }

    fn draw(p: &GatedProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let mut inputs = drawn(&Self::signature(p), rng);
        let largest = largest(p.dtype);
        map_floats(&mut inputs[slot::A], p.lda as usize, |_, a| spread(a, largest));
        inputs
    }

    fn answer(p: &GatedProblem, inputs: &[Array]) -> Vec<Answer> {
        answer::answer(p, inputs)
    }
}

known! {
    /// An activation, joined with another tensor or alone.
    Gated {
        aliases: ["swiglu"],
        example: "gated:rows=4096,n=14336,dtype=bf16,act=silu",
        cpu: "
gated:rows=1,n=14336,dtype=bf16,act=silu
gated:rows=256,n=11008,dtype=f32,act=silu,lda=22016,ldb=22016
gated:rows=512,n=3072,dtype=f32,act=gelu,join=none
",
        cuda: "
gated:rows=16,n=14336,dtype=bf16,act=silu,lda=28672,ldb=28672
gated:rows=4096,n=14336,dtype=bf16,act=silu,lda=28672,ldb=28672
gated:rows=4096,n=14336,dtype=bf16,act=silu
gated:rows=4096,n=10240,dtype=f16,act=gelu
gated:rows=4096,n=4096,dtype=bf16,act=none,join=add
gated:rows=4096,n=16384,dtype=bf16,act=gelu_tanh,join=none
",
    }
}

#[cfg(test)]
#[path = "op_tests.rs"]
mod tests;
