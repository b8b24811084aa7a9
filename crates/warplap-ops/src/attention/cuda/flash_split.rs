//! Decoding: few queries against many keys, which are read once, straight into registers. Twin of `flash_split.cu`.
//!
//! Wins: one token, or a few, against a long past; grouped heads; keys in pages and batches of unequal length. Limits: f16
//! and bf16, heads of 8, 16 … 256 elements, pages of 16, 32 … keys.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{AMPERE, ATTENTION, Chip, ELEMENT, HOPPER, PHILOX, Source};

use super::plan::{
    NOTHING, align, all_strides, facts, floats, length_fact, mask_code, no_sequences, no_tensor_cores, page_fact,
    pointers, square_fact, window,
};
use crate::attention::{AttentionProblem, slot};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan, axis, int};
use crate::cuda::scratch::Need;

/// Keys cut into parts that are brought together at the end.
pub(super) struct FlashSplit;

const HEADERS: [(&str, &str); 5] = [AMPERE, ELEMENT, ATTENTION, HOPPER, PHILOX];

/// Queries of all heads of a group up to which it is raced first, and at all: every 8 or 16 of them read all keys
/// again.
const FEW: u64 = 32;
const MOST: u64 = 128;

/// Registers of a multiprocessor, a thread of each of its 32 lanes taken together.
const REGISTERS: u64 = 2048;

/// How the parts of the keys come together.
const ONE: u64 = 0;
const CLUSTER: u64 = 1;
const SCRATCH: u64 = 2;

/// Queries that share a head of keys.
fn packed(p: &AttentionProblem) -> u64 {
    p.sq * p.group()
}

/// Packed queries of a block, in eights: two where there are more than eight and registers hold their sums.
fn columns(p: &AttentionProblem) -> u64 {
    if packed(p) > 8 && p.d.max(p.dv) <= 128 { 2 } else { 1 }
}

/// Blocks that share nothing: chunks of the packed queries, heads, batches.
fn units(p: &AttentionProblem) -> u64 {
    packed(p).div_ceil(8 * columns(p)) * p.hkv * p.b
}

/// Registers of a thread: queries and sums, and what is under way of keys and values. The rest is for addresses.
fn registers(p: &AttentionProblem, tiles: u64) -> u64 {
    let (keys, values) = (p.d.div_ceil(32), p.dv.div_ceil(64));
    let held = columns(p) * (16 * values + 4 * keys) + tiles * (8 * keys + 16 * values);
    (held + 16).max(128)
}

/// Words of one warp's or block's sums, with a maximum and a sum for each row.
fn entry(p: &AttentionProblem) -> u64 {
    let rows = 8 * columns(p);
    rows * (p.dv.div_ceil(64) * 64 + 4) + rows * 4
}

impl CudaKernelSpec<AttentionProblem> for FlashSplit {
    fn id(&self) -> &'static str {
        "flash_split"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &AttentionProblem, chip: &Chip) -> Fit {
        if let Some(why) = no_tensor_cores(p, chip).or_else(|| no_sequences(p)) {
            return Fit::aside(why);
        }
        if p.dropout() > 0.0 {
            return Fit::aside("weights are dropped in training, not one query at a time");
        }
        if p.paged.is_some_and(|paged| !paged.page.is_multiple_of(16)) {
            return Fit::aside("takes 16 keys at a time: page must be a multiple of 16");
        }
        if align(p) < 16 {
            return Fit::aside("reads whole 16 bytes: d and dv must be multiples of 8");
        }
        match packed(p) {
            few if few <= FEW => Fit::HIGH,
            more if more <= MOST => Fit::LOW,
            _ => Fit::aside("made for few queries: at most 128, those of all heads that share keys counted together"),
        }
    }

    fn space(&self, p: &AttentionProblem, chip: &Chip) -> Space {
        let (units, multiprocessors) = (units(p), u64::from(chip.multiprocessors));
        let (enough, long) = (units >= 2 * multiprocessors, p.sk > 4096);
        // The first value of every axis together are where a search begins.
        let warps = if long { [8, 4] } else { [4, 8] };
        let wide = (enough || long) && columns(p) == 1 && registers(p, 2) <= 255;
        // A cluster has eight blocks at the most: where that leaves multiprocessors idle, a long past is cut further.
        let mut parts: [u64; 6] = match long && 8 * units < multiprocessors {
            _ if enough => [1, 8, 4, 2, 16, 32],
            true => [16, 8, 32, 4, 2, 1],
            false => [8, 4, 2, 16, 32, 1],
        };
        let sk = p.sk;
        let busy = move |parts: u64, warps: u64| {
            let keys = parts * warps * 16 <= sk.next_multiple_of(128);
            parts == 1 || (keys && (parts == 2 || units * parts <= 16 * multiprocessors))
        };
        parts.sort_by_key(|parts| !busy(*parts, warps[0]));
        let combine = match parts[0] {
            1 => [ONE, SCRATCH, CLUSTER],
            2..=8 if chip.is_hopper() => [CLUSTER, SCRATCH, ONE],
            _ => [SCRATCH, CLUSTER, ONE],
        };
        let (p, chip) = (*p, chip.clone());
        let of = |c: &Config, name: &str| c.int(name).map_or(0, |v| v as u64);
        Space::single()
            .axis(Axis::ints("WARPS", warps.map(|w| w as i64)))
            .axis(Axis::ints("TILES", if wide { [2, 1] } else { [1, 2] }))
            .axis(Axis::ints("COMBINE", combine.map(|c| c as i64)))
            .axis(Axis::ints("PARTS", parts.map(|n| n as i64)))
            .rule(Rule::on("one part needs nothing brought together", &["COMBINE", "PARTS"], move |c| {
                (of(c, "COMBINE") == ONE) == (of(c, "PARTS") == 1)
            }))
            .rule(Rule::on("parts run at once, and every warp has keys", &["WARPS", "PARTS"], move |c| {
                busy(of(c, "PARTS"), of(c, "WARPS"))
            }))
            .rule(Rule::on("the chip has what it takes", &["WARPS", "TILES", "COMBINE", "PARTS"], move |c| {
                FlashSplit.plan(&p, c, &chip).is_ok()
            }))
    }

    fn plan(&self, p: &AttentionProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [warps, tiles] = [axis(c, "WARPS")?, axis(c, "TILES")?];
        let [combine, parts] = [axis(c, "COMBINE")?, axis(c, "PARTS")?];
        let fine = match combine {
            ONE => parts == 1,
            CLUSTER => (2..=8).contains(&parts) && chip.is_hopper(),
            SCRATCH => (2..=64).contains(&parts),
            _ => false,
        };
        if !fine || !(2..=16).contains(&warps) || !(1..=2).contains(&tiles) || (columns(p) == 2 && tiles == 2) {
            let reason = format!("{parts} parts of {warps} warps, {tiles} tiles a step, brought together by {combine}");
            return Err(Rejection::DoesNotBuild { reason });
        }
        let (entry, units) = (entry(p), units(p));
        let shared = 4 * (warps + 1) * entry;
        if shared > chip.shared_memory || registers(p, tiles) > 255 {
            let reason = format!("{warps} warps take {shared} bytes of shared memory");
            return Err(Rejection::OverLimits { reason });
        }
        // As many blocks as registers allow hide memory best.
        let resident = (REGISTERS / (warps * registers(p, tiles))).clamp(1, 4);
        let mut defines = facts(p);
        defines.extend([("MASK", mask_code(p)), square_fact(p)]);
        let cluster = if combine == CLUSTER { parts } else { 1 };
        let axes = [("WARPS", warps), ("TILES", tiles), ("COMBINE", combine), ("SPLITS", cluster), ("AHEAD", 0)];
        let sizes = [("GROUP", p.group()), ("COLUMNS", columns(p)), ("RESIDENT", resident), ("SHARED", shared)];
        defines.extend(axes.into_iter().chain(sizes).map(|(n, v)| (n, v as i64)));
        defines.extend([page_fact(p), length_fact(p)]);
        let zeros = units.next_multiple_of(4);
        let scratch = match combine {
            SCRATCH => Argument::Scratch(Need { words: zeros + units * parts * entry, zeros }),
            _ => NOTHING,
        };
        let mut arguments = pointers();
        arguments.extend([Argument::Pointer(slot::TABLE), Argument::Pointer(slot::LENGTHS), scratch]);
        arguments.extend([p.b, p.h, p.sq, p.sk].map(int));
        arguments.extend(window(p));
        arguments.extend([parts, p.entries(), p.pieces()[0]].map(int));
        arguments.extend(floats(p));
        arguments.extend(all_strides(p));
        let text = include_str!("flash_split.cu");
        Ok(Plan {
            source: Source { entry: self.id(), text, headers: &HEADERS, defines },
            threads: 32 * warps as u32,
            shared,
            grid: Grid::Blocks(units * parts),
            arguments,
            overlap: chip.capability.0 >= 9,
        })
    }
}
