//! Calling a built library: buffers come in as pointers, the door is called, outputs are written in place.

use std::ffi::c_void;
use std::path::Path;

use libloading::Library;
use warplap::Cpu;
use warplap::DType;
use warplap::core::array::Array;
use warplap::core::device::Device;
use warplap::core::rejection::Rejection;
use warplap::cpu::{Slice, SliceMut};

use super::text::DOOR;
use crate::argument::Role;
use crate::op::KernelArgs;
use crate::spec::Spec;

type Door = unsafe extern "C" fn(*const *mut c_void);

/// Arguments a kernel may have: the reader refuses more.
const MOST: usize = 64;

/// A library in this process, with its door.
#[derive(Debug)]
pub(crate) struct Loaded {
    door: Door,
    // Unloaded after the last call.
    _library: Library,
}

/// Where one pointer argument comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// An input, by its number.
    Input(usize),
    /// An output, by the element it starts at.
    Output(usize),
    /// An output that starts as an input: its element, the input's number, elements.
    Both(usize, usize, usize),
}

/// The pointer arguments of a spec in order, and the lengths its inputs must have.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    places: Vec<Place>,
    inputs: Vec<(DType, usize)>,
    output: (DType, usize),
}

impl Places {
    pub(crate) fn of(spec: &Spec) -> Self {
        let (mut places, mut inputs) = (Vec::new(), Vec::new());
        for (argument, start) in spec.arguments.iter().zip(spec.outputs()) {
            let (number, start) = (inputs.len(), start.unwrap_or(0));
            places.push(match argument.role {
                Role::Scalar | Role::Constant => continue,
                Role::In => Place::Input(number),
                Role::Out => Place::Output(start),
                Role::InOut => Place::Both(start, number, argument.len()),
            });
            if argument.is_input() {
                inputs.push((argument.dtype(), argument.len()));
            }
        }
        Places { places, inputs, output: spec.output() }
    }

    /// Whether buffers are what the kernel was built for.
    fn check(&self, inputs: &[Slice<'_>], output: &SliceMut<'_>) -> Result<(), Rejection> {
        let same = inputs.len() == self.inputs.len()
            && inputs.iter().zip(&self.inputs).all(|(v, (dtype, len))| v.dtype() == *dtype && v.len() == *len)
            && (output.dtype(), output.len()) == self.output
            && self.places.len() <= MOST;
        let refused = || Rejection::LaunchFailed { reason: "the buffers are not those of the spec".into() };
        if same { Ok(()) } else { Err(refused()) }
    }
}

impl Loaded {
    /// Loads a library that was built here and tried out in a process of its own.
    pub(crate) fn open(path: &Path) -> Result<Self, Rejection> {
        let failed =
            |e: libloading::Error| Rejection::LaunchFailed { reason: format!("the library does not load: {e}") };
        // SAFETY: the file lies in a private folder, was built from the user's own source and has run without a fault; what
        // its initialisers do is the user's word.
        let library = unsafe { Library::new(path) }.map_err(failed)?;
        // SAFETY: the door has this type: it is written in `text::door`.
        let door = unsafe { *library.get::<Door>(DOOR.as_bytes()).map_err(failed)? };
        Ok(Loaded { door, _library: library })
    }

    /// Calls the kernel on buffers.
    #[inline]
    pub(crate) fn call(&self, places: &Places, mut args: KernelArgs<'_, Cpu>) -> Result<(), Rejection> {
        places.check(&args.inputs, &args.output)?;
        let (output, width) = (pointer(&mut args.output), places.output.0.bytes());
        let mut at = [std::ptr::null_mut::<c_void>(); MOST];
        for (to, place) in at.iter_mut().zip(&places.places) {
            *to = match *place {
                Place::Input(number) => args.inputs[number].address() as *mut c_void,
                // SAFETY: outputs lie inside of the buffer, whose length was checked.
                Place::Output(start) => unsafe { output.add(start * width) }.cast(),
                Place::Both(start, number, len) => {
                    // SAFETY: as above.
                    let target = unsafe { output.add(start * width) };
                    let from = args.inputs[number].address() as *const u8;
                    // SAFETY: both hold `len` elements of this width (checked), and inputs and output are different buffers.
                    unsafe { std::ptr::copy_nonoverlapping(from, target, len * width) };
                    target.cast()
                }
            };
        }
        // SAFETY: the list holds as many pointers as the door reads, to buffers of the lengths the kernel was tried out with;
        // inputs are only read by a kernel that keeps its word, and whoever proves it checks that they were.
        unsafe { (self.door)(at.as_ptr()) };
        Ok(())
    }

    /// What it gives for inputs: every output in its place, NaN between them.
    pub(crate) fn answer(&self, spec: &Spec, inputs: &[Array]) -> Result<Vec<f64>, Rejection> {
        let cpu = |e: warplap::Error| Rejection::LaunchFailed { reason: e.to_string() };
        let device = Cpu::with_threads(1);
        let buffers = inputs.iter().map(|a| device.upload(a)).collect::<Result<Vec<_>, _>>().map_err(cpu)?;
        let (dtype, len) = spec.output();
        let mut output = device.upload(&Array::filled(dtype, len, f64::NAN)).map_err(cpu)?;
        let views = buffers.iter().zip(inputs).map(|(b, a)| device.view(b, 0..a.len())).collect();
        let args = KernelArgs { inputs: views, output: device.view_mut(&mut output, 0..len) };
        self.call(&Places::of(spec), args)?;
        let given = device.download(&output).map_err(cpu)?.to_f64();
        // Between outputs nobody may write: NaN says so to whoever compares.
        let mut values = vec![f64::NAN; len];
        for (argument, start) in spec.arguments.iter().zip(spec.outputs()) {
            if let Some(start) = start {
                values[start..start + argument.len()].copy_from_slice(&given[start..start + argument.len()]);
            }
        }
        Ok(values)
    }
}

fn pointer(view: &mut SliceMut<'_>) -> *mut u8 {
    match view {
        SliceMut::F64(v) => v.as_mut_ptr().cast(),
        SliceMut::F32(v) => v.as_mut_ptr().cast(),
        SliceMut::F16(v) => v.as_mut_ptr().cast(),
        SliceMut::Bf16(v) => v.as_mut_ptr().cast(),
        SliceMut::I32(v) => v.as_mut_ptr().cast(),
    }
}
