//! From views to typed slices, once per launch.

use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_cpu::{Slice, SliceMut, Typed};

/// Runs a body with `T` bound to the element type of a dtype.
macro_rules! for_dtype {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            warplap_core::dtype::DType::F32 => {
                type $T = f32;
                $body
            }
            warplap_core::dtype::DType::F16 => {
                type $T = half::f16;
                $body
            }
            warplap_core::dtype::DType::Bf16 => {
                type $T = half::bf16;
                $body
            }
            other => Err(warplap_core::rejection::Rejection::LaunchFailed { reason: format!("no kernel for {other}") }),
        }
    };
}
pub(crate) use for_dtype;

fn wrong(expected: DType, actual: DType) -> Rejection {
    Rejection::LaunchFailed { reason: format!("a buffer of {actual} was given where the problem says {expected}") }
}

/// The elements of an input.
pub(crate) fn read<T: Typed>(view: Slice<'_>) -> Result<&[T], Rejection> {
    let actual = view.dtype();
    T::read(view).ok_or_else(|| wrong(T::DTYPE, actual))
}

/// The elements of an output.
pub(crate) fn write<T: Typed>(view: SliceMut<'_>) -> Result<&mut [T], Rejection> {
    let actual = view.dtype();
    T::write(view).ok_or_else(|| wrong(T::DTYPE, actual))
}
