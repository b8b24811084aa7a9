//! Graphs that nobody has thought of: every partition of each is right.

use warplap_cpu::Cpu;
use warplap_ops::gemm::Activation;

use super::fusion_patterns::outputs_of;
use super::{DType, Error, Mode};
use super::{session, share};
use crate::{Builder, Fused, Tensor, Turn};

/// A graph of some nodes on tensors of one shape, drawn from a seed.
fn drawn(g: &mut Builder<Cpu>, rng: &mut fastrand::Rng, dtype: DType) -> Result<Fused<Cpu>, Error> {
    let (rows, n) = (rng.u64(1..9), 8 * rng.u64(1..7));
    let mut tensors: Vec<Tensor> = Vec::new();
    let mut made: Vec<Tensor> = Vec::new();
    let mut inputs = 0;
    for _ in 0..rng.usize(2..9) {
        let mut input = |g: &mut Builder<Cpu>, shape: &[u64]| {
            inputs += 1;
            g.input(&format!("in{inputs}"), dtype, shape)
        };
        // Mostly what was made last, so that chains are long.
        let mut pick = |g: &mut Builder<Cpu>, rng: &mut fastrand::Rng| match (rng.u32(0..6), tensors.last()) {
            (0, _) | (_, None) => input(g, &[rows, n]),
            (1 | 2, _) => tensors[rng.usize(0..tensors.len())],
            (_, Some(last)) => *last,
        };
        let x = pick(g, rng);
        let y = match rng.u32(0..12) {
            0 => {
                let b = pick(g, rng);
                g.add(x, b)
            }
            1 => {
                let b = pick(g, rng);
                g.mul(x, b)
            }
            2 => g.silu(x),
            3 => g.gelu(x),
            4 => {
                let b = pick(g, rng);
                g.gated(x, b, Activation::Relu)
            }
            5 => {
                let (w, b) = (input(g, &[n, n]), input(g, &[n]));
                g.linear_bias(x, w, b)
            }
            6 => {
                let w = input(g, &[n]);
                g.rms_norm(x, w, 1e-5)
            }
            7 => g.softmax(x),
            8 => g.softmax_scaled(x, 0.5),
            9 => {
                let mask = input(g, &[n]);
                g.softmax_masked(x, mask, 2.0)
            }
            10 => {
                let (cos, sin) = (input(g, &[rows, 4]), input(g, &[rows, 4]));
                let heads = g.reshape(x, &[rows, n / 8, 8])?;
                let turned = g.rope(heads, Turn::by(cos, sin).leaving(u64::from(n > 8)))?;
                g.reshape(turned, &[rows, n])
            }
            _ => {
                let w = input(g, &[n, n]);
                g.linear(x, w)
            }
        }?;
        tensors.push(y);
        made.push(y);
    }
    // Whoever is read by nobody is an output, and sometimes one that is read.
    for (i, tensor) in made.iter().enumerate() {
        if i + 1 == made.len() || !g.is_read(*tensor) || rng.u32(0..8) == 0 {
            g.output(&format!("out{i}"), *tensor);
        }
    }
    g.build()
}

#[test]
fn every_partition_of_any_graph_is_right() {
    let count = if std::env::var_os("WARPLAP_LONG").is_some() { 2000 } else { 60 };
    let session = session(Mode::Off);
    let (mut partitions, mut most) = (0, 0f64);
    for seed in 0..count {
        let dtype = [DType::F32, DType::Bf16][seed as usize % 2];
        let fused = drawn(&mut session.graph(), &mut fastrand::Rng::with_seed(seed), dtype).unwrap();
        for partition in fused.problem().plan.partitions.iter().take(16) {
            let (drawn, left) = outputs_of(&session, &fused, partition);
            let share = share(&fused, &drawn, &left);
            assert!(share <= 1.0, "{seed} {dtype} by {}: {share}\n{}", partition.id, fused.explain());
            (partitions, most) = (partitions + 1, most.max(share));
        }
    }
    assert!(partitions as u64 > count + count / 8, "{partitions} partitions, at most {most} of the allowed error");
}
