//! Hopper's own products with weights under them: TMA, wgmma, warp-specialised, sums of dQ in memory. Twin of
//! `grad_wgmma.cu`, which says how; `delta.cu` runs in front of it and `finish.cu` behind it.
//!
//! Wins: a few hundred tokens and more on Hopper. Limits: f16 and bf16, heads of 16, 32 … 128 elements; the order of
//! additions to dQ differs from run to run.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{
    AMPERE, ATTENTION, ATTENTION_GRAD, ATTENTION_HOPPER, Chip, ELEMENT, HOPPER, PHILOX, SQUARES, Source, dtype_code,
};

use super::plan::{Chain, THREADS};
use crate::attention::AttentionProblem;
use crate::attention::cuda::listed::{Listed, listed};
use crate::attention::cuda::plan::{
    drops, facts, floats, map, mask_facts, mask_strides, no_sequences, no_tensor_cores, strides,
};
use crate::attention_grad::{AttentionGradProblem, slot};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan, PrePostLaunches, axis, int};

/// TMA, wgmma, one producer and one or two consumers.
pub(super) struct GradWgmma;

const HEADERS: [(&str, &str); 7] = [HOPPER, ELEMENT, ATTENTION, ATTENTION_HOPPER, ATTENTION_GRAD, PHILOX, SQUARES];

/// The widest heads whose sums registers hold.
const MOST: u64 = 128;

/// Static shared memory for barriers, at the most.
const BARRIERS: u64 = 256;

/// What a setting says.
const TILE: [&str; 6] = ["BM", "CONS", "STAGES", "LAG", "AHEAD", "RESIDENT"];

/// Tiles worth trying, those that won first: by the width of heads, with and without a mask to read.
const NARROW: [[i64; 6]; 5] =
    [[128, 2, 2, 1, 1, 1], [128, 2, 2, 1, 0, 1], [64, 1, 2, 0, 0, 2], [96, 2, 2, 1, 0, 1], [64, 2, 2, 0, 0, 1]];
const NARROW_MASKED: [[i64; 6]; 3] = [[96, 2, 2, 1, 1, 1], [64, 2, 2, 1, 1, 1], [64, 2, 2, 0, 0, 1]];
const WIDE: [[i64; 6]; 4] = [[64, 2, 2, 1, 0, 1], [64, 2, 2, 0, 0, 1], [48, 2, 2, 0, 0, 1], [32, 2, 3, 0, 0, 1]];
const WIDE_MASKED: [[i64; 6]; 2] = [[64, 2, 2, 0, 0, 1], [48, 2, 2, 0, 0, 1]];

fn tiles(p: &AttentionProblem) -> &'static [[i64; 6]] {
    // A cap takes registers as a mask does.
    match (p.d.max(p.dv) <= 64, p.mask.is_by_pair(), p.softcap().is_some()) {
        (true, false, false) => &NARROW,
        (true, true, true) => &NARROW_MASKED[1..],
        (true, ..) => &NARROW_MASKED,
        (false, false, false) => &WIDE,
        (false, true, true) => &WIDE[2..],
        (false, ..) => &WIDE_MASKED,
    }
}

/// What a setting lists of a mask of squares: blocks of queries, of all heads that share keys.
fn lists(p: &AttentionProblem, [bm, cons, ..]: [u64; 6]) -> Result<Listed, Rejection> {
    listed(p, [bm, 64 * cons], p.sq.div_ceil(bm) * p.group())
}

/// Panels of 64 elements of a row of Q or K, and of V or dO.
fn panels(p: &AttentionProblem) -> [u64; 2] {
    [p.d.div_ceil(64), p.dv.div_ceil(64)]
}

/// One setting, read.
#[derive(Clone, Copy)]
struct Setting {
    bm: u64,
    cons: u64,
    stages: u64,
    axes: [u64; 6],
}

impl Setting {
    fn read(p: &AttentionProblem, c: &Config) -> Result<Self, Rejection> {
        let mut axes = [0; 6];
        for (to, name) in axes.iter_mut().zip(TILE) {
            *to = axis(c, name)?;
        }
        // Heads of one panel: the warpgroups share out the queries of a block.
        let shared_out = p.d > 64 || axes[0].is_multiple_of(16 * axes[1]);
        if !tiles(p).contains(&axes.map(|v| v as i64)) || !shared_out {
            return Err(Rejection::DoesNotBuild { reason: format!("{c}: not a tile for heads of {}", p.d) });
        }
        Ok(Setting { bm: axes[0], cons: axes[1], stages: axes[2], axes })
    }

    fn keys(self) -> u64 {
        64 * self.cons
    }

    fn shared(self, p: &AttentionProblem) -> u64 {
        let wide = 128 * panels(p).iter().sum::<u64>();
        wide * self.keys() + self.stages * (wide * self.bm + 8 * self.bm) + 2 * self.cons * self.bm * 128 + 1024
    }

    fn chain(self, p: &AttentionProblem) -> Chain {
        Chain::new(p, self.bm, 64 * panels(p)[0])
    }
}

impl CudaKernelSpec<AttentionGradProblem> for GradWgmma {
    fn id(&self) -> &'static str {
        "grad_wgmma"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, problem: &AttentionGradProblem, chip: &Chip) -> Fit {
        let p = &problem.0;
        if chip.capability != (9, 0) {
            Fit::aside("Hopper only")
        } else if let Some(why) = no_tensor_cores(p, chip).or_else(|| no_sequences(p)) {
            Fit::aside(why)
        } else if !(p.d | p.dv).is_multiple_of(16) || p.d.max(p.dv) > MOST {
            Fit::aside("heads of 16, 32 … 128 elements")
        } else if !tiles(p).iter().any(|tile| lists(p, tile.map(|v| v as u64)).is_ok()) {
            Fit::aside("its tiles have more keys than a square of the mask, or there are too many to list")
        } else {
            Fit::HIGH
        }
    }

    fn space(&self, problem: &AttentionGradProblem, chip: &Chip) -> Space {
        let (p, chip, all) = (problem.0, chip.clone(), tiles(&problem.0));
        // The first value of every axis together are where a search begins.
        let column = |i: usize| all.iter().map(|tile| tile[i]).collect::<Vec<_>>();
        let axes = TILE.iter().enumerate();
        let space = axes.fold(Space::single(), |space, (i, name)| space.axis(Axis::ints(name, column(i))));
        space.rule(Rule::on("the tile is one worth trying", &TILE, move |c| {
            GradWgmma.plan(&AttentionGradProblem(p), c, &chip).is_ok()
        }))
    }

    fn plan(&self, problem: &AttentionGradProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let p = &problem.0;
        let s = Setting::read(p, c)?;
        let (shared, chain) = (s.shared(p), s.chain(p));
        let listed = lists(p, s.axes)?;
        if (shared + BARRIERS + listed.bytes) * s.axes[5] > chip.shared_memory {
            let reason = format!("{} stages take {shared} bytes of shared memory", s.stages);
            return Err(Rejection::OverLimits { reason });
        }
        let mut defines = facts(p);
        defines.extend(mask_facts(p).into_iter().filter(|(name, _)| *name == "MASK"));
        defines.extend(listed.facts);
        defines.extend(TILE.into_iter().zip(s.axes.map(|v| v as i64)));
        defines.push(("SHARED", shared as i64));
        let mut arguments = vec![
            map(slot::Q, p, [p.d, p.sq, p.h, p.b], p.q_strides(), s.bm),
            map(slot::GRAD, p, [p.dv, p.sq, p.h, p.b], p.o_strides(), s.bm),
            map(slot::K, p, [p.d, p.sk, p.hkv, p.b], p.k_strides(), s.keys()),
            map(slot::V, p, [p.dv, p.sk, p.hkv, p.b], p.v_strides(), s.keys()),
        ];
        arguments.extend(chain.scratch_arguments());
        arguments.extend([slot::MASK, slot::SLOPES].map(Argument::Pointer));
        arguments.push(chain.sums());
        arguments.extend([slot::DK, slot::DV].map(Argument::Pointer));
        arguments.extend(chain.numbers(p, chip));
        arguments.extend([p.k_strides(), p.v_strides()].map(strides).concat());
        arguments.extend(mask_strides(p));
        arguments.extend(drops(p, slot::SEED));
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("grad_wgmma.cu"), headers: &HEADERS, defines },
            threads: 128 * (s.cons as u32 + 1),
            shared,
            grid: Grid::Blocks(p.sk.div_ceil(s.keys()) * p.hkv * p.b),
            arguments,
            overlap: true,
        })
    }

    fn beside(&self, problem: &AttentionGradProblem, c: &Config, chip: &Chip) -> Result<PrePostLaunches, Rejection> {
        let p = &problem.0;
        let s = Setting::read(p, c)?;
        let chain = s.chain(p);
        let numbers = [("D", p.d), ("BM", s.bm), ("CONS", s.cons)].map(|(name, value)| (name, value as i64));
        let mut defines = vec![("DTYPE", dtype_code(p.dtype))];
        defines.extend(numbers);
        let mut arguments = vec![chain.sums(), Argument::Pointer(slot::DQ)];
        arguments.extend([p.b, p.h, p.sq, chain.padded].map(int));
        arguments.push(floats(p)[0]);
        arguments.extend(strides(p.q_strides()));
        let text = include_str!("finish.cu");
        let finish = Plan {
            source: Source { entry: "finish", text, headers: &[AMPERE, ELEMENT], defines },
            threads: THREADS as u32,
            shared: 0,
            grid: Grid::Blocks(chain.padded / s.bm * p.h * p.b),
            arguments,
            overlap: true,
        };
        Ok(PrePostLaunches { first: vec![chain.delta(p, 16, chip)], last: vec![finish] })
    }
}
