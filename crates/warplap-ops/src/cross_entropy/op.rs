//! Cross entropy, declared: the facts of a request, the slots of a launch, and how programs name it.

use warplap_core::array::Array;
use warplap_core::bucket::Bucket;
use warplap_core::declare::{Number, declared, problem, words};
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op, drawn};
use warplap_core::problem::{Problem, ProblemError};
use warplap_core::roofline::Work;
use warplap_core::slot::{Signature, Slot};

use super::answer;
use crate::extent::{bounded, rounded};
use crate::host::map_floats;

words! {
    /// What becomes of the losses of all rows.
    #[derive(Default)]
    pub enum Reduction {
        /// Their mean over the rows that count.
        #[default]
        Mean = "mean",
        /// Their sum.
        Sum = "sum",
    }
}

/// The label that does not count where nobody says otherwise, as torch has it.
const IGNORE: i64 = -100;

problem! {
    /// The facts of a cross entropy. Rows of logits lie one after another without padding.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct CrossEntropyProblem {
        /// Rows.
        pub rows: u64 => size(),
        /// Logits of one row.
        pub n: u64 => size(),
        /// Type of the logits; losses, arithmetic and sums are in f32.
        pub dtype: DType = DType::F32 => float().shown(),
        /// Type of the labels.
        pub labels: DType = DType::I64 => one_of(&[DType::I64, DType::I32]).always_in_key(),
        /// Whether the gradient of the total is asked for, in the logits' place.
        pub grad: bool = false => flag().always_in_key(),
        /// Whether the gradient lies beside the logits, and these stay.
        pub kept: bool = false => flag(),
        /// What the total is.
        pub reduction: Reduction = Reduction::Mean => word().always_in_key(),
        /// Rows with this label do not count.
        pub ignore: i64 = IGNORE => whole("a label").not_in_key(),
        /// The share of a row that is dealt out to all labels alike.
        smoothing: Number = Number::new(0.0) => share().always_whether_in_key(|share| share.get() > 0.0),
        /// What the squared log-sum-exps are multiplied with.
        zloss: Number = Number::new(0.0) => share().always_whether_in_key(|share| share.get() > 0.0),
    }
}

impl CrossEntropyProblem {
    /// The mean of plain losses over labels of 64 bits.
    pub fn new(rows: u64, n: u64, dtype: DType) -> Self {
        let (grad, kept, reduction) = (false, false, Reduction::Mean);
        let (labels, ignore, zero) = (DType::I64, IGNORE, Number::new(0.0));
        CrossEntropyProblem { rows, n, dtype, labels, grad, kept, reduction, ignore, smoothing: zero, zloss: zero }
    }

    /// The share of a row that is dealt out to all labels alike.
    pub fn smoothing(&self) -> f32 {
        self.smoothing.get()
    }

    /// What the squared log-sum-exps are multiplied with.
    pub fn zloss(&self) -> f32 {
        self.zloss.get()
    }

    /// The same problem with another share; `None` where it is not from 0 to 1.
    pub fn with_smoothing(mut self, smoothing: f32) -> Option<Self> {
        self.smoothing = Number::new(smoothing).with_one_zero();
        (0.0..=1.0).contains(&smoothing).then_some(self)
    }

    /// The same problem with another factor; `None` where it is not from 0 to 1.
    pub fn with_zloss(mut self, zloss: f32) -> Option<Self> {
        self.zloss = Number::new(zloss).with_one_zero();
        (0.0..=1.0).contains(&zloss).then_some(self)
    }

    /// Whether the gradient takes the logits' place.
    pub fn takes_place(&self) -> bool {
        self.grad && !self.kept
    }

    /// Elements of the logits.
    pub fn len(&self) -> usize {
        (self.rows * self.n) as usize
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Problem for CrossEntropyProblem {
    type Op = CrossEntropy;

    declared!();

    fn check(&self) -> Result<(), ProblemError> {
        if self.kept && !self.grad {
            return Err(ProblemError::value("kept", true, "false: without grad=true nothing takes the logits' place"));
        }
        if self.n == 1 && self.ignore == 0 {
            return Err(ProblemError::value("ignore", 0, "a label that leaves others"));
        }
        bounded(self.rows, self.n, "logits")
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        // A row's length decides how it is cut into vectors and threads: it is never rounded.
        CrossEntropyProblem { rows: rounded(bucket, "rows", self.rows, self.n), ..*self }
    }

    fn ragged(&self) -> Option<Self> {
        // No whole number of blocks of several rows.
        (self.rows > 13).then_some(CrossEntropyProblem { rows: 13, ..*self })
    }

    fn work(&self) -> Work {
        let all = self.rows as f64 * self.n as f64;
        let passes = if self.grad { 2.0 } else { 1.0 };
        let rows = self.rows as f64 * (8.0 + self.labels.bytes() as f64);
        Work { flops: 4.0 * all * passes, bytes: passes * all * self.dtype.bytes() as f64 + rows }
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

/// The operation of cross entropy.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy;

/// The slots of a launch.
pub mod slot {
    /// The logits, rows×n; with `grad` the gradient of the total takes their place, unless they are `kept`.
    pub const LOGITS: usize = 0;
    /// A label for each row.
    pub const LABELS: usize = 1;
    /// The loss of each row, f32.
    pub const LOSS: usize = 2;
    /// The logarithm of the sum of each row's exponentials, f32.
    pub const LSE: usize = 3;
    /// The mean or the sum of the losses: one f32.
    pub const TOTAL: usize = 4;
    /// The gradient of the total, rows×n, where the logits are `kept`.
    pub const GRADIENT: usize = 5;
}

/// How many slots there are.
pub(crate) const SLOTS: usize = 6;

/// Bytes that every buffer's address is a multiple of: one vector of a GPU.
pub(crate) const ALIGN: u64 = 16;

/// What logits are drawn within, on both sides of zero.
const SPREAD: f32 = 8.0;

/// One row in so many is drawn with the label that does not count.
const IGNORED: u64 = 7;

impl Op for CrossEntropy {
    const NAME: &'static str = "cross_entropy";

    type Problem = CrossEntropyProblem;

    fn signature(p: &CrossEntropyProblem) -> Signature {
        let logits = match p.takes_place() {
            true => Slot::in_out("logits", p.dtype, &[p.rows, p.n]),
            false => Slot::input("logits", p.dtype, &[p.rows, p.n]),
        };
        let output = |name: &'static str, len: u64| Slot::output(name, DType::F32, &[len]);
        Signature(vec![
            logits.aligned(ALIGN),
            Slot::input("labels", p.labels, &[p.rows]),
            output("loss", p.rows),
            output("lse", p.rows),
            output("total", 1),
            Slot::output("gradient", p.dtype, &[p.rows, p.n]).aligned(ALIGN).when(p.kept),
        ])
    }

    fn draw(p: &CrossEntropyProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let mut inputs = drawn(&Self::signature(p), rng);
        map_floats(&mut inputs[slot::LOGITS], p.n as usize, |_, x| x * SPREAD);
        // The first row counts, so that somebody does.
        let label = |row: u64| match rng.u64(0..p.n) as i64 {
            _ if row > 0 && rng.u64(0..IGNORED) == 0 => p.ignore,
            label if row == 0 && label == p.ignore => (label + 1) % p.n as i64,
            label => label,
        };
        let labels: Vec<i64> = (0..p.rows).map(label).collect();
        inputs[slot::LABELS] = match p.labels {
            DType::I32 => Array::I32(labels.iter().map(|l| *l as i32).collect()),
            _ => Array::I64(labels),
        };
        inputs
    }

    fn answer(p: &CrossEntropyProblem, inputs: &[Array]) -> Vec<Answer> {
        answer::answer(p, inputs)
    }
}

known! {
    /// Cross entropy of rows of logits, with its gradient.
    CrossEntropy {
        aliases: ["crossentropy"],
        guarded: true,
        example: "cross_entropy:rows=4096,n=128256,dtype=bf16,grad=true",
        cpu: "
cross_entropy:rows=64,n=32000,dtype=f32
cross_entropy:rows=64,n=32000,dtype=bf16,grad=true
",
        cuda: "
cross_entropy:rows=4096,n=128256,dtype=bf16
cross_entropy:rows=4096,n=128256,dtype=bf16,grad=true
cross_entropy:rows=8192,n=32000,dtype=bf16,grad=true
",
    }
}

#[cfg(test)]
#[path = "op_tests.rs"]
mod tests;
