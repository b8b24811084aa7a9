//! The typed slots of a launch, and the arithmetic that is the same for all variants: a row's loss, the factors of its
//! gradient, the total.

use warplap_core::arg::Arg;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_cpu::{Cpu, Typed};

use crate::cross_entropy::{CrossEntropyProblem, Reduction, slot};
use crate::typed;

/// The slots. Several threads write, each its own rows: logits, losses and log-sum-exps are addresses.
pub(super) struct Call<'a, T> {
    pub(super) problem: CrossEntropyProblem,
    /// What is read.
    pub(super) logits: *const T,
    /// Where the gradient goes; null where there is none.
    pub(super) gradient: *mut T,
    labels: Labels<'a>,
    loss: *mut f32,
    lse: *mut f32,
    total: &'a mut f32,
    /// What the total counts a row with.
    pub(super) share: f32,
}

enum Labels<'a> {
    Long(&'a [i64]),
    Short(&'a [i32]),
}

/// What the label of a row says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Label {
    /// The row does not count.
    Ignored,
    /// The label is this column.
    Column(usize),
    /// The label is no column.
    Beyond,
}

// SAFETY: labels are only read; each thread reads and writes its own rows behind the addresses; nobody but the thread
// that made the call writes the total.
unsafe impl<T: Send + Sync> Sync for Call<'_, T> {}

impl<'a, T: Typed> Call<'a, T> {
    /// The slots of arguments. The catalog hands out kernels that refuse other arguments than the signature's: there
    /// are as many elements as the problem says.
    pub(super) fn of(p: &CrossEntropyProblem, args: &mut [Arg<'a, Cpu>]) -> Result<Self, Rejection> {
        let (logits, gradient) = match p.takes_place() {
            true => {
                let both = typed::write::<T>(args[slot::LOGITS].write()?)?.as_mut_ptr();
                (both.cast_const(), both)
            }
            false => {
                let gradient = match p.kept {
                    true => typed::write::<T>(args[slot::GRADIENT].write()?)?.as_mut_ptr(),
                    false => std::ptr::null_mut(),
                };
                (typed::read::<T>(args[slot::LOGITS].read()?)?.as_ptr(), gradient)
            }
        };
        let labels = match p.labels {
            DType::I32 => Labels::Short(typed::read::<i32>(args[slot::LABELS].read()?)?),
            _ => Labels::Long(typed::read::<i64>(args[slot::LABELS].read()?)?),
        };
        let loss = typed::write::<f32>(args[slot::LOSS].write()?)?.as_mut_ptr();
        let lse = typed::write::<f32>(args[slot::LSE].write()?)?.as_mut_ptr();
        let total = &mut typed::write::<f32>(args[slot::TOTAL].write()?)?[0];
        let mut call = Call { problem: *p, logits, gradient, labels, loss, lse, total, share: 1.0 };
        if p.reduction == Reduction::Mean {
            let counted = (0..p.rows as usize).filter(|row| call.label(*row) != Label::Ignored).count();
            call.share = 1.0 / counted as f32;
        }
        Ok(call)
    }
}

impl<T> Call<'_, T> {
    /// What the label of a row says.
    pub(super) fn label(&self, row: usize) -> Label {
        let label = match self.labels {
            Labels::Long(labels) => labels[row],
            Labels::Short(labels) => i64::from(labels[row]),
        };
        match usize::try_from(label) {
            _ if label == self.problem.ignore => Label::Ignored,
            Ok(column) if column < self.problem.n as usize => Label::Column(column),
            _ => Label::Beyond,
        }
    }

    /// Writes the loss of a row from its log-sum-exp, the logit of its label and the sum of its logits.
    ///
    /// # Safety
    /// The problem has the row, and no other thread writes it.
    pub(super) unsafe fn put_loss(&self, row: usize, lse: f32, picked: f32, sum: f32) {
        let (p, smoothing) = (&self.problem, self.problem.smoothing());
        let loss = match self.label(row) {
            Label::Ignored => 0.0,
            Label::Beyond => f32::NAN,
            Label::Column(_) => {
                let mean = if smoothing > 0.0 { smoothing * (sum / p.n as f32) } else { 0.0 };
                lse - (1.0 - smoothing) * picked - mean + p.zloss() * lse * lse
            }
        };
        // SAFETY: the caller's word; both slots hold a number for each row.
        unsafe {
            *self.loss.add(row) = loss;
            *self.lse.add(row) = lse;
        }
    }

    /// The factors of a row's gradient: of the exponentials of x - lse, what is taken away everywhere, and at the
    /// label.
    pub(super) fn factors(&self, lse: f32) -> [f32; 3] {
        let (p, smoothing) = (&self.problem, self.problem.smoothing());
        let grown = 1.0 + 2.0 * p.zloss() * lse;
        [self.share * grown, self.share * smoothing / p.n as f32, self.share * (1.0 - smoothing)]
    }

    /// Writes the total, once all losses are there.
    pub(super) fn finish(self) {
        // SAFETY: the slot holds a number for each row, all of them written, and the other threads are done.
        let losses = unsafe { std::slice::from_raw_parts(self.loss, self.problem.rows as usize) };
        // In short chains: the error of a sum grows with their length.
        let sum: f32 = losses.chunks(128).map(|chain| chain.iter().sum::<f32>()).sum();
        *self.total = sum * self.share;
    }
}
