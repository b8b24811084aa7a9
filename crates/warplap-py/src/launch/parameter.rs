//! Parameters of compiled Triton kernels: a Python value comes in; what tells it from others, and the bytes a kernel
//! takes for it, go out.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat};

use crate::call::torch::Torch;
use crate::tensor::view::Element;

/// Arguments a call may have to be followed here.
pub(crate) const MOST: usize = 64;

/// What an argument holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Read {
    Int(i64),
    Address(usize),
    Flag(bool),
    Float(f64),
    Nothing,
}

/// How a kernel takes a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// It was compiled in.
    Compiled,
    Pointer,
    Int(u8),
    F32,
    F64,
}

impl Parameter {
    /// By Triton's name of its type.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "constexpr" => Parameter::Compiled,
            "i1" | "u1" | "i8" | "u8" => Parameter::Int(1),
            "i16" | "u16" => Parameter::Int(2),
            "i32" | "u32" => Parameter::Int(4),
            "i64" | "u64" => Parameter::Int(8),
            "fp32" => Parameter::F32,
            "fp64" => Parameter::F64,
            _ if name.starts_with('*') => Parameter::Pointer,
            _ => return None,
        })
    }

    /// Whether a value is one for it.
    pub(crate) fn takes(self, value: Read) -> bool {
        match self {
            Parameter::Compiled => true,
            Parameter::Pointer => matches!(value, Read::Address(_)),
            Parameter::Int(_) => matches!(value, Read::Int(_) | Read::Flag(_)),
            Parameter::F32 | Parameter::F64 => matches!(value, Read::Float(_) | Read::Int(_)),
        }
    }

    /// Writes a value as the kernel takes it; `false` where it takes none.
    #[inline]
    pub(crate) fn pack(self, value: Read, to: &mut u64) -> bool {
        let whole = || match value {
            Read::Int(v) => v as u64,
            Read::Address(v) => v as u64,
            Read::Flag(v) => u64::from(v),
            Read::Float(_) | Read::Nothing => 0,
        };
        let real = || match value {
            Read::Float(v) => v,
            Read::Int(v) => v as f64,
            _ => 0.0,
        };
        *to = match self {
            Parameter::Compiled => return false,
            Parameter::Pointer => whole(),
            // The lowest bytes lie first.
            Parameter::Int(_) => whole(),
            Parameter::F32 => u64::from((real() as f32).to_bits()),
            Parameter::F64 => real().to_bits(),
        };
        true
    }
}

/// What tells the calls of a kernel apart: two words an argument.
pub(crate) struct LaunchName {
    words: [u64; 2 * MOST],
    len: usize,
    device: Option<usize>,
}

impl Default for LaunchName {
    fn default() -> Self {
        LaunchName { words: [0; 2 * MOST], len: 0, device: None }
    }
}

impl LaunchName {
    /// The words so far.
    pub(crate) fn words(&self) -> &[u64] {
        &self.words[..self.len]
    }

    /// The GPU that tensors are on; none where they are on none or on several.
    pub(crate) fn device(&self) -> Option<usize> {
        self.device
    }

    /// Adds what tells one argument from others; `None` for what is not followed here.
    #[inline]
    pub(crate) fn add(&mut self, torch: &Torch, value: &Bound<'_, PyAny>, keyed: bool) -> Option<Read> {
        let (words, read) = self.read(torch, value, keyed)?;
        let to = self.words.get_mut(self.len..self.len + 2)?;
        to.copy_from_slice(&words);
        self.len += 2;
        Some(read)
    }

    fn read(&mut self, torch: &Torch, value: &Bound<'_, PyAny>, keyed: bool) -> Option<([u64; 2], Read)> {
        // SAFETY: type checks of a live object.
        let is_int = unsafe { ffi::PyLong_CheckExact(value.as_ptr()) } != 0;
        if is_int {
            let v: i64 = value.extract().ok()?;
            let kind = 1 + u64::from(v == 1) + 2 * u64::from(v % 16 == 0) + 4 * u64::from(i32::try_from(v).is_err());
            return Some(([kind, if keyed { v as u64 } else { 0 }], Read::Int(v)));
        }
        if torch.is_plain(value) {
            let view = torch.view(value, "argument").ok()?;
            let kind = match view.element {
                Element::Float(dtype) => dtype as u64,
                Element::Other(t) => 16 + (u64::from(t.code) << 8) + (u64::from(t.bits) << 16),
            };
            if let Some(device) = view.cuda()
                && *self.device.get_or_insert(device) != device
            {
                return None;
            }
            // Where a tensor is belongs to it: a kernel is given a bare address and checks nothing.
            let place = u64::from(view.device.kind as u32) << 32 | u64::from(view.device.index as u32 & 0xff) << 48;
            let word = place | kind << 1 | u64::from(view.address.is_multiple_of(16));
            return Some(([32, word], Read::Address(view.address)));
        }
        if let Ok(v) = value.cast_exact::<PyBool>() {
            return Some(([33, u64::from(v.is_true())], Read::Flag(v.is_true())));
        }
        if let Ok(v) = value.cast_exact::<PyFloat>() {
            return Some(([34, if keyed { v.value().to_bits() } else { 0 }], Read::Float(v.value())));
        }
        value.is_none().then_some(([35, 0], Read::Nothing))
    }
}
