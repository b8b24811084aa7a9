//! Tunes a problem, then times one sample for every line that arrives on standard input: another program can alternate
//! with it in short rounds, so that the machine's moods strike both alike (`lab/cpu/side_by_side.py` does).
#![allow(clippy::print_stdout)]

use std::io::{BufRead, Write, stdin, stdout};
use std::time::Instant;

use warplap::core::device::Device;
use warplap::core::progress::Silent;
use warplap::core::verify::Case;
use warplap::{Attention, Bsr, Cpu, Error, Gemm, Raced, Session};

/// Seconds of one sample at least: short kernels are launched several times.
const SAMPLE: f64 = 2e-3;

fn serve<O: Raced<Cpu>>(session: &Session, text: &str) -> Result<(), Error> {
    let problem = O::parse(text)?;
    let tuner = session.tuner::<O>();
    let tuned = tuner.tune(&problem, &Silent)?;
    let verdict = &tuned.edition.verdict;
    let chosen = tuner.choose(&problem)?;
    println!("{} {:.3} {}", verdict.winner, verdict.median_us, tuned.edition.work.flops);

    let device = session.device();
    let mut case = Case::without_answer(&tuner.erased(&problem), &**device, 7)?;
    let launches = (SAMPLE * 1e6 / verdict.median_us).ceil().clamp(1.0, 1e6) as u32;
    for line in stdin().lock().lines() {
        if line.is_err() {
            break;
        }
        let start = Instant::now();
        for _ in 0..launches {
            let failed = |rejection| Error::Launch { problem: text.into(), rejection };
            case.launch(&*chosen.kernel, device, device.queue()).map_err(failed)?;
        }
        println!("{:e}", start.elapsed().as_secs_f64() / f64::from(launches));
        // Whoever paces us may be gone: that is the end, not an error.
        if stdout().flush().is_err() {
            break;
        }
    }
    Ok(())
}

pub(crate) fn main() -> Result<(), Error> {
    let text = std::env::args().nth(1).filter(|a| a.contains(':'));
    let text = text.unwrap_or_else(|| "gemm:m=64,n=64,k=64,dtype=f32".into());
    let session = Session::builder().in_memory().build();
    match text.split(':').next() {
        Some("attention") => serve::<Attention>(&session, &text),
        Some("bsr") => serve::<Bsr>(&session, &text),
        _ => serve::<Gemm>(&session, &text),
    }
}
