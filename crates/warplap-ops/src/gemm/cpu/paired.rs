//! Pairs: every variant of one product does act(A·B) ∘ (A·B2) as two of them.
//!
//! What comes in is a variant that knows nothing of pairs; what goes out is one that puts A·B2 into scratch memory and
//! joins it in the epilogue of the other product, where a tile is in the nearest cache. Of what is done that way only
//! the scratch is written and read once more, which is little beside 4·k operations an element. The scratch has the
//! type of C: in half types the second product is rounded once before it is joined.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Ceilings;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::{Cpu, Slice, SliceMut, Typed};

use super::kernel::scratch;
use crate::gemm::slot::{A, B, B2, C, SCALE};
use crate::gemm::{Activation, Gemm, GemmProblem, Join};
use crate::typed::for_dtype;

/// A variant of one product that also does pairs.
pub(super) struct Paired<V>(pub(super) V);

/// The activated product of a pair, joined with the other one; what is no pair stays as it is.
fn first(p: &GemmProblem) -> GemmProblem {
    if p.pair { p.with_pair(false).with_join(Join::Mul) } else { *p }
}

/// The other product of a pair, which lies as C does.
fn second(p: &GemmProblem) -> GemmProblem {
    p.with_pair(false).with_epilogue(false, Activation::None)
}

impl<V: Variant<Gemm, Cpu>> Variant<Gemm, Cpu> for Paired<V> {
    fn id(&self) -> &str {
        self.0.id()
    }

    fn source(&self) -> SourceHash {
        source!(&self.0.source().0)
    }

    fn fit(&self, p: &GemmProblem, cpu: &Cpu) -> Fit {
        self.0.fit(&first(p), cpu)
    }

    fn space(&self, p: &GemmProblem, cpu: &Cpu) -> Space {
        self.0.space(&first(p), cpu)
    }

    fn needs(&self, p: &GemmProblem, config: &Config) -> Needs {
        let one = self.0.needs(&first(p), config);
        let between = if p.pair { (p.c_len() * p.dtype.bytes()) as u64 } else { 0 };
        Needs { workspace: one.workspace + between, ..one }
    }

    fn floor(&self, p: &GemmProblem, config: &Config, ceilings: &Ceilings) -> Option<f64> {
        self.0.floor(p, config, ceilings)
    }

    fn build(&self, p: &GemmProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let joined = self.0.build(&first(p), config, cpu)?;
        if !p.pair {
            return Ok(joined);
        }
        Ok(Box::new(Two { problem: *p, other: self.0.build(&second(p), config, cpu)?, joined }))
    }

    fn is_library(&self) -> bool {
        self.0.is_library()
    }
}

struct Two {
    problem: GemmProblem,
    other: Box<dyn Kernel<Cpu>>,
    joined: Box<dyn Kernel<Cpu>>,
}

impl Kernel<Cpu> for Two {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], queue: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => launch::<T>(self, args, queue))
    }

    fn workspace(&self) -> u64 {
        self.other.workspace().max(self.joined.workspace())
    }
}

fn launch<T: Number>(kernel: &Two, args: &mut [Arg<'_, Cpu>], queue: &()) -> Result<(), Rejection>
where
    for<'a> Slice<'a>: From<&'a [T]>,
    for<'a> SliceMut<'a>: From<&'a mut [T]>,
{
    let (a, b, b2, mut c) = (args[A].read()?, args[B].read()?, args[B2].read()?, args[C].write()?);
    let (len, scale) = (kernel.problem.c_len(), args[SCALE].view());
    scratch::with((len * size_of::<T>()).div_ceil(size_of::<f32>()), |numbers| {
        // SAFETY: there are so many bytes, `numbers` is borrowed as long as this is, its alignment is a cache line, and
        // every pattern of bits is a number.
        let between = unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast::<T>(), len) };
        let to = Arg::Write((&mut *between).into());
        let factors = Arg::optional(scale);
        let mut args = [Arg::Read(a), Arg::Read(b2), to, Arg::Absent, Arg::Absent, Arg::Absent, factors];
        kernel.other.launch(&mut args, queue)?;
        let (c, with, factors) = (Arg::Write(c.reborrow()), Arg::Read((&*between).into()), Arg::optional(scale));
        kernel.joined.launch(&mut [Arg::Read(a), Arg::Read(b), c, Arg::Absent, with, Arg::Absent, factors], queue)
    })
}

/// Types of which every pattern of bits is a number, aligned no further than f32.
trait Number: Typed {}
impl Number for f32 {}
impl Number for half::f16 {}
impl Number for half::bf16 {}
