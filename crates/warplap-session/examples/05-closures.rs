//! A kernel of your own from closures: what it is given, what is right, and how a setting becomes something to launch.
//! It is verified, raced and remembered like any other.

#![allow(clippy::print_stdout)]

use std::sync::Arc;

use warplap::core::arg::Arg;
use warplap::core::array::Array;
use warplap::core::progress::Silent;
use warplap::core::roofline::Work;
use warplap::core::space::{Axis, Space};
use warplap::core::store::Store;
use warplap::cpu::{Slice, SliceMut};
use warplap::own::{OwnKernel, OwnVariant};
use warplap::{Budget, Cpu, DType, Error, Settings};

const N: usize = 1 << 16;

pub(crate) fn main() -> Result<(), Error> {
    let smooth = OwnKernel::new("smooth", (DType::F32, N))
        .inputs(|rng| vec![Array::random(DType::F32, N + 2, rng)])
        .answer(|inputs| inputs[0].to_f64().windows(3).map(|w| (w[0] + w[1] + w[2]) / 3.0).collect())
        .work(Work { flops: 3.0 * N as f64, bytes: 8.0 * N as f64 });

    let space = Space::single()
        .axis(Axis::ints("CHUNK", [64, 256, 1024, 4096]))
        .axis(Axis::ints("UNROLL", [1, 2, 4, 8]))
        .constrain("CHUNK % UNROLL == 0 and CHUNK * UNROLL <= 8192")
        .map_err(|e| Error::Unknown(e.to_string()))?;
    let chunked = OwnVariant::<Cpu>::new("chunked", "1", space, |config, _| {
        let size = |axis: &str| config.int(axis).unwrap_or(1) as usize;
        let (chunk, unroll) = (size("CHUNK"), size("UNROLL"));
        Ok(Box::new(move |args: &mut [Arg<'_, Cpu>], _: &()| {
            if let (Slice::F32(x), SliceMut::F32(y)) = (args[0].read()?, args[1].write()?) {
                for (i, part) in y.chunks_mut(chunk).enumerate() {
                    for (j, few) in part.chunks_mut(unroll).enumerate() {
                        let at = i * chunk + j * unroll;
                        few.iter_mut().enumerate().for_each(|(k, y)| *y = window(&x[at + k..]));
                    }
                }
            }
            Ok(())
        }))
    });

    let settings = Settings { budget: Budget { seconds: 1.0, ..Budget::default() }, ..Settings::default() };
    let device = Arc::new(Cpu::with_threads(1));
    let (tuner, problem) = smooth.open(device, chunked, Vec::new(), Store::memory(), settings);
    let tuned = tuner.tune(&problem, &Silent)?;
    let verdict = &tuned.edition.verdict;
    assert!(tuned.edition.trials.iter().all(|t| t.is_right()));
    println!("{} takes {:.1} us", verdict.winner, verdict.median_us);
    // What is known answers at once; `tune` would go on with a record that is not clean.
    assert!(tuner.ensure(&problem, &Silent)?.from_store);
    Ok(())
}

fn window(x: &[f32]) -> f32 {
    (x[0] + x[1] + x[2]) / 3.0
}
