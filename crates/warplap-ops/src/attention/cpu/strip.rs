//! Strip: lanes hold keys; K is packed transposed once per head, a block of rows keeps its whole strip of scores.
//!
//! Idea: all scores of a few rows fit in the second cache, so the true maximum is known before the first exponential:
//! no rescaling, one exact softmax per row, and mask rows are added as they lie. The packed keys serve every row of
//! every head of the group. Wins: masks, and row counts that leave the lanes of `flash` half empty. Limits: the strip
//! and one packed head are workspace, `rows·sk + sk·(d+dv)` numbers a thread.
//! From: the two-pass softmax of ordinary libraries, on the packed panels of GotoBLAS.

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
use super::products::{Products, Start};
use super::rows::{Turn, Widen, padded};
use super::scratch::{Pieces, lines};
use super::setup;
use crate::attention::{Attention, AttentionProblem, Mask};
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
        source!()
    }

    fn fit(&self, p: &AttentionProblem, cpu: &Cpu) -> Fit {
        if setup::is_scattered(p) {
            return Fit::aside(setup::UNEVEN);
        }
        let (rows, lanes) = (p.group() * p.sq, cpu.isa().lanes() as u64);
        let masked = p.mask != Mask::None;
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
        let sizes = StripSizes::new(p, config);
        Needs { threads: sizes.blocks.threads as u64, workspace: sizes.workspace(), ..Needs::default() }
    }

    fn floor(&self, p: &AttentionProblem, config: &Config, ceilings: &Ceilings) -> Option<f64> {
        setup::floor(p, config, ceilings)
    }

    fn build(&self, p: &AttentionProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Strips { problem: *p, sizes: StripSizes::new(p, config), pool: cpu.pool().clone() }))
    }
}

#[derive(Clone, Copy)]
struct StripSizes {
    /// Keys in whole panels.
    blocks: Blocks,
    /// Whether values are copied: half types, and rows that are no whole number of vectors.
    copied: bool,
}

impl StripSizes {
    fn new(p: &AttentionProblem, config: &Config) -> Self {
        let (threads, isa) = setup::chosen(config);
        let dv = padded(isa, p.dv as usize);
        let blocks = Blocks {
            rows: config.size("rows").unwrap_or(24).clamp(1, (p.group() * p.sq) as usize),
            isa,
            threads,
            keys: (p.sk as usize).next_multiple_of(PANEL),
            d: padded(isa, p.d as usize),
            dv,
        };
        StripSizes { blocks, copied: p.dtype != DType::F32 || dv != p.dv as usize }
    }

    fn numbers(&self) -> usize {
        let b = &self.blocks;
        let values = if self.copied { lines(b.keys * b.dv) } else { 0 };
        lines(b.keys * b.d) + values + lines(PANEL * b.d) + b.numbers()
    }

    fn workspace(&self) -> u64 {
        (self.blocks.threads * self.numbers() * 4) as u64
    }
}

struct Strips {
    problem: AttentionProblem,
    sizes: StripSizes,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for Strips {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => attend::<T>(self, args))
    }

    fn workspace(&self) -> u64 {
        self.sizes.workspace()
    }
}

fn attend<T: Element + Typed>(strips: &Strips, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let (call, sizes) = (Call::<T>::new(&strips.problem, args)?, strips.sizes);
    sizes
        .blocks
        .each_part(&call, &strips.pool, sizes.numbers(), |head, rows, room| one_part(&call, sizes, head, rows, room));
    Ok(())
}

fn one_part<T: Element + Typed>(call: &Call<T>, sizes: StripSizes, head: usize, rows: Range<usize>, room: &mut [f32]) {
    let blocks = sizes.blocks;
    let isa = blocks.isa;
    let mut pieces = Pieces(room);
    let packed = pieces.cut(blocks.keys * blocks.d);
    let wide = if sizes.copied { pieces.cut(blocks.keys * blocks.dv) } else { &mut [] };
    let panel = pieces.cut(PANEL * blocks.d);
    let room = blocks.room(&mut pieces);

    let end = call.most_seen(head, rows.clone());
    pack(call, blocks, head, end, panel, packed);
    let (v, v_row) = if sizes.copied {
        let from = call.v(head, 0);
        let to = wide.as_mut_ptr();
        isa.run(Widen { from, from_row: call.v_step(), rows: end, width: call.dv, factor: 1.0, to, padded: blocks.dv });
        (to.cast_const(), blocks.dv)
    } else {
        (call.v(head, 0).cast::<f32>(), call.v_step())
    };
    let score = |count, end, queries: &[f32], scores: &mut [f32]| {
        for key in (0..end).step_by(PANEL) {
            isa.run(Products {
                rows: count,
                columns: PANEL,
                steps: call.d,
                a: queries.as_ptr(),
                a_row: blocks.d,
                a_step: 1,
                b: packed[key * blocks.d..].as_ptr(),
                b_row: PANEL,
                out: scores[key..].as_mut_ptr(),
                out_row: blocks.keys,
                start: Start::Zero,
            });
        }
    };
    let weigh = |count, end, scores: &[f32], out: &mut [f32]| {
        for key in (0..end).step_by(VALUES) {
            isa.run(Products {
                rows: count,
                columns: blocks.dv,
                steps: VALUES.min(end - key),
                a: scores[key..].as_ptr(),
                a_row: blocks.keys,
                a_step: 1,
                b: v.wrapping_add(key * v_row),
                b_row: v_row,
                out: out.as_mut_ptr(),
                out_row: blocks.dv,
                start: if key == 0 { Start::Zero } else { Start::Kept },
            });
        }
    };
    blocks.attend(call, head, rows, room, score, weigh);
}

/// Packs the first `end` keys in panels of [`PANEL`] columns, zeros after the last.
fn pack<T: Element + Typed>(
    call: &Call<T>,
    blocks: Blocks,
    head: usize,
    end: usize,
    panel: &mut [f32],
    packed: &mut [f32],
) {
    for key in (0..end).step_by(PANEL) {
        let count = PANEL.min(end - key);
        panel[count * blocks.d..PANEL * blocks.d].fill(0.0);
        let (from, to) = (call.k(head, key), panel.as_mut_ptr());
        let from_row = call.k_step();
        blocks.isa.run(Widen { from, from_row, rows: count, width: call.d, factor: 1.0, to, padded: blocks.d });
        blocks.isa.run(Turn {
            from: panel.as_ptr(),
            from_row: blocks.d,
            rows: PANEL,
            columns: blocks.d,
            to: packed[key * blocks.d..].as_mut_ptr(),
            to_row: PANEL,
        });
    }
}
