//! Batches: every variant of one product does a batch of them, one after the other, each with all its threads.
//!
//! What comes in is a variant that knows nothing of batches; what goes out is one that builds its kernel for a single
//! product and launches it once for each of the batch.

use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Ceilings;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::Cpu;

use super::normed::Normed;
use super::paired::Paired;
use crate::gemm::slot::{A, B, B2, BIAS, C, JOINED, SCALE};
use crate::gemm::{Gemm, GemmProblem, Scale};

/// A variant of one product that also does batches.
struct Batched<V>(V);

/// The variant of one product as one of batches, of pairs and behind norms.
pub(super) fn batched<V: Variant<Gemm, Cpu> + 'static>(variant: V) -> Arc<dyn Variant<Gemm, Cpu>> {
    Arc::new(Batched(Normed(Paired(variant))))
}

impl<V: Variant<Gemm, Cpu>> Variant<Gemm, Cpu> for Batched<V> {
    fn id(&self) -> &str {
        self.0.id()
    }

    fn source(&self) -> SourceHash {
        source!(&self.0.source().0)
    }

    fn fit(&self, p: &GemmProblem, cpu: &Cpu) -> Fit {
        self.0.fit(&p.single(), cpu)
    }

    fn space(&self, p: &GemmProblem, cpu: &Cpu) -> Space {
        self.0.space(&p.single(), cpu)
    }

    fn needs(&self, p: &GemmProblem, config: &Config) -> Needs {
        self.0.needs(&p.single(), config)
    }

    fn floor(&self, p: &GemmProblem, config: &Config, ceilings: &Ceilings) -> Option<f64> {
        // Too low for a batch, which prunes less and nothing wrongly.
        self.0.floor(&p.single(), config, ceilings)
    }

    fn build(&self, p: &GemmProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let one = self.0.build(&p.single(), config, cpu)?;
        if p.batch == 1 {
            return Ok(one);
        }
        let [a, b, c] = p.strides().map(|s| s as usize);
        let factors = if p.scale == Scale::Rows { p.m as usize } else { 0 };
        Ok(Box::new(Turns { batch: p.batch as usize, strides: [a, b, c, factors], one }))
    }

    fn is_library(&self) -> bool {
        self.0.is_library()
    }
}

struct Turns {
    batch: usize,
    /// From one A, B, C and list of factors to the next.
    strides: [usize; 4],
    one: Box<dyn Kernel<Cpu>>,
}

impl Kernel<Cpu> for Turns {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], queue: &()) -> Result<(), Rejection> {
        let (a, b, mut c) = (args[A].read()?, args[B].read()?, args[C].write()?);
        let [bias, joined, b2, scale] = [BIAS, JOINED, B2, SCALE].map(|slot| args[slot].view());
        for i in 0..self.batch {
            let [a_from, b_from, c_from, scale_from] = self.strides.map(|stride| i * stride);
            let (a, b, c) = (Arg::Read(a.from(a_from)), Arg::Read(b.from(b_from)), Arg::Write(c.from(c_from)));
            let (joined, b2) = (joined.map(|all| all.from(c_from)), b2.map(|all| all.from(b_from)));
            let [bias, joined, b2, scale] =
                [bias, joined, b2, scale.map(|all| all.from(scale_from))].map(Arg::optional);
            self.one.launch(&mut [a, b, c, bias, joined, b2, scale], queue)?;
        }
        Ok(())
    }

    fn workspace(&self) -> u64 {
        self.one.workspace()
    }
}
