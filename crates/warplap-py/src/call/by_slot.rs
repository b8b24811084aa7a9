//! Tensors by slot: what a call of any operation was given comes in; it is held to the problem's slots, outputs that
//! are missing are made, and the kernel of choice runs on it.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use warplap::core::catalog::Raced;
use warplap::core::slot::{Role, Slot};

use crate::call::dispatcher::OpDispatchers;
use crate::call::failure::raise;
use crate::call::torch::{Made, Torch};
use crate::tensor::argument::{self, CallArgument};
use crate::tensor::kernel_argument::LaunchDevice;
use crate::tensor::view::{Element, View};

/// The most slots an operation has.
pub(crate) const MOST: usize = 14;

/// What a call was given, one place a slot.
pub(crate) struct SlotCall<'a, 'py> {
    slots: &'a [Slot],
    torch: Option<&'static Torch>,
    own: [Option<Bound<'py, PyAny>>; MOST],
    views: [Option<View>; MOST],
    /// Whether all outputs are to be made.
    fresh: bool,
    /// Whether kernels read through indices.
    pub(crate) indexed: bool,
}

impl<'a, 'py> SlotCall<'a, 'py> {
    #[inline]
    pub(crate) fn new(slots: &'a [Slot], indexed: bool, tensors: &Bound<'py, PyTuple>) -> PyResult<Self> {
        if tensors.len() > slots.len() {
            let (answer, most) = (tensors.len(), slots.len());
            return Err(PyTypeError::new_err(format!("there are {answer} tensors, expected at most {most}")));
        }
        let mut own = [const { None }; MOST];
        for (place, tensor) in own.iter_mut().zip(tensors.iter()) {
            *place = (!tensor.is_none()).then_some(tensor);
        }
        let torch = Torch::here(tensors.py()).filter(|t| own.iter().flatten().all(|tensor| t.is_tensor(tensor)));
        let (mut views, mut fresh) = ([const { None }; MOST], true);
        for ((slot, tensor), view) in slots.iter().zip(&own).zip(&mut views) {
            match (tensor, slot.present) {
                (Some(_), false) => return Err(wrong(slot, "is given, the problem has none")),
                (None, true) if slot.role != Role::Out => return Err(wrong(slot, "is missing")),
                (None, true) if torch.is_none() => {
                    return Err(wrong(slot, "is missing: only torch's tensors are made"));
                }
                (None, _) => continue,
                (Some(tensor), true) => {
                    let answer = match torch {
                        Some(torch) => torch.view(tensor, &slot.name)?,
                        None => View::of(tensor, &slot.name)?,
                    };
                    fits(slot, &answer)?;
                    *view = Some(answer);
                    fresh &= slot.role != Role::Out;
                }
            }
        }
        Ok(SlotCall { slots, torch, own, views, fresh, indexed })
    }

    /// Memory by slot.
    #[inline]
    pub(crate) fn call_arguments(&self) -> [CallArgument<'_>; MOST] {
        std::array::from_fn(|i| match (self.slots.get(i), &self.views[i]) {
            (Some(slot), Some(view)) => CallArgument { name: &slot.name, view: Some(view), written: slot.is_written() },
            _ => CallArgument::NONE,
        })
    }

    /// Makes the outputs that were not given; gives their places.
    fn make(&mut self, torch: &Torch) -> PyResult<Vec<usize>> {
        let slots = self.slots.iter().enumerate();
        let missing: Vec<usize> =
            slots.filter(|(i, s)| s.is_written() && self.own[*i].is_none()).map(|(i, _)| i).collect();
        for i in &missing {
            let slot = &self.slots[*i];
            let like = self.own.iter().flatten().next().ok_or_else(|| wrong(slot, "is missing"))?;
            let made = empty(torch, like, slot)?;
            (self.own[*i], self.views[*i]) = (Some(made.0), Some(made.1));
        }
        Ok(missing)
    }

    #[inline]
    pub(crate) fn on<O: Raced<D>, D: LaunchDevice>(
        &mut self,
        py: Python<'py>,
        dispatchers: &OpDispatchers<D>,
        problem: &O::Problem,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let queue = dispatchers.queue(py);
        dispatchers.of::<O>().with(py, problem, &queue, |entry| {
            // What a callable returns needs no output to be made; indices are looked at first.
            let returning = entry.foreign.as_ref().filter(|f| f.gives() && self.fresh && !self.indexed);
            if let (Some(foreign), Some(_)) = (returning, self.torch) {
                return foreign.give(py, &self.own).map(Some);
            }
            let made = self.torch.map(|torch| self.make(torch)).transpose()?.unwrap_or_default();
            let memory = argument::checked(self.call_arguments())?;
            O::check(problem, &entry.kernel_arguments(&memory)?[..self.slots.len()], &dispatchers.device)
                .map_err(raise)?;
            let own = || Ok(self.own.clone());
            entry.run(py, &queue, &memory, self.torch.map(|_| &own as _))?;
            // Taken out again: the call may be made once more, with outputs of its own.
            let mut taken = |i: &usize| {
                self.views[*i] = None;
                self.own[*i].take()
            };
            let made: Vec<Bound<'py, PyAny>> = made.iter().filter_map(&mut taken).collect();
            match &made[..] {
                [] => Ok(None),
                [one] => Ok(Some(one.clone())),
                _ => PyTuple::new(py, made).map(|all| Some(all.into_any())),
            }
        })
    }
}

#[cold]
fn wrong(slot: &Slot, what: &str) -> PyErr {
    PyValueError::new_err(format!("{}: {what}", slot.name))
}

/// Checks that a tensor is what a slot takes.
#[inline]
fn fits(slot: &Slot, view: &View) -> PyResult<()> {
    if view.element != Element::Float(slot.dtype) {
        let (answer, expected) = (view.element.name(), Element::Float(slot.dtype).name());
        return Err(PyTypeError::new_err(format!("{}: holds {answer}, expected {expected}", slot.name)));
    }
    let same = |d: usize| view.shape[d] == slot.shape[d] as i64;
    if view.ndim != slot.shape.len() || !(0..view.ndim).all(same) {
        return Err(wrong(slot, &format!("has shape {:?}, expected {:?}", view.sizes(), slot.shape)));
    }
    let follows = |d: usize| view.shape[d] == 1 || view.strides[d] == slot.strides[d] as i64;
    match (0..view.ndim).all(follows) {
        true => Ok(()),
        false => Err(argument::strided(view, &slot.name, &format!("{:?}", slot.strides))),
    }
}

/// A new tensor for a slot.
#[inline]
fn empty<'py>(torch: &Torch, like: &Bound<'py, PyAny>, slot: &Slot) -> PyResult<Made<'py>> {
    let signed = |all: &[usize]| all.iter().map(|n| *n as i64).collect::<Vec<i64>>();
    let element = Element::Float(slot.dtype);
    torch.empty_typed(like, &torch.view(like, "")?, element, &signed(&slot.shape), &signed(&slot.strides))
}
