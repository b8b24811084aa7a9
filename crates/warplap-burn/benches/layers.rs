//! Our calls beside Burn's own, on the CPU backend, by a stopwatch around each call: what a program sees.
//!
//! `cargo bench --manifest-path crates/warplap-burn/Cargo.toml` prints one line a pair. Calls of the two take turns; the
//! median of their times is shown, and the quotient of the two in each turn as a median with its quartiles.
#![allow(clippy::print_stdout, reason = "a program that prints figures")]

use std::time::Instant;

use burn::nn::LinearConfig;
use burn::tensor::module::attention as burns_attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Device, Distribution, Tensor};
use warplap_burn::{AttentionOptions, Setup, SparseLinearConfig, attention, configure, matmul};

const TURNS: usize = 41;

fn seconds(call: &dyn Fn()) -> f64 {
    let start = Instant::now();
    call();
    start.elapsed().as_secs_f64()
}

fn median(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share).round() as usize]
}

fn pair(name: &str, ours: &dyn Fn(), burns: &dyn Fn()) {
    // The first call of ours races.
    (0..3).for_each(|_| {
        ours();
        burns();
    });
    let (mut a, mut b, mut quotients) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let (mine, theirs) = (seconds(ours), seconds(burns));
        a.push(mine);
        b.push(theirs);
        quotients.push(theirs / mine);
    }
    println!(
        "{name}: ours {:.3} ms, Burn's {:.3} ms, {:.2} times as fast ({:.2} to {:.2})",
        1e3 * median(&mut a, 0.5),
        1e3 * median(&mut b, 0.5),
        median(&mut quotients, 0.5),
        median(&mut quotients, 0.25),
        median(&mut quotients, 0.75),
    );
}

fn main() {
    // Long enough for everybody on a busy machine.
    configure(Setup::in_memory().budget(15.0));
    let device = Device::flex();
    let drawn = |shape: [usize; 2]| Tensor::<2>::random(shape, Distribution::Default, &device);

    let x = drawn([512, 2048]);
    let sparse = SparseLinearConfig::new(2048, 2048).with_block(32).with_density(0.125).init(&device);
    let dense = LinearConfig::new(2048, 2048).init(&device);
    pair(
        "SparseLinear 2048 -> 2048, batch 512, blocks of 32, 12.5 % stored, against Linear",
        &|| drop(sparse.forward(x.clone())),
        &|| drop(dense.forward(x.clone())),
    );

    let sparse = SparseLinearConfig::new(2048, 2048).with_block(32).with_density(0.125).with_bias(false).init(&device);
    let dense = LinearConfig::new(2048, 2048).with_bias(false).init(&device);
    pair("the same without bias", &|| drop(sparse.forward(x.clone())), &|| drop(dense.forward(x.clone())));

    let (a, b) = (drawn([512, 512]), drawn([512, 512]));
    pair("matmul 512x512x512, f32", &|| drop(matmul(a.clone(), b.clone())), &|| drop(a.clone().matmul(b.clone())));

    let q = Tensor::<4>::random([1, 8, 512, 64], Distribution::Default, &device);
    let options = AttentionModuleOptions { scale: None, softcap: None, is_causal: true };
    pair(
        "attention 8 heads, 512 x 64, causal, f32",
        &|| {
            let options = AttentionOptions { causal: true, ..AttentionOptions::default() };
            drop(attention(q.clone(), q.clone(), q.clone(), options));
        },
        &|| drop(burns_attention(q.clone(), q.clone(), q.clone(), None, None, options)),
    );
}
