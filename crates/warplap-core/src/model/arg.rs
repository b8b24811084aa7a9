//! Args: the borrowed buffers and numbers of one launch, one for each slot of the signature.

use crate::device::Device;
use crate::rejection::Rejection;

/// A number given by value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScalarArg {
    /// A whole number: a count, a seed.
    Int(i64),
    /// A real number.
    Real(f64),
}

impl ScalarArg {
    /// As a real number.
    pub fn real(self) -> f64 {
        match self {
            ScalarArg::Int(v) => v as f64,
            ScalarArg::Real(v) => v,
        }
    }

    /// As a whole number; a real one is cut.
    pub fn int(self) -> i64 {
        match self {
            ScalarArg::Int(v) => v,
            ScalarArg::Real(v) => v as i64,
        }
    }
}

/// What a launch is given for one slot. A kernel takes `&mut [Arg<'_, D>]`, in the signature's order.
#[derive(Default)]
pub enum Arg<'a, D: Device> {
    /// Nothing: the problem does not have the slot, or it was taken.
    #[default]
    Absent,
    /// Memory it reads.
    Read(D::View<'a>),
    /// Memory it writes.
    Write(D::ViewMut<'a>),
    /// A number.
    Scalar(ScalarArg),
}

impl<'a, D: Device> Arg<'a, D> {
    /// What is read, or nothing where the problem does not have it.
    #[inline]
    pub fn view(&self) -> Option<D::View<'a>> {
        if let Arg::Read(view) = self { Some(*view) } else { None }
    }

    /// What is read.
    #[inline]
    pub fn read(&self) -> Result<D::View<'a>, Rejection> {
        self.view().ok_or_else(|| refused("an argument that is read is missing"))
    }

    /// Takes what is written out of its place.
    #[inline]
    pub fn write(&mut self) -> Result<D::ViewMut<'a>, Rejection> {
        match std::mem::take(self) {
            Arg::Write(view) => Ok(view),
            _ => Err(refused("an argument that is written is missing")),
        }
    }

    /// The number.
    #[inline]
    pub fn scalar(&self) -> Result<ScalarArg, Rejection> {
        if let Arg::Scalar(number) = self { Ok(*number) } else { Err(refused("a number is missing")) }
    }

    /// Memory that is read, or nothing.
    pub fn optional(view: Option<D::View<'a>>) -> Self {
        view.map_or(Arg::Absent, Arg::Read)
    }
}

#[cold]
fn refused(reason: &str) -> Rejection {
    Rejection::LaunchFailed { reason: reason.into() }
}
