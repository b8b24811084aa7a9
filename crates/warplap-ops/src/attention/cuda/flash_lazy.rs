//! Hopper's own products with softmax under them, and no maximum in the inner loop. Twin of `flash_lazy.cu`, which says
//! how.
//!
//! Wins: a thousand tokens and more on Hopper. Limits: f16 and bf16, heads of 16, 32 … 256 elements; scores as they are:
//! causal and windows, nothing added, no caps, no dropout.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{ATTENTION, ATTENTION_HOPPER, Chip, ELEMENT, HOPPER, PACKED, PHILOX, Source};

use super::plan::{
    NOTHING, facts, is_short, map, no_tensor_cores, no_tiles, numbers, numbers_by_counter, packed_fact, strides,
    tiles as tiles_of, totals,
};
use crate::attention::{AttentionProblem, Mask, slot};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan, axis};
use crate::cuda::scratch::Need;

/// TMA, wgmma, one producer and two to four consumers, exponents against an old maximum.
pub(crate) struct FlashLazy;

const HEADERS: [(&str, &str); 6] = [HOPPER, ELEMENT, ATTENTION, ATTENTION_HOPPER, PHILOX, PACKED];

/// Static shared memory for barriers, the number of a tile and the scale, at the most.
const BARRIERS: u64 = 512;

/// What a tile says: AHEAD, CONS, BN, STAGES, QREG, PINGPONG.
const TILE: [&str; 6] = ["AHEAD", "CONS", "BN", "STAGES", "QREG", "PINGPONG"];

/// Tiles worth trying by the width of heads, those that won first; the first that shared memory holds is where a search
/// begins. Others spill registers, serialise the products or were slower.
const UP_TO_64: [[i64; 6]; 3] = [[0, 4, 64, 3, 0, 0], [0, 3, 128, 2, 0, 0], [0, 2, 128, 3, 1, 0]];
const UP_TO_128: [[i64; 6]; 4] = [[0, 2, 128, 2, 1, 1], [1, 2, 64, 6, 1, 0], [1, 2, 64, 4, 1, 0], [0, 2, 128, 2, 1, 0]];
const UP_TO_256: [[i64; 6]; 2] = [[0, 2, 64, 2, 0, 0], [0, 2, 80, 2, 0, 0]];

/// One setting, read.
#[derive(Clone, Copy)]
struct Lazy {
    tile: [u64; 6],
    sched: u64,
}

impl Lazy {
    fn read(c: &Config) -> Result<Self, Rejection> {
        let mut tile = [0; 6];
        for (value, name) in tile.iter_mut().zip(TILE) {
            *value = axis(c, name)?;
        }
        Ok(Lazy { tile, sched: axis(c, "SCHED")? })
    }

    /// Queries of a tile.
    fn rows(&self) -> u64 {
        64 * self.tile[1]
    }

    /// Bytes of shared memory: Q, and the stages of K and V.
    fn shared(&self, p: &AttentionProblem) -> u64 {
        let [_, cons, bn, stages, ..] = self.tile;
        let [q, v] = [p.d, p.dv].map(|width| width.div_ceil(64));
        cons * q * 8192 + stages * bn * 128 * (q + v) + 1024
    }

    /// Whether it is one that was tried, and shared memory holds it.
    fn check(&self, p: &AttentionProblem, chip: &Chip) -> Result<(), Rejection> {
        let all = tried(p);
        if self.sched > 2 || !all.iter().any(|tile| tile.map(|v| v as u64) == self.tile) {
            return Err(Rejection::DoesNotBuild { reason: format!("{:?}: no tile that was tried", self.tile) });
        }
        if p.packed.is_some() && self.sched == 1 {
            let reason = "tiles of packed sequences are dealt out by a counter, or not at all".into();
            return Err(Rejection::DoesNotBuild { reason });
        }
        let bytes = self.shared(p);
        if bytes + BARRIERS > chip.shared_memory {
            let reason = format!("{} stages take {bytes} bytes of shared memory", self.tile[3]);
            return Err(Rejection::OverLimits { reason });
        }
        Ok(())
    }
}

/// Tiles for the width of a problem's heads.
fn tried(p: &AttentionProblem) -> &'static [[i64; 6]] {
    match p.d.max(p.dv) {
        0..=64 => &UP_TO_64,
        65..=128 => &UP_TO_128,
        _ => &UP_TO_256,
    }
}

impl CudaKernelSpec<AttentionProblem> for FlashLazy {
    fn id(&self) -> &'static str {
        "flash_lazy"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &AttentionProblem, chip: &Chip) -> Fit {
        if !chip.is_hopper() {
            return Fit::aside("needs a Hopper chip");
        }
        if let Some(why) = no_tensor_cores(p, chip).or_else(|| no_tiles(p)) {
            return Fit::aside(why);
        }
        if p.mask != Mask::None || p.has_score_mod() || p.dropout() > 0.0 {
            return Fit::aside("scores are taken as they are: nothing added, no caps, no dropout");
        }
        if p.scale() <= 1e-20 {
            return Fit::aside("exponents grow with scores: the scale must be above 0");
        }
        if !p.d.is_multiple_of(16) || !p.dv.is_multiple_of(16) {
            return Fit::aside("its products take steps of 16: d and dv must be multiples of it");
        }
        if p.sq <= 64 {
            return Fit::aside("its tiles have 128 queries, the least");
        }
        if is_short(p, chip) { Fit::MEDIUM } else { Fit::HIGH }
    }

    fn space(&self, p: &AttentionProblem, chip: &Chip) -> Space {
        let good = |sched| {
            let fits = |tile: &&[i64; 6]| Lazy { tile: tile.map(|v| v as u64), sched }.check(p, chip).is_ok();
            tried(p).iter().filter(fits).copied().collect::<Vec<_>>()
        };
        let good = good(0);
        let column = |i: usize| good.iter().map(move |tile| tile[i]).collect::<Vec<_>>();
        let sched = match () {
            _ if is_short(p, chip) => vec![0],
            _ if p.packed.is_some() => vec![2, 0],
            _ if p.causal => vec![2, 1],
            _ => vec![1, 2],
        };
        let (p, chip, tiles) = (*p, chip.clone(), good.clone());
        let all: Vec<&str> = TILE.into_iter().chain(["SCHED"]).collect();
        TILE.iter()
            .enumerate()
            .fold(Space::single(), |space, (i, name)| space.axis(Axis::ints(name, column(i))))
            .axis(Axis::ints("SCHED", sched))
            .rule(Rule::on("the tile is one worth trying", &TILE, move |c| {
                tiles.contains(&TILE.map(|a| c.int(a).unwrap_or(0)))
            }))
            .rule(Rule::on("shared memory holds it", &all, move |c| {
                Lazy::read(c).and_then(|s| s.check(&p, &chip)).is_ok()
            }))
    }

    fn plan(&self, p: &AttentionProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let s = Lazy::read(c)?;
        s.check(p, chip)?;
        let mut defines = facts(p);
        defines.extend(TILE.into_iter().zip(s.tile.map(|v| v as i64)));
        defines.extend([("SCHED", s.sched as i64), ("SHARED", s.shared(p) as i64), packed_fact(p)]);

        let [_, cons, bn, ..] = s.tile;
        let ([apart, rows], [pieces, keys]) = (p.stretches(), p.pieces());
        let counters = if s.sched == 2 { Argument::Scratch(Need { words: 2, zeros: 2 }) } else { NOTHING };
        let mut arguments = vec![
            map(slot::Q, p, [p.d, rows, p.h, apart], p.q_strides(), 64),
            map(slot::K, p, [p.d, keys, p.hkv, pieces], p.k_strides(), bn),
            map(slot::V, p, [p.dv, keys, p.hkv, pieces], p.v_strides(), bn),
        ];
        arguments.extend([slot::OUT, slot::LSE].map(Argument::Pointer));
        arguments.push(counters);
        arguments.extend(if s.sched == 2 { numbers_by_counter(p, chip) } else { numbers(p, chip) });
        arguments.extend(strides(p.o_strides()));
        arguments.extend([slot::OFFSETS_Q, slot::OFFSETS_K].map(Argument::Pointer));
        arguments.extend(totals(p));
        let tiles = tiles_of(p, s.rows()) * p.h;
        let text = include_str!("flash_lazy.cu");
        Ok(Plan {
            source: Source { entry: self.id(), text, headers: &HEADERS, defines },
            threads: 128 * (cons as u32 + 1),
            shared: s.shared(p),
            grid: if s.sched == 0 { Grid::Blocks(tiles) } else { Grid::Persistent { tiles, cluster: 1 } },
            arguments,
            overlap: true,
        })
    }
}
