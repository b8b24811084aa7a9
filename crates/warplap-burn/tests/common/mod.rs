//! What tests share: a set-up without races, drawn tensors, and the distance between two.
#![allow(dead_code, reason = "no test uses all of it")]

#[cfg(feature = "cuda")]
pub(crate) mod gpu;

use std::sync::Once;

use burn::tensor::{Bool, Device, Tensor, TensorData};
use warplap_burn::warplap::Mode;
use warplap_burn::{Setup, configure};

/// Nothing is raced: the first choice by priority answers, which is one of our kernels.
pub(crate) fn without_races() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| assert_eq!(configure(Setup::in_memory().mode(Mode::Off)), None));
}

/// Everything is raced, for a moment.
pub(crate) fn with_short_races() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| assert_eq!(configure(Setup::in_memory().budget(0.4)), None));
}

pub(crate) fn drawn<const D: usize>(shape: [usize; D], seed: u64, device: &Device) -> Tensor<D> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| rng.f32() * 2.0 - 1.0).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// A mask with about one block in `one_in`, and one at least in every row.
pub(crate) fn mask([rows, columns]: [usize; 2], one_in: usize, seed: u64, device: &Device) -> Tensor<2, Bool> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let named = (0..rows * columns).map(|i| i % columns == i / columns % columns || rng.usize(..one_in) == 0);
    let named: Vec<bool> = named.collect();
    Tensor::from_data(TensorData::new(named, [rows, columns]), device)
}

/// The largest difference over the largest element.
pub(crate) fn distance<const D: usize>(got: Tensor<D>, right: Tensor<D>) -> f64 {
    assert_eq!(got.dims(), right.dims());
    let (got, right) = (values(got), values(right));
    let largest = right.iter().fold(1e-30f64, |m, v| m.max(v.abs()));
    assert!(got.iter().all(|v| v.is_finite()), "not finite");
    got.iter().zip(&right).fold(0f64, |m, (f, r)| m.max((f - r).abs())) / largest
}

pub(crate) fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}
