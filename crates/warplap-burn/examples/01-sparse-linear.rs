//! A block-sparse layer in the place of a dense one: the same input, the same use, an eighth of the weight.
//!
//! `cargo run --release --example 01-sparse-linear`

use burn::nn::LinearConfig;
use burn::tensor::{Bool, Device, Distribution, Tensor};
use warplap_burn::{Setup, SparseLinear, SparseLinearConfig, configure};

/// Makes a layer in two ways.
#[allow(clippy::print_stdout, reason = "an example tells what it does")]
pub(crate) fn main() -> Result<(), warplap_burn::Error> {
    // A program leaves this out: records are then kept for the next run.
    configure(Setup::in_memory().budget(0.3));
    let device = Device::flex();
    let x = Tensor::<2>::random([64, 256], Distribution::Default, &device);

    // New: one block of 32x32 in eight, chosen at random, the same number in every row.
    let layer = SparseLinearConfig::new(256, 512).init(&device);
    let y = layer.forward(x.clone());
    println!("new: {:?} -> {:?}, {:.1} % stored", x.dims(), y.dims(), 100.0 * layer.density());

    // Or from a dense layer that is there: the blocks that a mask names. Here, every second one.
    let dense = LinearConfig::new(256, 512).init(&device);
    let named: Vec<bool> = (0..16 * 8).map(|i| (i / 8 + i % 8) % 2 == 0).collect();
    let mask = Tensor::<2, Bool>::from_data(burn::tensor::TensorData::new(named, [16, 8]), &device);
    let layer = SparseLinear::from_linear(&dense, mask, 32)?;
    let y = layer.forward(x.clone());
    let whole = x.matmul(layer.weight()?.to_dense().transpose()) + dense.bias.unwrap().val().unsqueeze();
    let off = (y - whole).abs().max().into_scalar::<f32>();
    println!("from a dense layer: {:.1} % stored, off by {off:.1e}", 100.0 * layer.density());
    assert!(off < 1e-4);
    Ok(())
}
