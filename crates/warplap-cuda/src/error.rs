//! What the driver answers: a code, its name, and whether the process can go on.

use warplap_core::error::Error;
use warplap_core::rejection::Rejection;
use warplap_worker::Class;

/// Why CUDA could not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// No driver library: there is no NVIDIA GPU to use here.
    #[error("no CUDA device: the NVIDIA driver library (libcuda.so.1) is not on this machine")]
    NoDriver,
    /// The driver library lacks a function: it is too old.
    #[error("the NVIDIA driver is too old: it has no {0}")]
    NoSymbol(&'static str),
    /// There is a driver but no such device.
    #[error("no CUDA device {ordinal}: the driver knows {count}")]
    NoDevice {
        /// The device asked for.
        ordinal: i32,
        /// How many there are.
        count: i32,
    },
    /// A driver call failed.
    #[error("{call}: {name} ({code})")]
    Driver {
        /// The driver's code.
        code: i32,
        /// The driver's name of it.
        name: String,
        /// The call that gave it.
        call: &'static str,
    },
    /// No compiler library, or one that does not load.
    #[error("no NVRTC: {0}")]
    NoCompiler(String),
    /// A library is not to be found, or does not load.
    #[error("no {0}")]
    NoLibrary(String),
    /// A library's call failed.
    #[error("{call} gave status {status}{said}")]
    Library {
        /// The library's own code.
        status: i32,
        /// The call that gave it.
        call: &'static str,
        /// What the code means, where it is known.
        said: &'static str,
    },
    /// The compiler refused a source; holds its log from the first error on.
    #[error("does not compile: {0}")]
    Compile(String),
    /// Two pieces of memory that do not fit each other.
    #[error("{0}")]
    Fit(String),
}

impl CudaError {
    /// Whether the context is still usable. `cuda.h` says of the fatal codes that the process must be relaunched; a
    /// code nobody knows is fatal too.
    pub fn class(&self) -> Class {
        match self {
            CudaError::Driver { code, .. } => class_of(*code),
            _ => Class::Clean,
        }
    }

    /// The error as a candidate's Rejection.
    pub fn rejection(&self) -> Rejection {
        let reason = self.to_string();
        match self {
            CudaError::Compile(_) | CudaError::NoCompiler(_) | CudaError::NoLibrary(_) => {
                Rejection::DoesNotBuild { reason }
            }
            CudaError::Driver { code: 2 | 701, .. } => Rejection::OverLimits { reason },
            CudaError::Driver { code: 200 | 209 | 218 | 222 | 300, .. } => Rejection::DoesNotBuild { reason },
            _ if self.class() == Class::Fatal => Rejection::Crashed { reason },
            _ => Rejection::LaunchFailed { reason },
        }
    }
}

impl From<CudaError> for Error {
    fn from(error: CudaError) -> Self {
        Error::Device(error.to_string())
    }
}

fn class_of(code: i32) -> Class {
    match code {
        // Invalid value, out of memory, not initialised, no device, invalid device, context and image, no binary for
        // this device, invalid PTX, unsupported PTX, not found, not ready, over resources, cooperative launch too
        // large, and the codes of stream capture.
        1..=3 | 100 | 101 | 200 | 201 | 209 | 218 | 222 | 300 | 400 | 500 | 600 | 701 | 720 | 801 | 900..=908 => {
            Class::Clean
        }
        _ => Class::Fatal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(code: i32) -> CudaError {
        CudaError::Driver { code, name: "X".into(), call: "cuX" }
    }

    #[test]
    fn the_codes_cuda_h_calls_final_are_fatal_and_so_is_any_unknown_one() {
        for code in [226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911, 999, 12345] {
            assert_eq!(driver(code).class(), Class::Fatal, "{code}");
            assert!(matches!(driver(code).rejection(), Rejection::Crashed { .. }), "{code}");
        }
        for code in [1, 2, 209, 218, 222, 400, 701, 720] {
            assert_eq!(driver(code).class(), Class::Clean, "{code}");
        }
    }

    #[test]
    fn too_many_resources_are_over_limits_and_a_bad_image_does_not_build() {
        assert!(matches!(driver(701).rejection(), Rejection::OverLimits { .. }));
        assert!(matches!(driver(209).rejection(), Rejection::DoesNotBuild { .. }));
        assert!(matches!(driver(1).rejection(), Rejection::LaunchFailed { .. }));
    }
}
