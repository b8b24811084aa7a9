//! Calling a built library: buffers come in as pointers, the door is called, outputs are written in place.

use std::ffi::c_void;
use std::path::Path;

use libloading::Library;
use warplap::core::arg::Arg;
use warplap::core::array::Array;
use warplap::core::device::Device;
use warplap::core::rejection::Rejection;
use warplap::cpu::SliceMut;
use warplap::{Cpu, Error};

use super::text::DOOR;
use crate::argument::{Argument, Role};
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

impl Loaded {
    /// Loads a library that was built here and tried out in a process of its own.
    pub(crate) fn open(path: &Path) -> Result<Self, Rejection> {
        let failed =
            |e: libloading::Error| Rejection::LaunchFailed { reason: format!("the library does not load: {e}") };
        // SAFETY: the file lies in a private folder, was built from the user's own source and has run without a fault;
        // what its initialisers do is the user's word.
        let library = unsafe { Library::new(path) }.map_err(failed)?;
        // SAFETY: the door has this type: it is written in `text::door`.
        let door = unsafe { *library.get::<Door>(DOOR.as_bytes()).map_err(failed)? };
        Ok(Loaded { door, _library: library })
    }

    /// Calls the kernel on buffers.
    ///
    /// # Safety
    /// The arguments are those of the spec's signature.
    #[inline]
    pub(crate) unsafe fn call(&self, spec: &Spec, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
        let mut at = [std::ptr::null_mut::<c_void>(); MOST];
        let mut places = at.iter_mut();
        for (argument, arg) in spec.parameters().zip(args) {
            let place = match argument.role {
                // It was written into the door.
                Role::Scalar => {
                    argument.check(arg.scalar()?)?;
                    continue;
                }
                Role::Out | Role::InOut => pointer(&mut arg.write()?).cast(),
                Role::In | Role::Constant => arg.read()?.address() as *mut c_void,
            };
            if let Some(to) = places.next() {
                *to = place;
            }
        }
        // SAFETY: the list holds as many pointers as the door reads, to buffers of the lengths the kernel was tried out
        // with (the caller's word); inputs are only read by a kernel that keeps its word, and whoever proves it checks
        // that they were.
        unsafe { (self.door)(at.as_ptr()) };
        Ok(())
    }

    /// What it gives for inputs, for each argument that is written.
    pub(crate) fn answer(&self, spec: &Spec, inputs: &[Array]) -> Result<Vec<Vec<f64>>, Rejection> {
        let failed = |e: Error| Rejection::LaunchFailed { reason: e.to_string() };
        let device = Cpu::with_threads(1);
        let filled = |(argument, input): (&Argument, &Array)| match argument.role {
            Role::Out => device.upload(&Array::filled(argument.dtype(), argument.len(), f64::NAN)),
            _ => device.upload(input),
        };
        let buffers = spec.parameters().zip(inputs).map(filled).collect::<Result<Vec<_>, Error>>();
        let mut buffers = buffers.map_err(failed)?;
        let lent = spec.parameters().zip(&mut buffers).map(|(argument, buffer)| match argument.role {
            Role::Scalar => Arg::Scalar(argument.scalar()),
            Role::Out | Role::InOut => Arg::Write(device.view_mut(buffer, 0..argument.len())),
            Role::In | Role::Constant => Arg::Read(device.view(buffer, 0..argument.len())),
        });
        let mut args: Vec<Arg<'_, Cpu>> = lent.collect();
        spec.signature().check(&args).map_err(failed)?;
        // SAFETY: they were just checked.
        unsafe { self.call(spec, &mut args) }?;
        drop(args);
        let written = spec.parameters().zip(&buffers).filter(|(argument, _)| argument.is_output());
        written.map(|(_, buffer)| Ok(device.download(buffer).map_err(failed)?.to_f64())).collect()
    }
}

fn pointer(view: &mut SliceMut<'_>) -> *mut u8 {
    view.as_mut_ptr()
}
