//! Times what a program waits for when its key is in the store: opening the device, the answer with its kernel built,
//! and the same again. The problem is named by `WARPLAP_PROBLEM`, the store by `WARPLAP_STORE`; needs an NVIDIA GPU,
//! and `warplap tune` before.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use warplap::{Gemm, Op, Session};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    warplap::worker::serve_if_asked();
    let text = std::env::var("WARPLAP_PROBLEM").unwrap_or_else(|_| "gemm:m=4096,n=4096,k=4096,dtype=bf16".into());
    let problem = Gemm::parse(&text)?;
    let Some(directory) = std::env::var_os("WARPLAP_STORE") else {
        println!("nothing to time: set WARPLAP_STORE to a store that knows a problem on a GPU");
        return Ok(());
    };
    let timed = |what: &str, started: Instant| println!("{what}: {:.3} ms", started.elapsed().as_secs_f64() * 1e3);
    let started = Instant::now();
    let session = Session::builder().store(directory).cuda(0)?;
    timed("driver, context, compiler library", started);
    let started = Instant::now();
    let tuner = session.tuner::<Gemm>();
    let result = tuner.lookup(&problem);
    timed("lookup alone", started);
    let started = Instant::now();
    let chosen = tuner.choose(&problem)?;
    timed("answer with its kernel built", started);
    println!("{} ({:?}; the store says {:?})", chosen.candidate, chosen.how, result.map(|f| f.1));
    let started = Instant::now();
    let again = tuner.choose(&problem)?;
    timed("the same again", started);
    drop(again);
    Ok(())
}
