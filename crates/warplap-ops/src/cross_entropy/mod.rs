//! Cross entropy of rows of logits x with labels y: a row's loss is `lse − (1 − s) · x[y] − s · mean(x) + z · lse²`,
//! with lse the logarithm of the sum of its exponentials, s the smoothing and z the z-loss. The total is the mean over the
//! rows that count, or their sum, and its gradient may take the logits' place.
//!
//! A row whose label is `ignore` has loss and gradient zero and does not count. A label that is no column makes the loss
//! (and the total) not a number: nothing is read there.

mod answer;
#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod known;
mod problem;

pub use problem::{CrossEntropyProblem, Reduction};

use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op, drawn};
use warplap_core::slot::{Signature, Slot};

use crate::host::bend;

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
        bend(&mut inputs[slot::LOGITS], p.n as usize, |_, x| x * SPREAD);
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
