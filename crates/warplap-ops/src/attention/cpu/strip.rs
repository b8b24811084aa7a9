//! Strip: lanes hold keys; K is packed transposed once per head, a block of rows keeps its whole strip of scores.
//!
//! Idea: all scores of a few rows fit in the second cache, so the true maximum is known before the first exponential:
//! no rescaling, one exact softmax per row, and mask rows are added as they lie. The packed keys serve every row of
//! every head of the group. Wins: masks, and row counts that leave the lanes of `flash` half empty. Limits: the strip
//! and one packed head are workspace, `rows·sk + sk·(d+dv)` numbers a thread.
//! From: the two-pass softmax of ordinary libraries, on the packed panels of GotoBLAS.

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
use super::products::{Products, Start};
use super::rows::{Narrow, Turn, Widen, padded};
use super::scratch::{self, Pieces, lines};
use super::setup;
use super::softmax::{Row, inverse};
use crate::attention::{Attention, AttentionArgs, AttentionProblem, Mask};
use crate::typed::for_dtype;

/// Lanes hold keys, whole strips of scores.
pub(super) struct Strip;

/// Keys of one panel: whole vectors of every instruction set, and a register tile's width of the widest.
const PANEL: usize = 64;

/// Values of one step of the second product: 128 rows of 64 numbers fill most of a first cache.
const VALUES: usize = 128;

impl Variant<Attention, Cpu> for Strip {
    fn id(&self) -> &str {
        "strip"
    }

    fn source(&self) -> SourceHash {
        SourceHash::of(&[
            include_str!("strip.rs"),
            include_str!("call.rs"),
            include_str!("products.rs"),
            include_str!("rows.rs"),
            include_str!("softmax.rs"),
        ])
    }

    fn fit(&self, p: &AttentionProblem, cpu: &Cpu) -> Fit {
        let (rows, lanes) = (p.group() * p.sq, cpu.isa().lanes() as u64);
        let masked = p.mask == Mask::Add;
        if rows < 2 && !masked {
            Fit::LOW
        } else if masked || rows < 8 * lanes || p.sk <= 1024 {
            Fit::HIGH
        } else {
            Fit::MEDIUM
        }
    }

    fn space(&self, p: &AttentionProblem, cpu: &Cpu) -> Space {
        Space::single().axis(Axis::ints("rows", [24, 12, 48, 96])).axis(setup::isa(p, cpu)).axis(setup::threads(p, cpu))
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
        Ok(Box::new(Strips { plan: Plan::new(p, config), pool: cpu.pool().clone() }))
    }
}

#[derive(Clone, Copy)]
struct Plan {
    rows: usize,
    isa: Isa,
    threads: usize,
    /// Keys in whole panels.
    keys: usize,
    d: usize,
    dv: usize,
    /// Whether values are copied: half types, and rows that are no whole number of vectors.
    copied: bool,
}

impl Plan {
    fn new(p: &AttentionProblem, config: &Config) -> Self {
        let (threads, isa) = setup::chosen(config);
        let dv = padded(isa, p.dv as usize);
        Plan {
            rows: config.size("rows").unwrap_or(24).clamp(1, (p.group() * p.sq) as usize),
            isa,
            threads,
            keys: (p.sk as usize).next_multiple_of(PANEL),
            d: padded(isa, p.d as usize),
            dv,
            copied: p.dtype != DType::F32 || dv != p.dv as usize,
        }
    }

    fn numbers(&self) -> usize {
        let values = if self.copied { lines(self.keys * self.dv) } else { 0 };
        lines(self.keys * self.d)
            + values
            + lines(PANEL * self.d)
            + lines(self.rows * self.d)
            + lines(self.rows * self.keys)
            + lines(self.rows * self.dv)
            + lines(self.rows)
    }
}

struct Strips {
    plan: Plan,
    pool: Arc<Pool>,
}

impl Kernel<Attention, Cpu> for Strips {
    fn launch(&self, args: AttentionArgs<'_, Cpu>, _: &()) -> Result<(), Rejection> {
        for_dtype!(args.problem.dtype, T => attend::<T>(self, args))
    }

    fn workspace(&self) -> u64 {
        (self.plan.threads * self.plan.numbers() * 4) as u64
    }
}

fn attend<T: Element + Typed>(strips: &Strips, args: AttentionArgs<'_, Cpu>) -> Result<(), Rejection> {
    let call = Call::<T>::new(args)?;
    let plan = strips.plan;
    let blocks = call.rows().div_ceil(plan.rows);
    // A head is one task where there are heads enough for all threads; else each part packs its head again.
    let parts = if call.heads.is_multiple_of(plan.threads) { 1 } else { plan.threads.min(blocks) };
    strips.pool.each(plan.threads, call.heads * parts, |task| {
        let (head, part) = (task / parts, task % parts);
        let rows = |part: usize| (blocks * part / parts * plan.rows).min(call.rows());
        scratch::with(plan.numbers(), |room| one_part(&call, plan, head, rows(part)..rows(part + 1), room));
    });
    Ok(())
}

fn one_part<T: Element + Typed>(call: &Call<T>, plan: Plan, head: usize, rows: Range<usize>, room: &mut [f32]) {
    let isa = plan.isa;
    let mut room = Pieces(room);
    let packed = room.cut(plan.keys * plan.d);
    let wide = if plan.copied { room.cut(plan.keys * plan.dv) } else { &mut [] };
    let panel = room.cut(PANEL * plan.d);
    let queries = room.cut(plan.rows * plan.d);
    let scores = room.cut(plan.rows * plan.keys);
    let out = room.cut(plan.rows * plan.dv);
    let sums = room.cut(plan.rows);

    let end = call.most_seen(rows.clone());
    pack(call, plan, head, end, panel, packed);
    let (v, v_row) = if plan.copied {
        let from = call.v(head, 0);
        let to = wide.as_mut_ptr();
        isa.run(Widen { from, from_row: call.v_step(), rows: end, width: call.dv, factor: 1.0, to, padded: plan.dv });
        (to.cast_const(), plan.dv)
    } else {
        (call.v(head, 0).cast::<f32>(), call.v_step())
    };

    for first in rows.clone().step_by(plan.rows) {
        let block = first..(first + plan.rows).min(rows.end);
        let end = call.most_seen(block.clone());
        // A mask may reach f32's range, where log2 e times it would leave it: then the factor comes after the maximum.
        let (before, after) = if call.mask(first).is_some() { (1.0, LOG2_E) } else { (LOG2_E, 1.0) };
        for (i, row) in block.clone().enumerate() {
            let (from, to) = (call.q(head, row), queries[i * plan.d..].as_mut_ptr());
            let factor = call.scale * before;
            isa.run(Widen { from, from_row: 0, rows: 1, width: call.d, factor, to, padded: plan.d });
        }
        for key in (0..end).step_by(PANEL) {
            isa.run(Products {
                rows: block.len(),
                columns: PANEL,
                steps: call.d,
                a: queries.as_ptr(),
                a_row: plan.d,
                a_step: 1,
                b: packed[key * plan.d..].as_ptr(),
                b_row: PANEL,
                out: scores[key..].as_mut_ptr(),
                out_row: plan.keys,
                start: Start::Zero,
            });
        }
        for (i, row) in block.clone().enumerate() {
            let line = &mut scores[i * plan.keys..(i + 1) * plan.keys];
            let keys = call.seen(row);
            let (_, sum) = isa.run(Row { scores: line.as_mut_ptr(), keys, mask: call.mask(row), factor: after });
            line[keys..end].fill(0.0);
            sums[i] = sum;
        }
        for key in (0..end).step_by(VALUES) {
            isa.run(Products {
                rows: block.len(),
                columns: plan.dv,
                steps: VALUES.min(end - key),
                a: scores[key..].as_ptr(),
                a_row: plan.keys,
                a_step: 1,
                b: v.wrapping_add(key * v_row),
                b_row: v_row,
                out: out.as_mut_ptr(),
                out_row: plan.dv,
                start: if key == 0 { Start::Zero } else { Start::Kept },
            });
        }
        for (i, row) in block.enumerate() {
            let from = out[i * plan.dv..].as_ptr();
            isa.run(Narrow { from, width: call.dv, factor: inverse(sums[i]), to: call.out(head, row) });
        }
    }
}

/// Packs the first `end` keys in panels of [`PANEL`] columns, zeros after the last.
fn pack<T: Element + Typed>(
    call: &Call<T>,
    plan: Plan,
    head: usize,
    end: usize,
    panel: &mut [f32],
    packed: &mut [f32],
) {
    for key in (0..end).step_by(PANEL) {
        let count = PANEL.min(end - key);
        panel[count * plan.d..PANEL * plan.d].fill(0.0);
        let (from, to) = (call.k(head, key), panel.as_mut_ptr());
        let from_row = call.k_step();
        plan.isa.run(Widen { from, from_row, rows: count, width: call.d, factor: 1.0, to, padded: plan.d });
        plan.isa.run(Turn {
            from: panel.as_ptr(),
            from_row: plan.d,
            rows: PANEL,
            columns: plan.d,
            to: packed[key * plan.d..].as_mut_ptr(),
            to_row: PANEL,
        });
    }
}
