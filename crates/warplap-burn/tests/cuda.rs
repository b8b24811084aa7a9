//! On an NVIDIA GPU (feature `cuda`): Burn's kernels and ours in turns on the same tensors, without a wait between them,
//! and every operation against the CPU backend. Without a GPU these pass by saying so.
#![cfg(feature = "cuda")]

mod common;

use burn::tensor::Device;
use common::gpu::{chain, everything};
use warplap_burn::warplap::{Cuda, Mode};
use warplap_burn::{Setup, configure};

/// The first GPU, where there is one.
fn gpu() -> Option<Device> {
    configure(Setup::in_memory().mode(Mode::Off));
    Cuda::count().is_ok_and(|n| n > 0).then(|| Device::cuda(0))
}

#[test]
#[allow(clippy::print_stderr, reason = "a test that does nothing says so")]
fn burns_kernels_and_ours_take_turns_on_the_same_tensors() {
    let Some(device) = gpu() else { return eprintln!("SKIPPED: there is no GPU") };
    chain(&device, 60);
}

#[test]
#[allow(clippy::print_stderr, reason = "a test that does nothing says so")]
fn every_operation_gives_on_a_gpu_what_it_gives_on_the_cpu() {
    let Some(device) = gpu() else { return eprintln!("SKIPPED: there is no GPU") };
    everything(&device);
}
