//! A graph of operations: a gated layer with its norm and a residual around it. Which nodes become one launch is decided
//! by the measured time of whole chains. `--cuda` runs it on a GPU, `--rows 256` and `--width 4096` make it larger.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use warplap::graph::{Fused, Ground};
use warplap::{Budget, DType, Error, Session};

/// x + down(silu(gate(norm(x))) ∘ up(norm(x))), as a layer of a language model has it; x is itself a sum.
fn layer<D: Ground>(session: &Session<D>, rows: u64, n: u64, dtype: DType) -> Result<Fused<D>, Error> {
    let wide = n * 5 / 2;
    let mut g = session.graph();
    let (x, residual) = (g.input("x", dtype, &[rows, n]), g.input("residual", dtype, &[rows, n]));
    let gain = g.input("gain", dtype, &[n]);
    let (gate, up) = (g.input("gate", dtype, &[wide, n]), g.input("up", dtype, &[wide, n]));
    let down = g.input("down", dtype, &[n, wide]);
    let sum = g.add(x, residual)?;
    let h = g.rms_norm(sum, gain, 1e-6)?;
    let open = g.linear(h, gate)?;
    let open = g.silu(open)?;
    let passed = g.linear(h, up)?;
    let passed = g.mul(open, passed)?;
    let y = g.linear(passed, down)?;
    let y = g.add(y, sum)?;
    g.output("y", y).output("sum", sum).build()
}

/// The number behind a word of the command line.
fn said(word: &str, usual: u64) -> u64 {
    let after = std::env::args().skip_while(|arg| arg != word).nth(1);
    after.and_then(|number| number.parse().ok()).unwrap_or(usual)
}

pub(crate) fn main() -> Result<(), Error> {
    warplap::worker::serve_if_asked();
    let builder = Session::builder().in_memory();
    if std::env::args().any(|arg| arg == "--cuda") {
        let fused = layer(&builder.cuda(0)?, said("--rows", 16), said("--width", 4096), DType::Bf16)?;
        let started = Instant::now();
        fused.tune(&warplap::core::progress::Silent)?;
        println!("{}\ndecided in {:.1} s", fused.explain(), started.elapsed().as_secs_f64());
        return Ok(());
    }
    // Enough for a small layer; larger ones want `--seconds 4` for each key.
    let seconds = said("--seconds", 0) as f64;
    let session = builder.budget(Budget { seconds: seconds.max(0.2), ..Budget::default() }).build();
    let (rows, n) = (said("--rows", 4), said("--width", 64));
    let fused = layer(&session, rows, n, DType::F32)?;
    let wide = n * 5 / 2;
    let numbers = |len: u64| (0..len).map(|i| (i % 13) as f32 / 13.0 - 0.5).collect::<Vec<f32>>();
    let (x, residual, gain) = (numbers(rows * n), numbers(rows * n), numbers(n));
    let (gate, up, down) = (numbers(wide * n), numbers(wide * n), numbers(n * wide));
    let (mut y, mut sum) = (vec![0f32; x.len()], vec![0f32; x.len()]);
    let all = [("x", &x), ("residual", &residual), ("gain", &gain), ("gate", &gate), ("up", &up), ("down", &down)];
    // The first run decides.
    let inputs = all.map(|(name, numbers)| (name, numbers[..].into()));
    fused.run(inputs, [("y", (&mut y[..]).into()), ("sum", (&mut sum[..]).into())])?;
    println!("{}", fused.explain());
    assert!(sum.iter().zip(x.iter().zip(&residual)).all(|(sum, (x, r))| (sum - (x + r)).abs() < 1e-6));
    assert!(y.iter().all(|y| y.is_finite()));
    Ok(())
}
