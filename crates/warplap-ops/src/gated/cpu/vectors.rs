//! Vectors: one pass over pieces of rows, dealt out to threads.
//!
//! Idea: memory is read and written once, the activation is that of products' epilogues, and what is written may go
//! past the caches. Rows are cut into pieces, so that one long row has work for all threads. Wins: everything. Limits: none.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::problem::Problem;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::simd::{Element, Lanes, Task};
use warplap_cpu::{Cpu, Typed};

use super::call::Call;
use crate::gated::{Gated, GatedProblem};
use crate::gemm::cpu::kernel::activate::activate;
use crate::gemm::{Activation, Join};
use crate::row_vectors::{Setting, load, put, streaming_space};
use crate::typed::for_dtype;

/// One pass over pieces of rows.
pub(super) struct Vectors;

/// Elements of a piece at the most, a multiple of every vector.
const PIECE: usize = 1 << 14;

impl Variant<Gated, Cpu> for Vectors {
    fn id(&self) -> &str {
        "vectors"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &GatedProblem, _: &Cpu) -> Fit {
        Fit::HIGH
    }

    fn space(&self, p: &GatedProblem, cpu: &Cpu) -> Space {
        streaming_space(p.work().bytes, p.len() as f64 * p.dtype.bytes() as f64, cpu)
    }

    fn needs(&self, _: &GatedProblem, config: &Config) -> Needs {
        Needs { threads: config.size("threads").unwrap_or(1) as u64, ..Needs::default() }
    }

    fn build(&self, p: &GatedProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Built { problem: *p, setting: Setting::read(config, cpu)? }))
    }
}

struct Built {
    problem: GatedProblem,
    setting: Setting,
}

impl Kernel<Cpu> for Built {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => rows::<T>(&self.problem, &self.setting, args))
    }
}

fn rows<T: Element + Typed>(p: &GatedProblem, setting: &Setting, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let (call, n) = (Call::<T>::of(p, args)?, p.n as usize);
    let (pieces, streams) = (n.div_ceil(PIECE), setting.streams(call.y, n));
    setting.each(p.rows as usize * pieces, n.min(PIECE), |first, end| {
        setting.isa.run(Run { call: &call, streams, pieces, first, end });
    });
    Ok(())
}

/// Pieces of a call, from the first to before the end; so many make a row.
struct Run<'a, T> {
    call: &'a Call<T>,
    streams: bool,
    pieces: usize,
    first: usize,
    end: usize,
}

impl<T: Element> Task for Run<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let n = self.call.problem.n as usize;
        for piece in self.first..self.end {
            let begin = piece % self.pieces * PIECE;
            let (a, b, y) = self.call.row(piece / self.pieces);
            // SAFETY: the call has these rows of n elements, and this task alone writes its pieces; the instruction set
            // is the caller's word.
            unsafe { self.piece::<L>([a, b], y, begin, n.min(begin + PIECE)) };
        }
        if self.streams {
            // SAFETY: the instruction set is the caller's word.
            unsafe { L::streamed() }
        }
    }
}

impl<T: Element> Run<'_, T> {
    /// One piece of a row. What is done is asked once, so that each loop is compiled for itself.
    ///
    /// # Safety
    /// All rows have elements up to `end`, and the machine the instruction set of `L`.
    #[inline(always)]
    unsafe fn piece<L: Lanes>(&self, from: [*const T; 2], y: *mut T, begin: usize, end: usize) {
        let p = &self.call.problem;
        macro_rules! with {
            ($($act:ident)*) => {
                match p.act {
                    // SAFETY: the caller's word.
                    $(Activation::$act => unsafe { self.done::<L>(Activation::$act, p.join, from, y, begin, end) },)*
                }
            };
        }
        with!(None Relu Gelu GeluTanh Silu Tanh Sigmoid)
    }

    /// # Safety
    /// As for [`Run::piece`].
    #[inline(always)]
    unsafe fn done<L: Lanes>(
        &self,
        act: Activation,
        join: Join,
        [a, b]: [*const T; 2],
        y: *mut T,
        begin: usize,
        end: usize,
    ) {
        let mut at = begin;
        while at < end {
            let count = L::N.min(end - at);
            // SAFETY: the caller's word; b is there where something is joined.
            unsafe {
                let x = activate::<L>(act, load::<L, T>(a.add(at), count));
                let x = match join {
                    Join::None => x,
                    Join::Add => L::add(x, load::<L, T>(b.add(at), count)),
                    Join::Mul => L::mul(x, load::<L, T>(b.add(at), count)),
                };
                put::<L, T>(y.add(at), count, x, self.streams);
            }
            at += count;
        }
    }
}
