//! Settings of `flash_wgmma`: tiles worth trying, and what of a multiprocessor each takes. Limits were measured: beyond
//! them the assembler spills registers or serialises the products.

use warplap_core::rejection::Rejection;
use warplap_core::space::Config;
use warplap_cuda::Chip;

use super::listed::{Listed, listed};
use super::plan::is_short;
use crate::attention::{AttentionProblem, Mask};
use crate::cuda::plan::axis;

/// Static shared memory for barriers and the number of a tile, at the most.
const BARRIERS: u64 = 512;

/// What a setting says beside the order of tiles and the turns of warpgroups: CONS, BN, STAGES, QREG, SHARE, SPLITS.
pub(super) const TILE: [&str; 6] = ["CONS", "BN", "STAGES", "QREG", "SHARE", "SPLITS"];

/// Tiles worth trying, those that won first: by the width of heads, for many tiles and for fewer than multiprocessors.
/// The first that fits registers and shared memory is where a search begins.
const LONG_64: [[i64; 6]; 4] = [[4, 64, 3, 0, 0, 1], [3, 128, 2, 0, 0, 1], [4, 64, 4, 0, 0, 1], [2, 128, 2, 1, 0, 1]];
const LONG_CAUSAL_64: [[i64; 6]; 3] = [[3, 128, 2, 0, 0, 1], [4, 64, 3, 0, 0, 1], [2, 128, 2, 1, 0, 1]];
const LONG: [[i64; 6]; 7] = [
    [2, 128, 2, 1, 0, 1],
    [2, 176, 2, 0, 0, 1],
    [2, 128, 2, 0, 0, 1],
    [2, 96, 2, 0, 0, 1],
    [2, 80, 2, 0, 0, 1],
    [2, 64, 2, 0, 0, 1],
    [2, 32, 2, 0, 0, 1],
];
const SHORT: [[i64; 6]; 10] = [
    [1, 128, 4, 1, 0, 1],
    [1, 128, 2, 1, 0, 1],
    [1, 128, 2, 0, 0, 1],
    [2, 128, 4, 0, 1, 1],
    [2, 64, 4, 0, 1, 1],
    [2, 128, 2, 0, 0, 1],
    [2, 96, 2, 0, 0, 1],
    [1, 64, 2, 0, 0, 1],
    [2, 64, 2, 0, 0, 1],
    [1, 32, 2, 0, 0, 1],
];
/// Where two blocks to every 64 queries still run at once.
const FEW: [[i64; 6]; 3] = [[2, 64, 4, 0, 1, 2], [1, 128, 2, 1, 0, 2], [2, 128, 2, 0, 1, 2]];

/// Whether the copy engine brings the mask: rows of 16 bytes.
pub(super) fn masks_by_copy(p: &AttentionProblem) -> bool {
    p.mask == Mask::Add && p.sk.is_multiple_of(8)
}

/// Those of a problem that registers and shared memory hold.
pub(super) fn tiles(p: &AttentionProblem, chip: &Chip) -> Vec<[i64; 6]> {
    let all: &[[i64; 6]] = match p.d.max(p.dv) {
        _ if is_short(p, chip) || p.mask.tiles().is_some_and(|tiles| tiles.side == 64) => &SHORT,
        // Random numbers take registers that narrow heads have no room for beside them.
        0..=64 if !p.mask.is_by_pair() && p.mask.tiles().is_none_or(|tiles| tiles.side > 128) && p.dropout() == 0.0 => {
            if p.causal {
                &LONG_CAUSAL_64
            } else {
                &LONG_64
            }
        }
        _ => &LONG,
    };
    let few: &[[i64; 6]] =
        if 2 * p.sq.div_ceil(64) * p.h * p.b <= u64::from(chip.multiprocessors) { &FEW } else { &[] };
    few.iter().chain(all).copied().filter(|tile| Setting::plain(*tile).check(p, chip).is_ok()).collect()
}

/// One setting, read.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub(super) cons: u64,
    pub(super) bn: u64,
    pub(super) stages: u64,
    pub(super) qreg: bool,
    pub(super) share: bool,
    pub(super) splits: u64,
    pub(super) pingpong: bool,
    pub(super) sched: u64,
}

impl Setting {
    pub(super) fn read(c: &Config) -> Result<Self, Rejection> {
        let flag = |name| axis(c, name).map(|v| v != 0);
        let [cons, bn, stages] = [axis(c, "CONS")?, axis(c, "BN")?, axis(c, "STAGES")?];
        let (qreg, share, pingpong) = (flag("QREG")?, flag("SHARE")?, flag("PINGPONG")?);
        let [splits, sched] = [axis(c, "SPLITS")?, axis(c, "SCHED")?];
        Ok(Setting { cons, bn, stages, qreg, share, splits, pingpong, sched })
    }

    /// A tile, every block of it taken by itself.
    fn plain([cons, bn, stages, qreg, share, splits]: [i64; 6]) -> Self {
        let [cons, bn, stages, splits] = [cons, bn, stages, splits].map(|v| v as u64);
        Setting { cons, bn, stages, qreg: qreg != 0, share: share != 0, splits, pingpong: false, sched: 0 }
    }

    /// Queries of a tile.
    pub(super) fn rows(&self) -> u64 {
        if self.share { 64 } else { 64 * self.cons }
    }

    /// Why it is none, whatever the problem.
    fn illegal(&self) -> Option<&'static str> {
        if !(1..=4).contains(&self.cons)
            || self.stages < 2
            || !(16..=256).contains(&self.bn)
            || !self.bn.is_multiple_of(16)
        {
            Some("one to four consumers, two stages or more, blocks of 16, 32 … 256 keys")
        } else if self.sched > 2 || (self.pingpong && self.cons == 1) {
            Some("turns need two warpgroups, and there are three orders of tiles")
        } else if self.qreg && ![64, 128, 256].contains(&self.bn) {
            Some("queries in registers go with blocks of 64, 128 or 256 keys")
        } else if self.share && (self.sched > 0 || self.pingpong || !self.stages.is_multiple_of(self.cons)) {
            Some("warpgroups that share queries take blocks of keys in turn, in one tile")
        } else if !(1..=8).contains(&self.splits) || (self.splits > 1 && (self.sched > 0 || self.rows() != 64)) {
            Some("blocks that take a part of the keys each, eight at the most, have one tile of 64 queries")
        } else {
            None
        }
    }

    /// Registers of a consumer's thread for sums, scores, weights, the mask's and Q's elements.
    fn registers(&self, p: &AttentionProblem) -> u64 {
        let masked = if p.mask.is_by_pair() { self.bn / 4 } else { 0 };
        let kept = if self.qreg { p.d / 4 } else { 0 };
        self.bn / 2 + p.dv / 2 + self.bn / 4 + masked + kept
    }

    /// How many of them there are, measured: what addresses and the running softmax take is not among them.
    fn most_registers(&self, p: &AttentionProblem) -> u64 {
        let drops = p.dropout() > 0.0;
        match self.cons {
            // Caps, distances and random numbers take some of their own.
            4 if p.has_score_mod() || drops => 64,
            3 if p.has_score_mod() || drops => 112,
            4 => 80,
            3 => 128,
            // Threads that read the mask by themselves hold addresses for it.
            _ if p.mask.is_by_pair() && !masks_by_copy(p) => {
                if drops {
                    144
                } else {
                    168
                }
            }
            _ if drops => 168,
            _ if p.mask == Mask::Add => 224,
            _ => 200,
        }
    }

    /// Bytes of shared memory: Q, the stages of K and V, the mask's, and what other blocks of the cluster send.
    pub(super) fn shared(&self, p: &AttentionProblem) -> u64 {
        let [q, v] = [p.d, p.dv].map(|width| width.div_ceil(64));
        let owners = self.rows() / 64;
        let masks = if masks_by_copy(p) { self.cons * self.bn.div_ceil(64) * 8192 } else { 0 };
        let sent = (self.splits - 1) * (p.dv / 2 + 4) * 512;
        owners * q * 8192 + self.stages * self.bn * 128 * (q + v) + masks + sent + 1024
    }

    /// What it lists of a mask of squares.
    pub(super) fn listed(&self, p: &AttentionProblem) -> Result<Listed, Rejection> {
        listed(p, [self.rows(), self.bn], p.sk.div_ceil(self.bn))
    }

    /// Whether registers and shared memory hold it.
    pub(super) fn check(&self, p: &AttentionProblem, chip: &Chip) -> Result<(), Rejection> {
        if let Some(why) = self.illegal() {
            return Err(Rejection::DoesNotBuild { reason: why.into() });
        }
        if p.packed.is_some() && (self.splits > 1 || self.sched > 0) {
            let reason = "a block knows one tile of one sequence".into();
            return Err(Rejection::DoesNotBuild { reason });
        }
        if p.mask.tiles().is_some() && self.sched > 0 {
            return Err(Rejection::DoesNotBuild { reason: "a list is of one tile".into() });
        }
        if self.share && masks_by_copy(p) {
            let reason = "a block of the mask belongs to one warpgroup".into();
            return Err(Rejection::DoesNotBuild { reason });
        }
        let (bytes, registers) = (self.shared(p), self.registers(p));
        if bytes + BARRIERS + self.listed(p)?.bytes > chip.shared_memory {
            let reason = format!("{} stages take {bytes} bytes of shared memory", self.stages);
            return Err(Rejection::OverLimits { reason });
        }
        if registers > self.most_registers(p) {
            let reason = format!("{registers} registers of a thread for {} keys by {}", self.bn, p.dv);
            return Err(Rejection::OverLimits { reason });
        }
        Ok(())
    }
}
