//! The signature of an operation: a problem comes in; the slots its kernels take go out, each with its name, role,
//! type, shape and strides.
//!
//! Everything that handles buffers (drawing, uploading, poisoning, guard bands, comparing, foreign tensors) works over
//! slots, so several outputs, outputs in place and optional inputs are ordinary. A slot keeps its place in the list
//! whether a problem has it or not: kernels name slots by number.

use std::borrow::Cow;
use std::ops::Range;

use crate::device::{Device, Span};
use crate::error::Error;
use crate::model::arg::Arg;
use crate::model::dtype::DType;

/// What a kernel does with a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It reads it.
    In,
    /// It writes every element of it.
    Out,
    /// It reads and writes it in place.
    InOut,
    /// A number given by value: a factor, a seed.
    Scalar,
}

/// One buffer or number that kernels of an operation take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its name in messages.
    pub name: Cow<'static, str>,
    /// What a kernel does with it.
    pub role: Role,
    /// Type of its elements.
    pub dtype: DType,
    /// Sizes by dimension.
    pub shape: Vec<usize>,
    /// Elements from one index of a dimension to the next.
    pub strides: Vec<usize>,
    /// The bytes its address is a multiple of; where a launch is a call nobody insists on more than the element's own.
    pub align: usize,
    /// Whether the problem has it.
    pub present: bool,
    /// Whether its elements mean something by their order, and must keep it: it was read from a file, say.
    pub steady: bool,
}

impl Slot {
    fn new(name: impl Into<Cow<'static, str>>, role: Role, dtype: DType, shape: &[u64]) -> Self {
        let shape: Vec<usize> = shape.iter().map(|s| *s as usize).collect();
        let mut strides = vec![1usize; shape.len()];
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i].saturating_mul(shape[i]);
        }
        Slot { name: name.into(), role, dtype, shape, strides, align: dtype.bytes(), present: true, steady: false }
    }

    /// A slot that kernels read, row-major without padding.
    pub fn input(name: impl Into<Cow<'static, str>>, dtype: DType, shape: &[u64]) -> Self {
        Slot::new(name, Role::In, dtype, shape)
    }

    /// A slot that kernels write, row-major without padding.
    pub fn output(name: impl Into<Cow<'static, str>>, dtype: DType, shape: &[u64]) -> Self {
        Slot::new(name, Role::Out, dtype, shape)
    }

    /// A slot that kernels change in place, row-major without padding.
    pub fn in_out(name: impl Into<Cow<'static, str>>, dtype: DType, shape: &[u64]) -> Self {
        Slot::new(name, Role::InOut, dtype, shape)
    }

    /// A number given by value.
    pub fn scalar(name: impl Into<Cow<'static, str>>, dtype: DType) -> Self {
        Slot::new(name, Role::Scalar, dtype, &[])
    }

    /// This slot with other strides, in elements.
    pub fn strided(mut self, strides: &[u64]) -> Self {
        self.strides = strides.iter().map(|s| *s as usize).collect();
        self
    }

    /// This slot at addresses that are multiples of so many bytes.
    pub fn aligned(mut self, bytes: u64) -> Self {
        self.align = bytes as usize;
        self
    }

    /// This slot, where the problem has it.
    pub fn when(mut self, present: bool) -> Self {
        self.present = present;
        self
    }

    /// This slot, whose elements keep their order between timed launches.
    pub fn steady(mut self) -> Self {
        self.steady = true;
        self
    }

    /// Elements from its first to its last, padding between them included; 0 where the problem does not have it.
    pub fn len(&self) -> usize {
        if !self.present || self.shape.contains(&0) {
            return 0;
        }
        let last = self.shape.iter().zip(&self.strides).map(|(n, step)| (n - 1).saturating_mul(*step));
        last.fold(1, usize::saturating_add)
    }

    /// Whether it holds no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The runs of elements between its first and last that are not its own.
    pub fn padding(&self) -> Vec<Range<usize>> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut sides: Vec<(usize, usize)> = self.strides.iter().copied().zip(self.shape.iter().copied()).collect();
        sides.retain(|(step, n)| *n > 1 && *step > 0);
        sides.sort_unstable();
        let (mut run, mut starts) = (1, vec![0]);
        for (step, n) in sides {
            if step == run && starts.len() == 1 {
                run *= n;
            } else {
                starts = (0..n).flat_map(|i| starts.iter().map(move |start| start + i * step)).collect();
            }
        }
        starts.windows(2).map(|pair| pair[0] + run..pair[1]).filter(|gap| !gap.is_empty()).collect()
    }

    /// Whether kernels are given content in it.
    pub fn is_read(&self) -> bool {
        self.present && self.role != Role::Out
    }

    /// Whether kernels write it.
    pub fn is_written(&self) -> bool {
        self.present && matches!(self.role, Role::Out | Role::InOut)
    }

    /// Whether it is memory, not a number.
    pub fn is_buffer(&self) -> bool {
        self.present && self.role != Role::Scalar
    }
}

/// The slots of an operation for one problem, in the order kernels take them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature(pub Vec<Slot>);

impl Signature {
    /// All slots.
    pub fn slots(&self) -> &[Slot] {
        &self.0
    }

    /// The slots that kernels write, in order: right answers come in this order.
    pub fn written(&self) -> impl Iterator<Item = &Slot> {
        self.0.iter().filter(|s| s.is_written())
    }

    /// Bytes of all its buffers.
    pub fn bytes(&self) -> usize {
        self.0.iter().filter(|s| s.is_buffer()).map(|s| s.len().saturating_mul(s.dtype.bytes())).sum()
    }

    /// Checks a caller's arguments: each where the problem has a slot, of its type, and holding what it spans. Names
    /// the argument that is wrong.
    pub fn check<D: Device>(&self, args: &[Arg<'_, D>]) -> Result<(), Error> {
        for (i, slot) in self.0.iter().enumerate() {
            let wrong = |reason: String| Err(Error::Argument { argument: slot.name.to_string(), reason });
            let (result, len) = match (args.get(i).unwrap_or(&Arg::Absent), slot.present, slot.role) {
                (Arg::Absent, false, _) => continue,
                (_, false, _) => return wrong("is given, the problem has none".into()),
                (Arg::Absent, true, _) => return wrong("is missing".into()),
                (Arg::Scalar(_), _, Role::Scalar) => continue,
                (Arg::Read(view), _, Role::In) => (view.dtype(), view.len()),
                (Arg::Write(view), _, Role::Out | Role::InOut) => (view.dtype(), view.len()),
                (_, _, Role::Scalar) => return wrong("is a buffer, expected a number".into()),
                (Arg::Scalar(_), ..) => return wrong("is a number, expected a buffer".into()),
                (_, _, Role::In) => return wrong("is lent for writing, it is only read".into()),
                _ => return wrong("is lent for reading, it is written".into()),
            };
            if result != slot.dtype {
                return wrong(format!("holds {result}, expected {}", slot.dtype));
            }
            if len < slot.len() {
                return wrong(format!("holds {len} elements, expected at least {}", slot.len()));
            }
        }
        match args.len() > self.0.len() {
            true => {
                let reason = format!("there are {}, expected {}", args.len(), self.0.len());
                Err(Error::Argument { argument: "the arguments".into(), reason })
            }
            false => Ok(()),
        }
    }

    /// What a launch is checked by.
    pub fn outline(&self) -> Outline {
        let line = |s: &Slot| match (s.present, s.role) {
            (false, _) => Line::Absent,
            (_, Role::Scalar) => Line::Scalar,
            (_, Role::In) => Line::Read(s.dtype, s.len()),
            (_, Role::Out | Role::InOut) => Line::Write(s.dtype, s.len()),
        };
        Outline(self.0.iter().map(line).collect())
    }
}

/// A signature in the shortest form that every launch can be held against: a few nanoseconds.
#[derive(Clone, Debug)]
pub struct Outline(Box<[Line]>);

#[derive(Clone, Copy, Debug)]
enum Line {
    Absent,
    Scalar,
    Read(DType, usize),
    Write(DType, usize),
}

impl Outline {
    /// Whether arguments are those of the signature; [`Signature::check`] says in words what is wrong.
    #[inline]
    pub fn fits<D: Device>(&self, args: &[Arg<'_, D>]) -> bool {
        args.len() == self.0.len()
            && self.0.iter().zip(args).all(|(line, arg)| match (line, arg) {
                (Line::Read(dtype, len), Arg::Read(view)) => view.dtype() == *dtype && view.len() >= *len,
                (Line::Write(dtype, len), Arg::Write(view)) => view.dtype() == *dtype && view.len() >= *len,
                (Line::Absent, Arg::Absent) | (Line::Scalar, Arg::Scalar(_)) => true,
                _ => false,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_spans_what_lies_between_its_first_and_last_element() {
        let slot = Slot::input("a", DType::F32, &[2, 3, 4]);
        assert_eq!((slot.len(), slot.strides.clone()), (24, vec![12, 4, 1]));
        assert_eq!(slot.clone().strided(&[100, 10, 1]).len(), 100 + 20 + 3 + 1);
        assert_eq!(slot.clone().strided(&[0, 0, 1]).len(), 4, "rows that are all the same one");
        assert_eq!((slot.when(false).len(), Slot::output("c", DType::F16, &[5, 0]).len()), (0, 0));
        assert_eq!(Slot::scalar("seed", DType::I32).len(), 1);
    }

    #[test]
    fn padding_is_what_lies_between_rows() {
        let slot = Slot::in_out("w", DType::F32, &[2, 3, 4]);
        assert!(slot.padding().is_empty() && slot.clone().strided(&[4, 8, 1]).padding().is_empty());
        assert_eq!(slot.clone().strided(&[100, 6, 1]).padding(), [4..6, 10..12, 16..100, 104..106, 110..112]);
        assert!(slot.clone().strided(&[0, 2, 1]).padding().is_empty(), "rows that overlap");
        assert!(slot.when(false).padding().is_empty());
    }
}
