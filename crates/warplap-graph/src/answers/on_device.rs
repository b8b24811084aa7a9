//! Right answers of a graph where its inputs are: views on a device come in, the answers in its memory go out. The
//! device's own oracles answer node by node; what lies between them are doubles that never come home.
//!
//! Errors are carried through all rows here: a device that answers does so in less time than rows are picked in.

use std::sync::Arc;

use warplap_core::device::Device;
use warplap_core::error::Error;
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_core::shift::Shift;
use warplap_core::slot::Slot;
use warplap_core::tolerance::Tolerance;

use crate::answer::{Answers, Place, answered};
use crate::node::Call;
use crate::plan::Plan;
use crate::problem::{GraphProblem, Graphs};
use crate::task::{Ground, Task, Tuners};

/// Answers on a device whose oracles know every node of a graph.
pub(crate) struct Right<D: Device> {
    tuners: Arc<Tuners<D>>,
}

impl<D: Ground> Right<D> {
    /// Who answers a graph on a device; `None` where a node has no oracle there.
    pub(crate) fn of(plan: &Plan, tuners: &Arc<Tuners<D>>) -> Option<Self> {
        let answers = |call: &Call| D::part(&call.task, tuners).has_oracle();
        plan.alone.iter().all(answers).then(|| Right { tuners: tuners.clone() })
    }
}

impl<D: Ground> Oracle<Graphs, D> for Right<D> {
    fn answer(&self, problem: &GraphProblem, inputs: &Inputs<'_, D>, device: &D) -> Result<Vec<FarAnswer<D>>, Error> {
        let ask = |task: &Task, inputs: &Inputs<'_, D>| D::part(task, &self.tuners).right(inputs, device);
        answers(&problem.plan, inputs, device, ask)
    }
}

/// The right answers to inputs by the graph's slots, with somebody who answers a task.
pub(crate) fn answers<'a, D: Device>(
    plan: &Plan,
    inputs: &'a Inputs<'_, D>,
    device: &'a D,
    ask: impl Fn(&Task, &Inputs<'_, D>) -> Result<Vec<FarAnswer<D>>, Error>,
) -> Result<Vec<FarAnswer<D>>, Error> {
    let mut all: Vec<Option<Numbers<'a, D>>> = plan.values.iter().map(|_| None).collect();
    for ((name, value), view) in plan.inputs.iter().zip(inputs) {
        let missing = || Error::Device(format!("no answer in double precision: the input '{name}' is not there"));
        let (view, own) = (D::reread(view.as_ref().ok_or_else(missing)?), &plan.values[*value]);
        // Widened once for all that follows; whole numbers are what they are.
        all[*value] = Some(match own.dtype.is_whole() {
            true => Numbers::Borrowed(view),
            false => Numbers::Own(device.widen(view)?, own.len),
        });
    }
    let answers = answered(&There { device, ask }, plan, &mut all)?;
    let far = |(numbers, tolerance): (Numbers<'_, D>, Tolerance)| match numbers {
        Numbers::Own(values, _) => Ok(FarAnswer { values, tolerance }),
        Numbers::Borrowed(_) => Err(whole()),
    };
    answers.into_iter().map(far).collect()
}

/// The numbers of one value.
enum Numbers<'a, D: Device> {
    /// Whole numbers of the caller's.
    Borrowed(D::View<'a>),
    /// So many doubles.
    Own(D::Buffer, usize),
}

/// A device, and who answers a task there.
struct There<'a, D: Device, F> {
    device: &'a D,
    ask: F,
}

impl<D: Device, F> There<'_, D, F> {
    fn view<'n>(&self, numbers: &'n Numbers<'_, D>) -> D::View<'n> {
        match numbers {
            Numbers::Borrowed(view) => D::reread(view),
            Numbers::Own(buffer, len) => self.device.view(buffer, 0..*len),
        }
    }
}

impl<'a, D: Device, F> Place for There<'a, D, F>
where
    F: Fn(&Task, &Inputs<'_, D>) -> Result<Vec<FarAnswer<D>>, Error>,
{
    type Numbers = Numbers<'a, D>;
    type Trouble = Error;

    fn answer(&self, call: &Call, all: &mut [Option<Numbers<'a, D>>]) -> Result<Answers<Numbers<'a, D>>, Error> {
        let signature = call.task.signature();
        let read = |(slot, value): (&Slot, &Option<usize>)| value.filter(|_| slot.is_read());
        let read = signature.slots().iter().zip(&call.slots).map(read);
        let views: Vec<_> = read.map(|value| Some(self.view(all[value?].as_ref()?))).collect();
        let answers = (self.ask)(&call.task, &views)?;
        let lens = signature.written().map(Slot::len);
        Ok(answers.into_iter().zip(lens).map(|(far, len)| (Numbers::Own(far.values, len), far.tolerance)).collect())
    }

    fn copied(&self, numbers: &Numbers<'a, D>) -> Result<Numbers<'a, D>, Error> {
        match numbers {
            Numbers::Own(_, len) => Ok(Numbers::Own(self.device.widen(self.view(numbers))?, *len)),
            Numbers::Borrowed(_) => Err(whole()),
        }
    }

    fn shift(
        &self,
        numbers: &mut Numbers<'a, D>,
        shift: Shift,
        value: usize,
        tolerance: Tolerance,
    ) -> Result<(), Error> {
        match numbers {
            Numbers::Own(buffer, _) => self.device.shift(buffer, shift, shift.stream(value as u64), tolerance),
            Numbers::Borrowed(_) => Err(whole()),
        }
    }

    fn distance(&self, a: &Numbers<'a, D>, b: &Numbers<'a, D>) -> Result<f64, Error> {
        match (a, b) {
            (Numbers::Own(a, _), Numbers::Own(b, _)) => self.device.distance(a, b),
            _ => Err(whole()),
        }
    }
}

fn whole() -> Error {
    Error::Device("no answer in double precision: whole numbers are only read".into())
}
