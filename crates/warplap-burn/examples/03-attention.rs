//! Tuned attention and its gradients on Burn's tensors, with grouped heads and a causal mask.
//!
//! `cargo run --release --example 03-attention`

use burn::tensor::{Device, Distribution, Tensor};
use warplap_burn::{AttentionOptions, Setup, attention, configure};

/// Attends, forward and backward.
#[allow(clippy::print_stdout, reason = "an example tells what it does")]
pub(crate) fn main() -> Result<(), warplap_burn::Error> {
    // A program leaves this out: records are then kept for the next run.
    configure(Setup::in_memory().budget(0.3));
    let device = Device::flex().autodiff();
    let drawn = |shape: [usize; 4]| Tensor::<4>::random(shape, Distribution::Default, &device).require_grad();

    // Eight heads of queries over two heads of keys and values.
    let (q, k, v) = (drawn([1, 8, 64, 32]), drawn([1, 2, 64, 32]), drawn([1, 2, 64, 32]));
    let options = AttentionOptions { causal: true, ..AttentionOptions::default() };
    let out = attention(q.clone(), k.clone(), v.clone(), options);
    let grads = out.clone().sum().backward();
    let dims = |tensor: &Tensor<4>| tensor.grad(&grads).unwrap().dims();
    println!("out {:?}, dq {:?}, dk {:?}, dv {:?}", out.dims(), dims(&q), dims(&k), dims(&v));

    // The first query sees the first key alone.
    let first = out.slice([0..1, 0..1, 0..1, 0..32]) - v.slice([0..1, 0..1, 0..1, 0..32]);
    assert!(first.abs().max().into_scalar::<f32>() < 1e-5);
    Ok(())
}
