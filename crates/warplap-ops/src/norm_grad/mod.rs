//! Normalisation backward: from s, which was normalised, and the gradient dy of y = norm(s) * weight + bias come the
//! gradients of s, of weight and bias (sums over rows), and, where s = dropout(x) + residual, that of x.
//!
//! With h the norm of s, i one over what s was divided by, g = dy * weight, and mean() over a row:
//! ds = i * (g − h * mean(g * h)), less i * mean(g) where the mean was taken away, plus what comes from elsewhere.

mod answer;
#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod known;
mod problem;

pub use problem::NormGradProblem;

use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op, drawn};
use warplap_core::slot::{Signature, Slot};

use crate::host::bend;
use crate::norm::{ALIGN, Kind};

/// The operation of a norm's gradients.
#[derive(Clone, Copy, Debug)]
pub struct NormGrad;

/// The slots of a launch.
pub mod slot {
    /// What was normalised, rows×n.
    pub const S: usize = 0;
    /// The gradient of the norm, rows×n.
    pub const GRAD: usize = 1;
    /// What each column was multiplied with: n numbers.
    pub const WEIGHT: usize = 2;
    /// The gradient of s from elsewhere, rows×n.
    pub const TOTAL: usize = 3;
    /// Seed and stream of what was dropped: two i64.
    pub const SEED: usize = 4;
    /// The gradient of s, rows×n.
    pub const DS: usize = 5;
    /// The gradient of what elements were dropped of, rows×n.
    pub const DX: usize = 6;
    /// The gradient of the weight, n numbers.
    pub const DWEIGHT: usize = 7;
    /// The gradient of the bias, n numbers.
    pub const DBIAS: usize = 8;
}

/// How many slots there are.
pub(crate) const SLOTS: usize = 9;

impl Op for NormGrad {
    const NAME: &'static str = "norm_grad";

    type Problem = NormGradProblem;

    fn signature(p: &NormGradProblem) -> Signature {
        let (norm, rows, columns) = (&p.norm, [p.norm.rows, p.norm.n], [p.norm.n]);
        let input = |name: &'static str, shape: &[u64]| Slot::input(name, norm.dtype, shape).aligned(ALIGN);
        let output = |name: &'static str, shape: &[u64]| Slot::output(name, norm.dtype, shape).aligned(ALIGN);
        let drops = norm.dropout() > 0.0;
        Signature(vec![
            input("s", &rows),
            input("grad", &rows),
            input("weight", &columns).when(norm.weight),
            input("total", &rows).when(p.total),
            Slot::input("seed", DType::I64, &[2]).when(drops),
            output("ds", &rows),
            output("dx", &rows).when(drops),
            output("dweight", &columns).when(norm.weight),
            output("dbias", &columns).when(norm.bias),
        ])
    }

    fn draw(p: &NormGradProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let mut inputs = drawn(&Self::signature(p), rng);
        // Moved, so that a mean which is not taken away shows.
        let shift = if p.norm.kind == Kind::Layer { 0.5 } else { 0.0 };
        bend(&mut inputs[slot::S], p.norm.n as usize, |_, s| s + shift);
        bend(&mut inputs[slot::GRAD], p.norm.n as usize, |_, g| g + 0.25);
        inputs
    }

    fn answer(p: &NormGradProblem, inputs: &[Array]) -> Vec<Answer> {
        answer::answer(p, inputs)
    }
}
