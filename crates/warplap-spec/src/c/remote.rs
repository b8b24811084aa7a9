//! A kernel in a process of its own: arguments come in as places in shared memory; the call happens over there, and
//! what was written beside the arguments is seen here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warplap::DType;
use warplap::core::arg::Arg;
use warplap::core::device::Span;
use warplap::core::rejection::Rejection;
use warplap::core::variant::Kernel;

use super::apart::{Apart, Queue, View};
use super::cell::{Cell, Place};
use super::memory::Memory;
use crate::argument::{Argument, Role};
use crate::spec::Spec;

/// A built kernel in its process.
pub(crate) struct Remote {
    spec: Arc<Spec>,
    cell: Arc<Mutex<Cell>>,
}

impl Remote {
    /// A kernel whose library is loaded in a process.
    pub(crate) fn new(spec: &Arc<Spec>, cell: Cell) -> Self {
        Remote { spec: spec.clone(), cell: Arc::new(Mutex::new(cell)) }
    }
}

/// One launch: where its kernel is and where its arguments are.
pub(crate) struct Recorded {
    pub(super) spec: Arc<Spec>,
    pub(super) cell: Arc<Mutex<Cell>>,
    pub(super) spots: Vec<Spot>,
}

/// One argument of a launch.
pub(super) struct Spot {
    pub(super) memory: Arc<Memory>,
    pub(super) offset: u64,
    /// Which argument of the spec it is.
    pub(super) argument: usize,
}

impl Recorded {
    pub(super) fn places(&self) -> Vec<Place<'_>> {
        self.spots.iter().map(|spot| (&*spot.memory, spot.offset)).collect()
    }

    /// Whether nothing was written beside the arguments.
    pub(super) fn untouched(&self) -> Result<(), Rejection> {
        self.spots.iter().try_for_each(|spot| {
            let argument = &self.spec.arguments[spot.argument];
            trespassed(&spot.memory, &argument.name, argument.dtype())
        })
    }
}

impl Kernel<Apart> for Remote {
    fn launch(&self, args: &mut [Arg<'_, Apart>], queue: &Queue) -> Result<(), Rejection> {
        let mut spots = Vec::with_capacity(args.len());
        let numbered = self.spec.arguments.iter().enumerate().filter(|(_, a)| a.role != Role::Constant);
        for ((argument, inputs), arg) in numbered.zip(args) {
            let spot = |view: View<'_>| Spot { memory: view.memory.clone(), offset: view.offset(), argument };
            match inputs.role {
                // It was written into the door.
                Role::Scalar => inputs.check(arg.scalar()?)?,
                Role::Out | Role::InOut => spots.push(held(&arg.write()?.0, inputs).map(spot)?),
                Role::In | Role::Constant => spots.push(held(&arg.read()?, inputs).map(spot)?),
            }
        }
        let launch = Recorded { spec: self.spec.clone(), cell: self.cell.clone(), spots };
        let Some(launch) = queue.record(launch) else { return Ok(()) };
        locked(&launch.cell).call(&launch.places(), queue.patience())?;
        launch.untouched()
    }
}

/// A view that is as long as its argument.
fn held<'a>(view: &View<'a>, argument: &Argument) -> Result<View<'a>, Rejection> {
    let fits = view.len() == argument.len() && view.dtype() == argument.dtype();
    let reason = || format!("'{}' has {} elements: expected {}", argument.name, view.len(), argument.len());
    if fits { Ok(*view) } else { Err(Rejection::LaunchFailed { reason: reason() }) }
}

/// Whether somebody wrote beside an argument.
pub(super) fn trespassed(memory: &Memory, name: &str, dtype: DType) -> Result<(), Rejection> {
    let result = memory.trespass().map_err(|e| Rejection::LaunchFailed { reason: format!("shared memory: {e}") })?;
    let Some(at) = result else { return Ok(()) };
    let element = at.div_euclid(dtype.bytes() as i64);
    Err(wrong(format!("wrote outside of '{name}', near element {element}")))
}

pub(super) fn wrong(reason: String) -> Rejection {
    Rejection::WrongAnswer { error: f64::INFINITY, allowed: 0.0, reason }
}

pub(super) fn locked(cell: &Mutex<Cell>) -> MutexGuard<'_, Cell> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}
