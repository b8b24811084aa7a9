//! Training a network with a block-sparse layer on drawn data, with Burn's own optimizer: the loss falls.
//!
//! `cargo run --release --example 02-train`

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Device, Tensor, TensorData, activation};
use warplap_burn::{Setup, SparseLinear, SparseLinearConfig, configure};

#[derive(Module, Debug)]
struct Network {
    hidden: SparseLinear,
    last: Linear,
}

impl Network {
    fn new(device: &Device) -> Self {
        let hidden = SparseLinearConfig::new(64, 128).with_block(16).with_density(0.25).init(device);
        Network { hidden, last: LinearConfig::new(128, 1).init(device) }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.last.forward(activation::relu(self.hidden.forward(x)))
    }
}

/// Points, and a smooth function of them.
fn points(count: usize, seed: u64, device: &Device) -> (Tensor<2>, Tensor<2>) {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    let x: Vec<f32> = (0..count * 64).map(|_| next()).collect();
    let y: Vec<f32> = x.chunks(64).map(|row| (0.5 * row.iter().step_by(4).sum::<f32>()).tanh()).collect();
    let tensor = |values: Vec<f32>, columns| Tensor::from_data(TensorData::new(values, [count, columns]), device);
    (tensor(x, 64), tensor(y, 1))
}

/// Trains for two hundred steps.
#[allow(clippy::print_stdout, reason = "an example tells what it does")]
pub(crate) fn main() -> Result<(), warplap_burn::Error> {
    // A program leaves this out: records are then kept for the next run.
    configure(Setup::in_memory().budget(0.3));
    let device = Device::flex().autodiff();
    device.seed(7);
    let mut network = Network::new(&device);
    let mut adam = AdamConfig::new().init();
    let (mut first, mut last) = (0.0, 0.0);
    for step in 0..200 {
        let (x, y) = points(256, step as u64 % 8, &device);
        let off = network.forward(x) - y;
        let loss = (off.clone() * off).mean();
        last = loss.clone().into_scalar::<f32>();
        if step == 0 {
            first = last;
        }
        if step % 40 == 0 {
            println!("step {step:3}: loss {last:.4}");
        }
        let grads = GradientsParams::from_grads(loss.backward(), &network);
        network = adam.step(0.01, network, grads);
    }
    println!("step 200: loss {last:.4}");
    assert!(last < 0.5 * first, "the loss fell from {first} to {last} only");
    Ok(())
}
