//! The library: both products by the `gemm` crate, with the scores of a block of rows written out between them.
//!
//! Idea: what a user would write with a matrix library. Its blocking over the head dimension is better than that of
//! kernels which keep a whole row in the first cache. Wins: long heads. Limits: scores go through the second cache;
//! half types are widened head by head.

use std::ops::Range;
use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Ceilings;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use super::blocks::Blocks;
use super::call::Call;
use super::rows::{Widen, padded};
use super::scratch::{Pieces, lines};
use super::setup;
use crate::attention::{Attention, AttentionProblem};
use crate::faer::{self, Parallelism, Strided};
use crate::typed::for_dtype;

/// Products by the `gemm` crate.
pub(super) struct Library;

impl Variant<Attention, Cpu> for Library {
    fn id(&self) -> &str {
        "library"
    }

    fn source(&self) -> SourceHash {
        source!(faer::VERSION)
    }

    fn fit(&self, p: &AttentionProblem, _: &Cpu) -> Fit {
        match (p.group() * p.sq, p.d + p.dv) {
            _ if setup::is_scattered(p) => Fit::aside(setup::UNEVEN),
            (0..8, _) => Fit::LOW,
            (_, 384..) => Fit::HIGH,
            _ => Fit::MEDIUM,
        }
    }

    fn space(&self, p: &AttentionProblem, cpu: &Cpu) -> Space {
        Space::single().axis(Axis::ints("rows", [128, 64, 256, 512])).axis(setup::threads(p, cpu))
    }

    fn needs(&self, p: &AttentionProblem, config: &Config) -> Needs {
        let sizes = CallSizes::new(p, config);
        Needs { threads: sizes.blocks.threads as u64, workspace: sizes.workspace(), ..Needs::default() }
    }

    fn floor(&self, p: &AttentionProblem, config: &Config, ceilings: &Ceilings) -> Option<f64> {
        setup::floor(p, config, ceilings)
    }

    fn build(&self, p: &AttentionProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Calls { problem: *p, sizes: CallSizes::new(p, config), pool: cpu.pool().clone() }))
    }
}

#[derive(Clone, Copy)]
struct CallSizes {
    blocks: Blocks,
    widened: bool,
}

impl CallSizes {
    fn new(p: &AttentionProblem, config: &Config) -> Self {
        let (threads, isa) = setup::chosen(config);
        let blocks = Blocks {
            rows: config.size("rows").unwrap_or(128).clamp(1, (p.group() * p.sq) as usize),
            threads,
            isa,
            keys: padded(isa, p.sk as usize),
            d: padded(isa, p.d as usize),
            dv: padded(isa, p.dv as usize),
        };
        CallSizes { blocks, widened: p.dtype != DType::F32 }
    }

    fn numbers(&self) -> usize {
        let b = &self.blocks;
        let wide = if self.widened { lines(b.keys * b.d) + lines(b.keys * b.dv) } else { 0 };
        wide + b.numbers()
    }

    fn workspace(&self) -> u64 {
        (self.blocks.threads * self.numbers() * 4) as u64
    }
}

struct Calls {
    problem: AttentionProblem,
    sizes: CallSizes,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for Calls {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => attend::<T>(self, args))
    }

    fn workspace(&self) -> u64 {
        self.sizes.workspace()
    }
}

fn attend<T: Element + Typed>(calls: &Calls, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let (call, sizes) = (Call::<T>::new(&calls.problem, args)?, calls.sizes);
    sizes.blocks.each_part(&call, &calls.pool, sizes.numbers(), |head, rows, room| {
        one_part(&call, sizes.blocks, head, rows, room)
    });
    Ok(())
}

fn one_part<T: Element + Typed>(call: &Call<T>, blocks: Blocks, head: usize, rows: Range<usize>, room: &mut [f32]) {
    let mut pieces = Pieces(room);
    let room = blocks.room(&mut pieces);
    let mut wide = |from: *const T, from_row: usize, width: usize, padded: usize| {
        if T::DTYPE == DType::F32 {
            return (from.cast::<f32>(), from_row);
        }
        let to = pieces.cut(blocks.keys * padded).as_mut_ptr();
        let end = call.most_seen(head, rows.clone());
        blocks.isa.run(Widen { from, from_row, rows: end, width, factor: 1.0, to, padded });
        (to.cast_const(), padded)
    };
    let (k, k_row) = wide(call.k(head, 0), call.k_step(), call.d, blocks.d);
    let (v, v_row) = wide(call.v(head, 0), call.v_step(), call.dv, blocks.dv);
    let score = |count, end, queries: &[f32], scores: &mut [f32]| {
        let to = (scores.as_mut_ptr(), blocks.keys);
        // SAFETY: count rows of d queries, `end` keys of d and values of dv lie there; scores and sums have room.
        unsafe { product((count, end, call.d), (queries.as_ptr(), blocks.d), (k, k_row, 1), to) };
    };
    let weigh = |count, end, scores: &[f32], out: &mut [f32]| {
        let to = (out.as_mut_ptr(), blocks.dv);
        // SAFETY: as above.
        unsafe { product((count, call.dv, end), (scores.as_ptr(), blocks.keys), (v, 1, v_row), to) };
    };
    blocks.attend(call, head, rows, room, score, weigh);
}

/// C (m×n) = A (m×k) · B, rows of A and C contiguous, B by its column and row steps.
///
/// # Safety
/// The three lie where their addresses and steps say, and nobody else touches C.
unsafe fn product(
    (m, n, k): (usize, usize, usize),
    (a, a_row): (*const f32, usize),
    (b, b_column, b_row): (*const f32, usize, usize),
    (c, c_row): (*mut f32, usize),
) {
    // SAFETY: passed on to the caller.
    unsafe {
        faer::product(
            (m, n, k),
            Strided::rows(a, a_row),
            Strided { first: b, column: b_column, row: b_row },
            Strided::rows(c, c_row),
            Parallelism::None,
        );
    }
}
