//! Batches: every variant of one product does a batch of them, one after the other, each with all its threads.
//!
//! What comes in is a variant that knows nothing of batches; what goes out is one that builds its kernel for a single
//! product and launches it once for each of the batch.

use std::sync::Arc;

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Ceilings;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::Cpu;

use crate::gemm::{Gemm, GemmArgs, GemmProblem};

/// A variant of one product that also does batches.
struct Batched<V>(V);

/// The variant of one product as one of batches.
pub(super) fn batched<V: Variant<Gemm, Cpu> + 'static>(variant: V) -> Arc<dyn Variant<Gemm, Cpu>> {
    Arc::new(Batched(variant))
}

impl<V: Variant<Gemm, Cpu>> Variant<Gemm, Cpu> for Batched<V> {
    fn id(&self) -> &str {
        self.0.id()
    }

    fn source(&self) -> SourceHash {
        self.0.source()
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

    fn build(&self, p: &GemmProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Gemm, Cpu>>, Rejection> {
        let single = p.single();
        let one = self.0.build(&single, config, cpu)?;
        if p.batch == 1 { Ok(one) } else { Ok(Box::new(Turns { single, one })) }
    }

    fn is_library(&self) -> bool {
        self.0.is_library()
    }
}

struct Turns {
    single: GemmProblem,
    one: Box<dyn Kernel<Gemm, Cpu>>,
}

impl Kernel<Gemm, Cpu> for Turns {
    fn launch(&self, mut args: GemmArgs<'_, Cpu>, queue: &()) -> Result<(), Rejection> {
        let [a, b, c] = self.single.strides().map(|s| s as usize);
        for i in 0..args.problem.batch as usize {
            let problem = &self.single;
            let (a, b, c) = (args.a.from(i * a), args.b.from(i * b), args.c.from(i * c));
            self.one.launch(GemmArgs { problem, a, b, c }, queue)?;
        }
        Ok(())
    }

    fn workspace(&self) -> u64 {
        self.one.workspace()
    }
}
