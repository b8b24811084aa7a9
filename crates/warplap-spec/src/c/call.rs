//! Calling a built library in the caller's own process, where a caller chose so: buffers come in as pointers, the door
//! is called, outputs are written in place.

use std::ffi::c_void;
use std::path::Path;

use libloading::Library;
use warplap::Cpu;
use warplap::core::arg::Arg;
use warplap::core::rejection::Rejection;
use warplap::cpu::SliceMut;

use super::text::DOOR;
use crate::argument::Role;
use crate::spec::Spec;

type Door = unsafe extern "C" fn(*const *mut c_void);

/// Arguments a kernel may have: the reader refuses more.
const MOST: usize = 64;

/// A library in this process, with its door.
#[derive(Debug)]
pub(crate) struct Loaded {
    entry: Door,
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
        let library = keeping_mode(|| unsafe { Library::new(path) }).map_err(failed)?;
        // SAFETY: the door has this type: it is written in `text::door`.
        let entry = unsafe { *library.get::<Door>(DOOR.as_bytes()).map_err(failed)? };
        Ok(Loaded { entry, _library: library })
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
        unsafe { (self.entry)(at.as_ptr()) };
        Ok(())
    }
}

/// Runs what may leave the floating-point mode of this thread changed, and undoes that: gcc's -ffast-math does so when
/// a library is loaded.
fn keeping_mode<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        let mut mode = 0u32;
        // SAFETY: it stores four bytes where the pointer points.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut mode, options(nostack)) };
        let result = work();
        // SAFETY: it reads what was stored above, which is a legal mode.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const mode, options(nostack, readonly)) };
        result
    }
    #[cfg(not(target_arch = "x86_64"))]
    work()
}

fn pointer(view: &mut SliceMut<'_>) -> *mut u8 {
    view.as_mut_ptr()
}
