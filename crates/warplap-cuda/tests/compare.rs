//! Comparisons and seals where the memory is, for every element type.

use warplap_core::array::Array;
use warplap_core::device::{Bounds, Device};
use warplap_core::dtype::DType;
use warplap_core::scalar::{Bool, F8E4m3, F8E5m2};
use warplap_core::tolerance::Tolerance;
use warplap_cuda::Cuda;

#[allow(dead_code, unreachable_pub, reason = "the tests of the sandbox use the rest")]
mod standin;

const GUARD: usize = 8;
const BOUNDS: Bounds =
    Bounds { guard: GUARD, guard_value: -1024.0, tolerance: Tolerance { relative: 0.0, floor: 1e-30 } };

/// The stand-in device; `WARPLAP_CUDA_DRIVER` and `WARPLAP_NVRTC` may name real libraries instead.
fn device() -> Cuda {
    standin::opened().without_sandbox()
}

/// All codes of types of one byte but infinities, which no right answer has; else random numbers.
fn elements(dtype: DType) -> Array {
    match dtype {
        DType::F8E4m3 => (0..=255).map(F8E4m3).collect::<Vec<_>>().into(),
        DType::F8E5m2 => (0..=255).map(F8E5m2).filter(|x| x.0 & 0x7f != 0x7c).collect::<Vec<_>>().into(),
        DType::Bool => (0..=255).map(Bool).collect::<Vec<_>>().into(),
        DType::I8 => (i8::MIN..=i8::MAX).collect::<Vec<_>>().into(),
        DType::U8 => (u8::MIN..=u8::MAX).collect::<Vec<_>>().into(),
        _ => Array::random(dtype, 256, &mut fastrand::Rng::with_seed(1)),
    }
}

/// Between guard bands; put there by value, so that NaNs are all one code.
fn between_bands(array: &Array) -> Array {
    let band = [BOUNDS.guard_value; GUARD];
    Array::from_f64(array.dtype(), band.into_iter().chain(array.to_f64()).chain(band))
}

#[test]
fn an_output_of_any_type_is_held_against_its_numbers_in_double_precision() {
    let cuda = device();
    for dtype in DType::ALL {
        let values = elements(dtype);
        let output = cuda.upload(&between_bands(&values)).unwrap();
        let share = |right: Vec<f64>| {
            let right = cuda.upload(&Array::F64(right)).unwrap();
            cuda.compare(&output, &right, BOUNDS).unwrap().share
        };
        let mut right = values.to_f64();
        assert_eq!(share(right.clone()), 0.0, "{dtype}");
        let at = right.iter().rposition(|v| !v.is_nan()).unwrap();
        right[at] += 1.0;
        assert!(share(right) > 1.0, "{dtype}");
    }
}

#[test]
fn a_seal_of_any_type_sees_one_other_element_and_two_that_changed_places() {
    let cuda = device();
    for dtype in DType::ALL {
        let values = Array::from_f64(dtype, (0..100).map(|i| f64::from(i % 2)));
        let seal = |values: &Array| cuda.seal(&cuda.upload(values).unwrap()).unwrap();
        let (first, mut numbers) = (seal(&values), values.to_f64());
        assert_eq!(seal(&values), first, "{dtype}");
        numbers.swap(40, 41);
        assert_ne!(seal(&Array::from_f64(dtype, numbers.clone())), first, "{dtype}");
        numbers.swap(40, 41);
        numbers[99] = 0.0;
        assert_ne!(seal(&Array::from_f64(dtype, numbers)), first, "{dtype}");
    }
}
