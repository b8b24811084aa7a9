//! Pairs in registers: both halves of several heads a thread, vector loads, a table's row read once for all of them.
//! Twin of `pairs.cu`, which says how.
//!
//! Wins: everything. Limits: neighbours as pairs whose heads or rows are of odd length have no vectors.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{AMPERE, Chip, ELEMENT, ROPE, ROWS, Source};

use super::plan::{arguments, facts};
use crate::cuda::plan::{CudaKernelSpec, Grid, Plan, axis};
use crate::rope::{Pairs, RopeProblem, align};

/// Both halves of several heads.
pub(super) struct InRegisters;

/// Threads that fill a GPU: with fewer a thread takes one head first, with more several.
const FILLS: u64 = 1 << 17;

/// Heads of a thread.
const EACH: [u64; 4] = [1, 2, 4, 8];

/// The elements of the widest load that heads, their halves and rows allow.
fn widest(p: &RopeProblem) -> u64 {
    let pieces = if p.pairs == Pairs::Halves { p.rot / 2 } else { p.rot };
    let lines = [pieces, p.d, p.ld, if p.hk > 0 { p.ldk } else { p.ld }];
    lines.iter().map(|n| align(*n, p.dtype)).min().unwrap_or(1) / p.dtype.bytes() as u64
}

/// The same of the table.
fn widest_of_table(p: &RopeProblem) -> u64 {
    let halves = p.rot / 2;
    [p.columns(), halves, p.ldt].iter().map(|n| align(*n, p.table)).min().unwrap_or(1) / p.table.bytes() as u64
}

/// Heads that are touched, and pieces of each.
fn cut(p: &RopeProblem, vec: u64) -> (u64, u64) {
    let span = if p.pairs == Pairs::Halves { 2 } else { 1 };
    let rest = if p.writes_rest() { (p.d - p.rot) / vec } else { 0 };
    (if p.writes_rest() { p.heads() } else { p.turned() }, p.rot / (span * vec) + rest)
}

impl CudaKernelSpec<RopeProblem> for InRegisters {
    fn id(&self) -> &'static str {
        "pairs"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &RopeProblem, chip: &Chip) -> Fit {
        if chip.capability < (8, 0) {
            return Fit::aside("needs a chip from sm_80 on");
        }
        match p.pairs == Pairs::Interleaved && widest(p) == 1 {
            true => Fit::aside("neighbours of heads of odd length lie in no vector"),
            false => Fit::HIGH,
        }
    }

    fn space(&self, p: &RopeProblem, _: &Chip) -> Space {
        let wide = widest(p);
        let (heads, pieces) = cut(p, wide);
        let least = if p.pairs == Pairs::Halves { 1 } else { 2 };
        let vecs = [wide, wide / 2].into_iter().filter(|v| *v == wide || (*v >= least && *v >= 2)).map(|v| v as i64);
        let mut each: Vec<u64> = EACH.into_iter().filter(|each| *each <= heads).collect();
        let begin = if p.rows * heads * pieces > FILLS { 4 } else { 1 };
        each.sort_by_key(|each| each.abs_diff(begin));
        Space::single()
            .axis(Axis::ints("EACH", each.into_iter().map(|each| each as i64)))
            .axis(Axis::ints("THREADS", [128, 256, 512, 64]))
            .axis(Axis::ints("VEC", vecs))
            .axis(Axis::ints("STREAM", [0, 1]))
    }

    fn plan(&self, p: &RopeProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let (each, threads, vec, stream) = (axis(c, "EACH")?, axis(c, "THREADS")?, axis(c, "VEC")?, axis(c, "STREAM")?);
        let even = p.pairs == Pairs::Halves || vec % 2 == 0;
        if vec == 0
            || !widest(p).is_multiple_of(vec)
            || !even
            || !EACH.contains(&each)
            || !(32..=1024).contains(&threads)
        {
            let reason = format!("{each} heads of {threads} threads, {vec} elements a load: not for this problem");
            return Err(Rejection::DoesNotBuild { reason });
        }
        let (heads, pieces) = cut(p, vec);
        let mut defines = facts(p);
        let table = widest_of_table(p);
        let setting = [("THREADS", threads), ("EACH", each), ("VEC", vec), ("TVEC", table), ("STREAM", stream)];
        defines.extend(setting.map(|(name, value)| (name, value as i64)));
        let headers = &[AMPERE, ROPE, ROWS, ELEMENT];
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("pairs.cu"), headers, defines },
            threads: threads as u32,
            shared: 0,
            grid: Grid::Blocks((p.rows * heads.div_ceil(each) * pieces).div_ceil(threads)),
            arguments: arguments(p),
            overlap: chip.capability >= (9, 0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rope::Rope;
    use warplap_core::op::Op;

    #[test]
    fn loads_are_as_wide_as_heads_halves_and_rows_allow() {
        for (text, vec, table) in [
            ("rows=9,h=40,d=128,dtype=bf16", 8, 8),
            ("rows=9,h=40,d=128,dtype=bf16,table=f32", 8, 4),
            ("rows=9,h=2,d=80,dtype=f16", 8, 8),
            ("rows=9,h=2,d=80,rot=20,dtype=f16", 2, 2),
            ("rows=9,h=2,d=80,rot=20,dtype=f16,pairs=interleaved", 4, 2),
            ("rows=9,h=2,d=64,ld=132,dtype=f16", 4, 8),
            ("rows=9,h=2,hk=1,d=64,ldk=65", 1, 4),
            ("rows=9,h=2,d=64,ldt=35,dtype=bf16", 8, 1),
            ("rows=9,h=2,d=12,rot=6", 1, 1),
        ] {
            let p = Rope::parse(text).unwrap();
            assert_eq!((widest(&p), widest_of_table(&p)), (vec, table), "{text}");
        }
    }

    #[test]
    fn every_element_that_is_touched_has_a_thread() {
        for (text, heads, pieces) in [
            ("rows=9,h=40,d=128,dtype=bf16", 40, 8),
            ("rows=9,h=40,hk=8,d=128,dtype=bf16,pairs=interleaved", 48, 16),
            ("rows=9,h=6,d=96,rot=32,plain=2,dtype=bf16", 6, 2 + 8),
            ("rows=9,h=6,d=96,rot=32,plain=2,dtype=bf16,inplace=true", 4, 2),
            ("rows=9,h=6,d=96,rot=32,plain=2,dtype=bf16,inplace=true,bias=true", 6, 2 + 8),
        ] {
            let p = Rope::parse(text).unwrap();
            assert_eq!(cut(&p, widest(&p)), (heads, pieces), "{text}");
        }
    }
}
