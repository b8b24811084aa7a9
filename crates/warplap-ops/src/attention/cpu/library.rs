//! The library: both products by the `gemm` crate, with the scores of a block of rows written out between them.
//!
//! Idea: what a user would write with a matrix library. Its blocking over the head dimension is better than that of
//! kernels which keep a whole row in the first cache. Wins: long heads. Limits: scores go through the second cache;
//! half types are widened head by head.

use std::f32::consts::LOG2_E;
use std::ops::Range;
use std::sync::Arc;

use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Ceilings;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa};
use warplap_cpu::{Cpu, Typed};

use super::call::Call;
use super::rows::{Narrow, Widen, padded};
use super::scratch::{self, Pieces, lines};
use super::setup;
use super::softmax::{Row, inverse};
use crate::attention::{Attention, AttentionArgs, AttentionProblem};
use crate::typed::for_dtype;

/// Products by the `gemm` crate.
pub(super) struct Library;

impl Variant<Attention, Cpu> for Library {
    fn id(&self) -> &str {
        "library"
    }

    fn source(&self) -> SourceHash {
        SourceHash::of(&[
            include_str!("library.rs"),
            include_str!("call.rs"),
            include_str!("rows.rs"),
            include_str!("softmax.rs"),
        ])
    }

    fn fit(&self, p: &AttentionProblem, _: &Cpu) -> Fit {
        match (p.group() * p.sq, p.d + p.dv) {
            (0..8, _) => Fit::LOW,
            (_, 384..) => Fit::HIGH,
            _ => Fit::MEDIUM,
        }
    }

    fn space(&self, p: &AttentionProblem, cpu: &Cpu) -> Space {
        Space::single().axis(Axis::ints("rows", [128, 64, 256, 512])).axis(setup::threads(p, cpu))
    }

    fn needs(&self, p: &AttentionProblem, config: &Config) -> Needs {
        let plan = Plan::new(p, config);
        Needs {
            threads: plan.threads as u64,
            workspace: (plan.threads * plan.numbers() * 4) as u64,
            ..Needs::default()
        }
    }

    fn floor(&self, p: &AttentionProblem, config: &Config, ceilings: &Ceilings) -> Option<f64> {
        setup::floor(p, config, ceilings)
    }

    fn build(
        &self,
        p: &AttentionProblem,
        config: &Config,
        cpu: &Cpu,
    ) -> Result<Box<dyn Kernel<Attention, Cpu>>, Rejection> {
        Ok(Box::new(Calls { plan: Plan::new(p, config), pool: cpu.pool().clone() }))
    }
}

#[derive(Clone, Copy)]
struct Plan {
    rows: usize,
    threads: usize,
    isa: Isa,
    keys: usize,
    d: usize,
    dv: usize,
    widened: bool,
}

impl Plan {
    fn new(p: &AttentionProblem, config: &Config) -> Self {
        let (threads, isa) = setup::chosen(config);
        Plan {
            rows: config.size("rows").unwrap_or(128).clamp(1, (p.group() * p.sq) as usize),
            threads,
            isa,
            keys: padded(isa, p.sk as usize),
            d: padded(isa, p.d as usize),
            dv: padded(isa, p.dv as usize),
            widened: p.dtype != DType::F32,
        }
    }

    fn numbers(&self) -> usize {
        let wide = if self.widened { lines(self.keys * self.d) + lines(self.keys * self.dv) } else { 0 };
        wide + lines(self.rows * self.d) + lines(self.rows * self.keys) + lines(self.rows * self.dv) + lines(self.rows)
    }
}

struct Calls {
    plan: Plan,
    pool: Arc<Pool>,
}

impl Kernel<Attention, Cpu> for Calls {
    fn launch(&self, args: AttentionArgs<'_, Cpu>, _: &()) -> Result<(), Rejection> {
        for_dtype!(args.problem.dtype, T => attend::<T>(self, args))
    }

    fn workspace(&self) -> u64 {
        (self.plan.threads * self.plan.numbers() * 4) as u64
    }
}

fn attend<T: Element + Typed>(calls: &Calls, args: AttentionArgs<'_, Cpu>) -> Result<(), Rejection> {
    let call = Call::<T>::new(args)?;
    let plan = calls.plan;
    let blocks = call.rows().div_ceil(plan.rows);
    // Whole heads where there are enough for all threads, so that half types are widened once.
    let parts = if call.heads.is_multiple_of(plan.threads) { 1 } else { plan.threads.min(blocks) };
    calls.pool.each(plan.threads, call.heads * parts, |task| {
        let (head, part) = (task / parts, task % parts);
        let rows = |part: usize| (blocks * part / parts * plan.rows).min(call.rows());
        scratch::with(plan.numbers(), |room| one_part(&call, plan, head, rows(part)..rows(part + 1), room));
    });
    Ok(())
}

fn one_part<T: Element + Typed>(call: &Call<T>, plan: Plan, head: usize, rows: Range<usize>, room: &mut [f32]) {
    let isa = plan.isa;
    let mut room = Pieces(room);
    let queries = room.cut(plan.rows * plan.d);
    let scores = room.cut(plan.rows * plan.keys);
    let out = room.cut(plan.rows * plan.dv);
    let sums = room.cut(plan.rows);
    let mut wide = |from: *const T, from_row: usize, width: usize, padded: usize| {
        if T::DTYPE == DType::F32 {
            return (from.cast::<f32>(), from_row);
        }
        let to = room.cut(plan.keys * padded).as_mut_ptr();
        let end = call.most_seen(rows.clone());
        isa.run(Widen { from, from_row, rows: end, width, factor: 1.0, to, padded });
        (to.cast_const(), padded)
    };
    let (k, k_row) = wide(call.k(head, 0), call.k_step(), call.d, plan.d);
    let (v, v_row) = wide(call.v(head, 0), call.v_step(), call.dv, plan.dv);

    for first in rows.clone().step_by(plan.rows) {
        let block = first..(first + plan.rows).min(rows.end);
        let (count, end) = (block.len(), call.most_seen(block.clone()));
        let (before, after) = if call.mask(first).is_some() { (1.0, LOG2_E) } else { (LOG2_E, 1.0) };
        for (i, row) in block.clone().enumerate() {
            let (from, to) = (call.q(head, row), queries[i * plan.d..].as_mut_ptr());
            let factor = call.scale * before;
            isa.run(Widen { from, from_row: 0, rows: 1, width: call.d, factor, to, padded: plan.d });
        }
        let to = (scores.as_mut_ptr(), plan.keys);
        // SAFETY: count rows of d queries, `end` keys of d and values of dv lie there; scores and sums have room.
        unsafe { product((count, end, call.d), (queries.as_ptr(), plan.d), (k, k_row, 1), to) };
        for (i, row) in block.clone().enumerate() {
            let line = &mut scores[i * plan.keys..(i + 1) * plan.keys];
            let keys = call.seen(row);
            let (_, sum) = isa.run(Row { scores: line.as_mut_ptr(), keys, mask: call.mask(row), factor: after });
            line[keys..end].fill(0.0);
            sums[i] = sum;
        }
        let to = (out.as_mut_ptr(), plan.dv);
        // SAFETY: as above.
        unsafe { product((count, call.dv, end), (scores.as_ptr(), plan.keys), (v, 1, v_row), to) };
        for (i, row) in block.enumerate() {
            let from = out[i * plan.dv..].as_ptr();
            isa.run(Narrow { from, width: call.dv, factor: inverse(sums[i]), to: call.out(head, row) });
        }
    }
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
        gemm::gemm(
            m,
            n,
            k,
            c,
            1,
            c_row as isize,
            false,
            a,
            1,
            a_row as isize,
            b,
            b_column as isize,
            b_row as isize,
            0.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}
