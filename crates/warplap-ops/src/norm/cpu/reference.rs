//! The reference: plain loops over a row, one thread.
//!
//! Idea: mean, squares, then y, each in a loop of its own, and codes of a row that is done; a row's sums are made of
//! short ones, as f32 asks for.
//! Wins: never by design. Limits: none; it fits everything and is the fallback.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::scalar::F8E4m3;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use crate::norm::{Kind, Norm, NormProblem, Quant, quant, slot};
use crate::philox::Dropout;
use crate::typed::{self, for_dtype};

/// Plain loops.
pub(super) struct Reference;

/// Terms that are summed one after another: the error of a sum grows with the length of its chain.
const CHAIN: usize = 128;

impl Variant<Norm, Cpu> for Reference {
    fn id(&self) -> &str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &NormProblem, _: &Cpu) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &NormProblem, _: &Cpu) -> Space {
        Space::single()
    }

    fn build(&self, p: &NormProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Loops(*p)))
    }
}

struct Loops(NormProblem);

impl Kernel<Cpu> for Loops {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.0.dtype, T => rows::<T>(&self.0, args))
    }
}

/// A sum over a row.
fn over(row: &[f32], term: impl Fn(f32) -> f32) -> f32 {
    row.chunks(CHAIN).map(|chain| chain.iter().map(|s| term(*s)).sum::<f32>()).sum()
}

fn optional<'a, T: Typed>(arg: &Arg<'a, Cpu>) -> Result<Option<&'a [T]>, Rejection> {
    arg.view().map(typed::read::<T>).transpose()
}

fn rows<T: Element + Typed>(p: &NormProblem, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let n = p.n as usize;
    let x = typed::read::<T>(args[slot::X].read()?)?;
    let residual = optional::<T>(&args[slot::RESIDUAL])?;
    let (weight, bias) = (optional::<T>(&args[slot::WEIGHT])?, optional::<T>(&args[slot::BIAS])?);
    let mut y = Out::<T>::of(p, args)?;
    let before = optional::<T>(&args[slot::BEFORE])?;
    let seed = optional::<i64>(&args[slot::SEED])?.map(|seed| [seed[0] as u64, seed[1] as u64]);
    let dropout = Dropout::new(p.dropout());
    let mut factors = vec![1f32; n];
    let mut sum = if p.has_sum() { Some(typed::write::<T>(args[slot::SUM].write()?)?) } else { None };
    let mut row = vec![0f32; n];
    for first in (0..p.len()).step_by(n) {
        if let Some(seed) = seed {
            dropout.factors(first as u64, seed, &mut factors);
        }
        for (i, s) in row.iter_mut().enumerate() {
            *s = (x[first + i].widen() + before.map_or(0.0, |b| b[i].widen())) * factors[i];
            *s += residual.map_or(0.0, |r| r[first + i].widen());
            if let Some(sum) = &mut sum {
                sum[first + i] = T::narrow(*s);
            }
        }
        let mean = if p.kind == Kind::Layer { over(&row, |s| s) / n as f32 } else { 0.0 };
        let square = over(&row, |s| (s - mean) * (s - mean)) / n as f32;
        let inverse = 1.0 / (square + p.eps()).sqrt();
        for (i, s) in row.iter_mut().enumerate() {
            let norm = (*s - mean) * inverse;
            *s = norm * weight.map_or(1.0, |w| w[i].widen()) + bias.map_or(0.0, |b| b[i].widen());
        }
        y.put(first, &row);
    }
    Ok(())
}

/// The largest magnitude of a row; the first that is no number stays.
fn largest(row: &[f32]) -> f32 {
    row.iter().fold(0.0, |most, y| if y.abs() > most || y.is_nan() { y.abs() } else { most })
}

/// Where the norm goes.
enum Out<'a, T> {
    Numbers(&'a mut [T]),
    F8(&'a mut [F8E4m3], &'a mut [f32]),
    I8(&'a mut [i8], &'a mut [f32]),
}

impl<'a, T: Element + Typed> Out<'a, T> {
    fn of(p: &NormProblem, args: &mut [Arg<'a, Cpu>]) -> Result<Self, Rejection> {
        let y = args[slot::Y].write()?;
        if p.quant == Quant::None {
            return Ok(Out::Numbers(typed::write::<T>(y)?));
        }
        let scales = typed::write::<f32>(args[slot::SCALE].write()?)?;
        Ok(match p.quant {
            Quant::I8 => Out::I8(typed::write::<i8>(y)?, scales),
            _ => Out::F8(typed::write::<F8E4m3>(y)?, scales),
        })
    }

    /// Writes a row, which begins at an element.
    fn put(&mut self, first: usize, row: &[f32]) {
        match self {
            Out::Numbers(to) => to[first..].iter_mut().zip(row).for_each(|(to, y)| *to = T::narrow(*y)),
            Out::F8(to, scales) => {
                let (scale, factor) = quant::factors(Quant::F8E4m3, largest(row));
                scales[first / row.len()] = scale;
                to[first..].iter_mut().zip(row).for_each(|(to, y)| to.0 = quant::f8e4m3(y * factor));
            }
            Out::I8(to, scales) => {
                let (scale, factor) = quant::factors(Quant::I8, largest(row));
                scales[first / row.len()] = scale;
                to[first..].iter_mut().zip(row).for_each(|(to, y)| *to = quant::i8(y * factor) as i8);
            }
        }
    }
}
