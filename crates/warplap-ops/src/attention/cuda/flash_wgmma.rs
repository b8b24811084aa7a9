//! Hopper's own products with softmax under them: TMA, wgmma, warp-specialised. Twin of `flash_wgmma.cu`, which says
//! how.
//!
//! Wins: a few hundred tokens and more on Hopper. Limits: f16 and bf16, heads of 16, 32 … 256 elements.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{ATTENTION, ATTENTION_HOPPER, Chip, ELEMENT, HOPPER, PACKED, PHILOX, SQUARES, Source};

use super::plan::{
    NOTHING, drops, facts, is_short, map, mask_facts, mask_strides, no_tensor_cores, no_tiles, numbers,
    numbers_by_counter, packed_fact, strides, tiles as tiles_of, totals,
};
use super::wgmma_setting::{Setting, TILE, masks_by_copy, tiles};
use crate::attention::{AttentionProblem, Strides, slot};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan};
use crate::cuda::scratch::Need;

/// TMA, wgmma, one producer and one to four consumers.
pub(crate) struct FlashWgmma;

const HEADERS: [(&str, &str); 7] = [HOPPER, ELEMENT, ATTENTION, ATTENTION_HOPPER, PHILOX, PACKED, SQUARES];

impl CudaKernelSpec<AttentionProblem> for FlashWgmma {
    fn id(&self) -> &'static str {
        "flash_wgmma"
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
        if p.packed.is_some() && p.mask.is_by_pair() {
            return Fit::aside("sequences lie one behind the other, and a mask by sequence is not followed");
        }
        if p.mask.tiles().is_some_and(|tiles| tiles.side < 64) {
            return Fit::aside("its tiles have 64 queries, more than a square of the mask");
        }
        if !p.d.is_multiple_of(16) || !p.dv.is_multiple_of(16) {
            return Fit::aside("its products take steps of 16: d and dv must be multiples of it");
        }
        // A tile has 64 queries at the least.
        if p.sq <= 8 { Fit::MEDIUM } else { Fit::HIGH }
    }

    fn space(&self, p: &AttentionProblem, chip: &Chip) -> Space {
        let good = tiles(p, chip);
        let column = |i: usize| good.iter().map(move |t| t[i]).collect::<Vec<_>>();
        // The first value of every axis together are where a search begins: a lone warpgroup has no turns to take, and
        // those that share queries take none.
        let lone = good.first().is_none_or(|t| t[0] == 1 || t[4] == 1);
        // A tile of packed sequences, and what it sees of squares, is looked up once, by a block of its own.
        let sched = if is_short(p, chip) || p.packed.is_some() || p.mask.tiles().is_some() {
            vec![0]
        } else if p.causal {
            vec![2, 1]
        } else {
            vec![1, 2]
        };
        let (p, chip) = (*p, chip.clone());
        let all: Vec<&str> = TILE.into_iter().chain(["PINGPONG", "SCHED"]).collect();
        TILE.iter()
            .enumerate()
            .fold(Space::single(), |space, (i, name)| space.axis(Axis::ints(name, column(i))))
            .axis(Axis::ints("PINGPONG", if p.causal || lone { [0, 1] } else { [1, 0] }))
            .axis(Axis::ints("SCHED", sched))
            .rule(Rule::on("the tile is one worth trying", &TILE, move |c| {
                good.contains(&TILE.map(|a| c.int(a).unwrap_or(0)))
            }))
            .rule(Rule::on("registers and shared memory hold it", &all, move |c| {
                Setting::read(c).and_then(|s| s.check(&p, &chip)).is_ok()
            }))
    }

    fn plan(&self, p: &AttentionProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let s = Setting::read(c)?;
        s.check(p, chip)?;
        let mut defines = facts(p);
        if masks_by_copy(p) {
            defines.extend([("MASK", 3), ("MASK_STAGES", 1)]);
        } else {
            defines.extend(mask_facts(p));
        }
        defines.extend(s.listed(p)?.facts);
        let flags = [("QREG", s.qreg), ("SHARE", s.share), ("PINGPONG", s.pingpong)];
        defines.extend(flags.map(|(n, v)| (n, i64::from(v))));
        let numbers_of = [("CONS", s.cons), ("BN", s.bn), ("STAGES", s.stages), ("SCHED", s.sched), ("RESIDENT", 1)];
        defines.push(("SPLITS", s.splits as i64));
        defines.extend(numbers_of.map(|(n, v)| (n, v as i64)));
        defines.extend([("SHARED", s.shared(p) as i64), packed_fact(p)]);

        let ([apart, rows], [pieces, keys]) = (p.stretches(), p.pieces());
        let q = map(slot::Q, p, [p.d, rows, p.h, apart], p.q_strides(), 64);
        let k = map(slot::K, p, [p.d, keys, p.hkv, pieces], p.k_strides(), s.bn);
        let v = map(slot::V, p, [p.dv, keys, p.hkv, pieces], p.v_strides(), s.bn);
        let mask = match masks_by_copy(p) {
            true => {
                let ([batches, heads], one) = (p.masks(), (p.sq * p.sk) as usize);
                let mask_layout = Strides { batch: heads as usize * one, head: one, row: p.sk as usize };
                map(slot::MASK, p, [p.sk, p.sq, heads, batches], mask_layout, 64)
            }
            // The entry has a place for it and never looks.
            false => q,
        };
        let counters = if s.sched == 2 { Argument::Scratch(Need { words: 2, zeros: 2 }) } else { NOTHING };
        let mut arguments = vec![q, k, v, mask];
        arguments.extend([slot::MASK, slot::SLOPES, slot::OUT, slot::LSE].map(Argument::Pointer));
        arguments.push(counters);
        arguments.extend(if s.sched == 2 { numbers_by_counter(p, chip) } else { numbers(p, chip) });
        arguments.extend(strides(p.o_strides()));
        arguments.extend(mask_strides(p));
        arguments.extend(drops(p, slot::SEED));
        arguments.extend([slot::OFFSETS_Q, slot::OFFSETS_K].map(Argument::Pointer));
        arguments.extend(totals(p));
        let blocks = tiles_of(p, s.rows()) * p.h;
        let text = include_str!("flash_wgmma.cu");
        Ok(Plan {
            source: Source { entry: self.id(), text, headers: &HEADERS, defines },
            threads: 128 * (s.cons as u32 + 1),
            shared: s.shared(p),
            grid: if s.sched == 0 {
                Grid::Blocks(blocks * s.splits)
            } else {
                Grid::Persistent { tiles: blocks, cluster: 1 }
            },
            arguments,
            overlap: true,
        })
    }
}
