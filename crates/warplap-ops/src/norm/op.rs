//! Normalisation, declared: the facts of a request, the slots of a launch, and how programs name it.

use warplap_core::array::Array;
use warplap_core::bucket::Bucket;
use warplap_core::declare::{Number, declared, problem, words};
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op, drawn};
use warplap_core::problem::{Problem, ProblemError};
use warplap_core::roofline::Work;
use warplap_core::slot::{Signature, Slot};

use super::{Quant, answer};
use crate::extent::{bounded, rounded};
use crate::host::{map_floats, small_rows};

words! {
    /// What a row is divided by.
    #[derive(Default)]
    pub enum Kind {
        /// The root of its mean square (RMSNorm).
        #[default]
        Rms = "rms",
        /// Its standard deviation, after its mean was taken away (LayerNorm).
        Layer = "layer",
    }
}

/// The usual number under the root.
const EPS: Number = Number::new(1e-5);

/// One over the root of the least number is far from the end of f32.
fn may_be_under_the_root(eps: &Number) -> bool {
    (1e-20..=1.0).contains(&eps.get())
}

problem! {
    /// The facts of y = norm(s) * weight + bias with s = dropout(x + before) + residual, row by row. Rows lie one after
    /// another without padding.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct NormProblem {
        /// Rows.
        pub rows: u64 => size(),
        /// Elements of one row.
        pub n: u64 => size(),
        /// Type of all buffers but codes and their factors; arithmetic and sums are in f32.
        pub dtype: DType = DType::F32 => float().shown(),
        /// What a row is divided by.
        pub kind: Kind = Kind::Rms => word().shown(),
        /// Whether a residual is added first, and the sum written beside the norm.
        pub residual: bool = false => flag().always_in_key(),
        /// Whether each column has a weight.
        pub weight: bool = true => flag().always_in_key(),
        /// Whether each column has a bias.
        pub bias: bool = false => flag().always_in_key(),
        /// Whether each column has a number that is added to x first.
        pub before: bool = false => flag(),
        /// The share of elements that are dropped before the residual is added.
        dropout: Number = Number::new(0.0) => share_below_one().whether_in_key(|share| share.get() > 0.0),
        /// Whether what is normalised is written beside the norm, where anything is done to x before.
        pub sum: bool = true => flag(),
        /// What y is written as.
        pub quant: Quant = Quant::None => word(),
        /// What is added under the root.
        eps: Number = EPS => number("a number from 1e-20 to 1", may_be_under_the_root).not_in_key(),
    }
}

impl NormProblem {
    /// RMSNorm with a weight, and the usual number under the root.
    pub fn new(rows: u64, n: u64, dtype: DType) -> Self {
        let (kind, residual, weight, bias, before, sum) = (Kind::Rms, false, true, false, false, true);
        let (quant, eps, dropout) = (Quant::None, EPS, Number::new(0.0));
        NormProblem { rows, n, dtype, kind, residual, weight, bias, before, dropout, sum, quant, eps }
    }

    /// The share of elements that are dropped.
    pub fn dropout(&self) -> f32 {
        self.dropout.get()
    }

    /// The same problem with another share; `None` where it is not from 0 to below 1.
    pub fn with_dropout(mut self, share: f32) -> Option<Self> {
        self.dropout = Number::new(share).with_one_zero();
        (0.0..1.0).contains(&share).then_some(self)
    }

    /// Whether anything is done to x before the norm.
    pub fn has_front(&self) -> bool {
        self.residual || self.before || self.dropout() > 0.0
    }

    /// Whether the sum is written beside the norm.
    pub fn has_sum(&self) -> bool {
        self.sum && self.has_front()
    }

    /// What is added under the root.
    pub fn eps(&self) -> f32 {
        self.eps.get()
    }

    /// The same problem with another number under the root; `None` where it is not from 1e-20 to 1.
    pub fn with_eps(mut self, eps: f32) -> Option<Self> {
        self.eps = Number::new(eps);
        may_be_under_the_root(&self.eps).then_some(self)
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

impl Problem for NormProblem {
    type Op = Norm;

    declared!();

    fn check(&self) -> Result<(), ProblemError> {
        bounded(self.rows, self.n, "elements in x")
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        // A row's length decides how it is cut into vectors and threads: it is never rounded.
        NormProblem { rows: rounded(bucket, "rows", self.rows, self.n), ..*self }
    }

    fn ragged(&self) -> Option<Self> {
        // No whole number of blocks of several rows.
        (self.rows > 13).then_some(NormProblem { rows: 13, ..*self })
    }

    fn work(&self) -> Work {
        let all = self.rows as f64 * self.n as f64;
        // x; the residual and the sum; one weight and one bias a column; y, or codes and a factor a row.
        let passes = 1.0 + f64::from(u8::from(self.residual) + u8::from(self.has_sum()));
        let columns = [self.weight, self.bias, self.before].map(u8::from).iter().sum::<u8>();
        let columns = f64::from(columns) * self.n as f64;
        let y = match self.quant.dtype() {
            Some(codes) => all * codes.bytes() as f64 + 4.0 * self.rows as f64,
            None => all * self.dtype.bytes() as f64,
        };
        Work { flops: 4.0 * all, bytes: (passes * all + columns) * self.dtype.bytes() as f64 + y }
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

/// The operation norm(dropout(x + before) + residual) * weight + bias.
#[derive(Clone, Copy, Debug)]
pub struct Norm;

/// The slots of a normalisation.
pub mod slot {
    /// x, rows×n.
    pub const X: usize = 0;
    /// What is added to x, rows×n.
    pub const RESIDUAL: usize = 1;
    /// What each column is multiplied with: n numbers.
    pub const WEIGHT: usize = 2;
    /// What is added to each column: n numbers.
    pub const BIAS: usize = 3;
    /// The norm, rows×n, or its codes.
    pub const Y: usize = 4;
    /// dropout(x + before) + residual, rows×n, where the problem has any of them and keeps it.
    pub const SUM: usize = 5;
    /// What is added to each column of x first: n numbers.
    pub const BEFORE: usize = 6;
    /// Seed and stream of what is dropped: two i64.
    pub const SEED: usize = 7;
    /// What a row's codes are multiplied with to be its numbers: one f32 a row, where the problem asks for codes.
    pub const SCALE: usize = 8;
}

/// How many slots there are.
pub const SLOTS: usize = 9;

/// Bytes that every buffer's address is a multiple of: one vector of a GPU.
pub(crate) const ALIGN: u64 = 16;

/// What a layer's rows are moved by when they are drawn, so that a mean which is not taken away shows.
const SHIFT: f32 = 0.5;

impl Op for Norm {
    const NAME: &'static str = "norm";

    type Problem = NormProblem;

    fn signature(p: &NormProblem) -> Signature {
        let (rows, columns) = ([p.rows, p.n], [p.n]);
        let input = |name: &'static str, shape: &[u64]| Slot::input(name, p.dtype, shape).aligned(ALIGN);
        let output = |name: &'static str, dtype: DType| Slot::output(name, dtype, &rows).aligned(ALIGN);
        Signature(vec![
            input("x", &rows),
            input("residual", &rows).when(p.residual),
            input("weight", &columns).when(p.weight),
            input("bias", &columns).when(p.bias),
            output("y", p.quant.dtype().unwrap_or(p.dtype)),
            output("sum", p.dtype).when(p.has_sum()),
            input("before", &columns).when(p.before),
            Slot::input("seed", DType::I64, &[2]).when(p.dropout() > 0.0),
            Slot::output("scale", DType::F32, &[p.rows]).when(p.quant != Quant::None),
        ])
    }

    fn draw(p: &NormProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let mut inputs = drawn(&Self::signature(p), rng);
        let (scales, small) = small_rows(p.rows, p.eps(), rng);
        let shift = if p.kind == Kind::Layer { SHIFT } else { 0.0 };
        map_floats(&mut inputs[slot::X], p.n as usize, |row, x| (x + shift) * scales[row]);
        map_floats(&mut inputs[slot::RESIDUAL], p.n as usize, |row, x| x * scales[row]);
        // As small as the small rows: these stay so.
        map_floats(&mut inputs[slot::BEFORE], p.n as usize, |_, x| x * small);
        inputs
    }

    fn answer(p: &NormProblem, inputs: &[Array]) -> Vec<Answer> {
        answer::answer(p, inputs)
    }
}

known! {
    /// Layer and RMS norms of rows, with what stands before and behind them.
    Norm {
        aliases: ["rmsnorm", "layernorm"],
        // A seed points nowhere.
        guarded: true,
        example: "norm:rows=4096,n=4096,dtype=bf16,kind=rms,residual=true",
        cpu: "
norm:rows=1,n=4096,dtype=f32,kind=rms,residual=true
norm:rows=512,n=4096,dtype=bf16,kind=rms,residual=true
norm:rows=512,n=1024,dtype=f32,kind=layer,bias=true
norm:rows=512,n=4096,dtype=bf16,kind=rms,residual=true,quant=i8
",
        cuda: "
norm:rows=1,n=4096,dtype=bf16,kind=rms,residual=true
norm:rows=16,n=4096,dtype=bf16,kind=rms,residual=true
norm:rows=256,n=4096,dtype=bf16,kind=rms,residual=true
norm:rows=8192,n=4096,dtype=bf16,kind=rms,residual=true
norm:rows=8192,n=4096,dtype=bf16,kind=layer,bias=true
norm:rows=8192,n=4096,dtype=bf16,kind=layer,residual=true,bias=true,before=true,dropout=0.1
norm:rows=32768,n=768,dtype=f16,kind=layer,bias=true
norm:rows=4096,n=4096,dtype=f32,kind=rms
norm:rows=16,n=4096,dtype=bf16,kind=rms,residual=true,quant=f8e4m3
norm:rows=8192,n=4096,dtype=bf16,kind=rms,residual=true,quant=f8e4m3
",
    }
}

#[cfg(test)]
#[path = "op_tests.rs"]
mod tests;
