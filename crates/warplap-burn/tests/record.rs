//! A sparse layer is a module like others: it is saved and loaded with its pattern, cloned, and moved. About 1 s.

mod common;

use burn::module::Module;
use burn::tensor::Device;
use common::{distance, drawn, without_races};
use warplap_burn::{SparseLinear, SparseLinearConfig};

fn layer(seed: u64) -> SparseLinear {
    without_races();
    SparseLinearConfig::new(96, 64).with_block(16).with_density(0.5).with_seed(seed).init(&Device::flex())
}

#[test]
fn a_record_carries_the_pattern_with_the_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("layer.bpk");
    let (one, other) = (layer(1), layer(2));
    let x = drawn([5, 96], 3, &Device::flex());
    let (y, before) = (one.forward(x.clone()), other.forward(x.clone()));
    assert_ne!(one.weight().unwrap().col_idx(), other.weight().unwrap().col_idx());
    assert!(distance(before, y.clone()) > 0.01);
    one.clone().save_file(&file).unwrap();
    // The other has been used already: what it knew of its pattern does not survive.
    let other = other.load_file(&file);
    assert_eq!(one.weight().unwrap().col_idx(), other.weight().unwrap().col_idx());
    assert_eq!(distance(other.forward(x.clone()), y.clone()), 0.0);
    let loaded = layer(4).load_record(one.into_record());
    assert_eq!(distance(loaded.forward(x), y), 0.0);
}

#[test]
fn its_parameters_are_blocks_bias_and_pattern() {
    let layer = layer(1);
    assert_eq!(layer.values.dims(), [4 * 3, 16, 16]);
    assert_eq!(layer.num_params(), 4 * 3 * 256 + 64);
    assert!((layer.density() - 0.5).abs() < 1e-12);
    let bare = SparseLinearConfig::new(96, 64).with_bias(false).init(&Device::flex());
    assert!(bare.bias.is_none());
}

#[test]
fn what_is_drawn_is_as_wide_as_the_inputs_that_an_output_really_has() {
    let device = Device::flex();
    let layer = SparseLinearConfig::new(1024, 1024).with_block(32).with_density(0.125).init(&device);
    let x = drawn([64, 1024], 5, &device);
    let dense = burn::nn::LinearConfig::new(1024, 1024).init(&device);
    let spread = |y: burn::tensor::Tensor<2>| (y.clone() * y).mean().into_scalar::<f32>().sqrt();
    without_races();
    let (ours, theirs) = (spread(layer.forward(x.clone())), spread(dense.forward(x)));
    assert!((ours / theirs - 1.0).abs() < 0.2, "{ours} is not about {theirs}");
}
