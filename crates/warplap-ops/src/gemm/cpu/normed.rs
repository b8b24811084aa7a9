//! Norms in front: every variant of a product with a factor for each row does one behind an RMSNorm.
//!
//! What comes in is a variant that takes factors; what goes out is one that finds 1/√(mean(x²) + eps) of A's rows first,
//! which reads A once more: little beside 2·n operations an element.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Ceilings;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Slice, Typed};

use super::kernel::scratch;
use crate::gemm::slot::{A, B, B2, BIAS, C, JOINED};
use crate::gemm::{Gemm, GemmProblem, Rms, Scale};
use crate::typed::{for_dtype, read};

/// A variant of a product with factors that also does those of a norm.
pub(super) struct Normed<V>(pub(super) V);

/// The product with given factors; what has no norm in front stays as it is.
fn scaled_problem(p: &GemmProblem) -> GemmProblem {
    if p.rms.is_some() { p.with_rms(None).with_scale(Scale::Rows) } else { *p }
}

impl<V: Variant<Gemm, Cpu>> Variant<Gemm, Cpu> for Normed<V> {
    fn id(&self) -> &str {
        self.0.id()
    }

    fn source(&self) -> SourceHash {
        source!(&self.0.source().0)
    }

    fn fit(&self, p: &GemmProblem, cpu: &Cpu) -> Fit {
        self.0.fit(&scaled_problem(p), cpu)
    }

    fn space(&self, p: &GemmProblem, cpu: &Cpu) -> Space {
        self.0.space(&scaled_problem(p), cpu)
    }

    fn needs(&self, p: &GemmProblem, config: &Config) -> Needs {
        let one = self.0.needs(&scaled_problem(p), config);
        let factors = if p.rms.is_some() { 4 * p.m } else { 0 };
        Needs { workspace: one.workspace + factors, ..one }
    }

    fn floor(&self, p: &GemmProblem, config: &Config, ceilings: &Ceilings) -> Option<f64> {
        self.0.floor(p, config, ceilings)
    }

    fn build(&self, p: &GemmProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let scaled = self.0.build(&scaled_problem(p), config, cpu)?;
        Ok(match p.rms {
            Some(rms) => Box::new(Behind { problem: *p, rms, scaled }),
            None => scaled,
        })
    }

    fn is_library(&self) -> bool {
        self.0.is_library()
    }
}

struct Behind {
    problem: GemmProblem,
    rms: Rms,
    scaled: Box<dyn Kernel<Cpu>>,
}

impl Kernel<Cpu> for Behind {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], queue: &()) -> Result<(), Rejection> {
        let p = &self.problem;
        let (a, b, mut c) = (args[A].read()?, args[B].read()?, args[C].write()?);
        let [bias, joined, b2] = [BIAS, JOINED, B2].map(|slot| args[slot].view());
        scratch::with(p.m as usize, |factors| {
            for_dtype!(p.dtype, T => factors_of::<T>(p, self.rms, a, factors))?;
            let (a, b, c) = (Arg::Read(a), Arg::Read(b), Arg::Write(c.reborrow()));
            let [bias, joined, b2] = [bias, joined, b2].map(Arg::optional);
            self.scaled.launch(&mut [a, b, c, bias, joined, b2, Arg::Read((&*factors).into())], queue)
        })
    }

    fn workspace(&self) -> u64 {
        self.scaled.workspace()
    }
}

/// Parts of a row that are summed side by side: the processor need not wait for one sum.
const LANES: usize = 16;

/// 1/√(mean(x²) + eps) of every row of A.
fn factors_of<T: Element + Typed>(p: &GemmProblem, rms: Rms, a: Slice<'_>, to: &mut [f32]) -> Result<(), Rejection> {
    let (a, k) = (read::<T>(a)?, p.k as usize);
    for (i, to) in to.iter_mut().take(p.m as usize).enumerate() {
        let row = &a[i * p.lda as usize..][..k];
        let (chunks, mut sums) = (row.chunks_exact(LANES), [0f32; LANES]);
        let rest: f32 = chunks.remainder().iter().map(|x| x.widen() * x.widen()).sum();
        for chunk in chunks {
            sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += x.widen() * x.widen());
        }
        *to = 1.0 / ((rest + sums.iter().sum::<f32>()) / k.max(1) as f32 + rms.eps()).sqrt();
    }
    Ok(())
}
