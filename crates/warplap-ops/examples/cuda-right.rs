//! Holds the GPU's right answers of every operation to the host's, and the GPU's comparison to
//! planted mistakes.
//!
//! `cuda-right [PART OF]`: every `OF`th problem from `PART` on, so that several processes share them. Needs an NVIDIA
//! GPU and NVRTC. Prints one line a problem and fails on the first that is not as it should be.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use warplap_core::array::Array;
use warplap_core::catalog::Raced;
use warplap_core::device::{Bounds, Device};
use warplap_core::op::Answer;
use warplap_core::slot::Slot;
use warplap_core::verify::poison_of;
use warplap_cuda::{Buffer, Cuda};
use warplap_ops::registry::{self, Known, Visitor};

type Failed = Box<dyn std::error::Error>;

/// Elements of a guard band, and what they hold.
const GUARD: usize = 256;
const BAND: f64 = -1024.0;

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<usize>());
    let mut number = |usual| arguments.next().unwrap_or(Ok(usual));
    let (part, of) = (number(0)?, number(1)?.max(1));
    let mut proof = Proof { device: Cuda::open(0)?, part, of, turn: 0, right: 0, failed: None };
    registry::each(&mut proof);
    if let Some(failed) = proof.failed {
        return Err(failed);
    }
    println!("{} of {} problems are right", proof.right, proof.turn);
    Ok(())
}

/// The device, this process's share of the problems, and how many there were.
struct Proof {
    device: Cuda,
    part: usize,
    of: usize,
    turn: usize,
    right: usize,
    failed: Option<Failed>,
}

impl Visitor for Proof {
    /// Holds the device's answers to an operation's problems to the host's.
    fn visit<O: Known>(&mut self) {
        for text in O::PROOFS {
            if self.failed.is_none() && self.turn % self.of == self.part {
                match held_one::<O>(&self.device, text) {
                    Ok(()) => self.right += 1,
                    Err(why) => self.failed = Some(format!("{text}: {why}").into()),
                }
            }
            self.turn += 1;
        }
    }
}

fn held_one<O: Raced<Cuda>>(device: &Cuda, text: &str) -> Result<(), Failed> {
    let catalog = O::catalog();
    let (p, oracle) = (&O::parse(text)?, catalog.oracle().ok_or("no oracle")?);
    let inputs = O::draw(p, &mut fastrand::Rng::with_seed(11));
    let (host, signature) = (O::answer(p, &inputs), O::signature(p));
    let read: Vec<Option<Buffer>> = signature
        .slots()
        .iter()
        .zip(&inputs)
        .map(|(slot, a)| slot.is_read().then(|| device.upload(a)).transpose())
        .collect::<Result<_, _>>()?;
    let views: Vec<_> = read.iter().zip(&inputs).map(|(b, a)| b.as_ref().map(|b| device.view(b, 0..a.len()))).collect();
    oracle.answer(p, &views, device)?;
    let started = Instant::now();
    let far = oracle.answer(p, &views, device)?;
    let seconds = started.elapsed().as_secs_f64();
    if far.len() != host.len() {
        return Err(format!("{} answers are not {}", far.len(), host.len()).into());
    }
    let (mut worst, mut planted) = (0f64, 0);
    for ((far, host), slot) in far.iter().zip(&host).zip(signature.written()) {
        let values = device.download(&far.values)?.to_f64();
        let off = |(x, y): (&f64, &f64)| {
            if x.is_nan() || y.is_nan() { f64::from(x.is_nan() != y.is_nan()) } else { (x - y).abs() }
        };
        worst = values.iter().zip(&host.values).map(off).fold(worst, f64::max);
        if values.len() != host.values.len() || worst > 1e-9 {
            return Err(format!("{}: the answers differ by {worst}", slot.name).into());
        }
        let same = |x: f64, y: f64| (x - y).abs() <= 1e-9 * y.abs();
        if !same(far.tolerance.floor, host.tolerance.floor) || far.tolerance.relative != host.tolerance.relative {
            return Err(format!("{}: {:?} is not {:?}", slot.name, far.tolerance, host.tolerance).into());
        }
        planted += mistakes(device, slot, host, &far.values)?;
    }
    println!("RIGHT {text}: off by {worst:.1e}, {:.2} ms; {planted} mistakes seen", seconds * 1e3);
    Ok(())
}

/// Plants mistakes into a right output and asks the device for each; gives how many there were.
fn mistakes(device: &Cuda, slot: &Slot, host: &Answer, right: &Buffer) -> Result<usize, Failed> {
    let len = host.values.len();
    let bounds = Bounds { guard: GUARD, guard_value: BAND, tolerance: host.tolerance };
    let band = || std::iter::repeat_n(BAND, GUARD);
    let whole: Vec<f64> = band().chain(host.values.iter().copied()).chain(band()).collect();
    let seal = device.seal(right)?;
    let share = |values: &[f64]| -> Result<f64, Failed> {
        // An output of whole numbers holds the nearest, and none stands for what was never written.
        let whole = |v: f64| if v.is_nan() { poison_of(slot.dtype) } else { v.round() };
        let held = values.iter().map(|v| if slot.dtype.is_whole() { whole(*v) } else { *v });
        let output = device.upload(&Array::from_f64(slot.dtype, held))?;
        let compared = device.compare(&output, right, bounds)?;
        if compared.seal != seal {
            return Err("the seal of the answer changes by reading it".into());
        }
        Ok(compared.share)
    };
    let fine = share(&whole)?;
    if fine > 1.0 {
        return Err(format!("a right output takes {fine} of what is allowed").into());
    }
    let mut places = vec![(0, 0.0), (GUARD - 1, 0.0), (GUARD, f64::NAN), (GUARD + len - 1, f64::NAN)];
    places.extend([(GUARD + len, f64::NAN), (len + 2 * GUARD - 1, 0.0)]);
    let middle = (0..=len / 2).rev().find(|at| !host.values[*at].is_nan()).unwrap_or(0);
    places.push((GUARD + middle, host.values[middle] + 3.0 * host.tolerance.allowed(host.values[middle]) + 1e-30));
    places.extend(slot.padding().first().map(|gap| (GUARD + gap.start, 0.0)));
    for (at, value) in &places {
        let mut changed = whole.clone();
        changed[*at] = *value;
        let seen = share(&changed)?;
        if seen <= 1.0 {
            return Err(format!("{value} at {at} of {len} was not seen: {seen}").into());
        }
    }
    let mut other = device.download(right)?.to_f64();
    other.swap(0, len - 1);
    other[len / 2] += 1.0;
    if device.seal(&device.upload(&Array::F64(other))?)? == seal {
        return Err("another answer has the same seal".into());
    }
    Ok(places.len() + 1)
}
