//! Rows in registers: a warp or a block a row, vector loads, warp shuffles. Twin of `rows.cu`, which says how.
//!
//! Wins: everything. Limits: rows that registers cannot hold are read again for every step.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, ELEMENT, Source};

use super::plan::{arguments, facts};
use crate::cuda::plan::{Grid, Plan, Twin, axis};
use crate::norm::{ALIGN, NormProblem};

/// A warp or a block a row.
pub(super) struct Rows;

/// Warps a row may have.
const WARPS: [u64; 6] = [1, 2, 4, 8, 16, 32];

/// Rows of a block, where a row has one warp.
const TOGETHER: u64 = 4;

/// Elements of a thread that registers hold: a block's 65536 registers are dealt out to its threads.
fn most(warps: u64) -> u64 {
    if warps == 32 { 32 } else { 64 }
}

/// Elements of a thread, where a load brings `vec` of them.
fn held(p: &NormProblem, warps: u64, vec: u64) -> u64 {
    p.n.div_ceil(32 * warps * vec) * vec
}

/// Whether a row stays in registers.
fn is_kept(p: &NormProblem, warps: u64, vec: u64) -> bool {
    held(p, warps, vec) <= most(warps)
}

/// The elements of the widest load that rows of this length and alignment allow.
fn widest(p: &NormProblem) -> u64 {
    (ALIGN / p.dtype.bytes() as u64).min(1 << p.n.trailing_zeros())
}

/// Whether a row is cut well: kept in registers where any number of warps can, and no threads that have nothing at all.
fn suits(p: &NormProblem, warps: u64, vec: u64) -> bool {
    let busy = warps == 1 || p.n.div_ceil(vec) > 32 * warps / 2;
    let kept = is_kept(p, warps, vec) || (warps >= 16 && !WARPS.iter().any(|w| is_kept(p, *w, vec)));
    busy && kept
}

impl Twin<NormProblem> for Rows {
    fn id(&self) -> &'static str {
        "rows"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &NormProblem, chip: &Chip) -> Fit {
        if chip.capability < (8, 0) { Fit::aside("needs a chip from sm_80 on") } else { Fit::HIGH }
    }

    fn space(&self, p: &NormProblem, _: &Chip) -> Space {
        let (p, wide) = (*p, widest(p));
        // Two loads a thread are enough under way and few enough to wait for.
        let mut warps: Vec<u64> = WARPS.into_iter().filter(|w| suits(&p, *w, wide)).collect();
        warps.sort_by_key(|w| (held(&p, *w, wide).abs_diff(2 * wide), *w));
        let vecs = [wide, wide / 2].into_iter().filter(|v| *v == wide || *v >= 2).map(|v| v as i64);
        let number = |c: &Config, name: &str| c.int(name).map_or(0, |v| v as u64);
        Space::single()
            .axis(Axis::ints("WARPS", warps.into_iter().map(|w| w as i64)))
            .axis(Axis::ints("VEC", vecs))
            .axis(Axis::ints("STREAM", [0, 1]))
            .rule(Rule::on("registers hold a row and every warp has a part of it", &["WARPS", "VEC"], move |c| {
                suits(&p, number(c, "WARPS"), number(c, "VEC"))
            }))
    }

    fn plan(&self, p: &NormProblem, c: &Config, _: &Chip) -> Result<Plan, Rejection> {
        let (warps, vec, stream) = (axis(c, "WARPS")?, axis(c, "VEC")?, axis(c, "STREAM")?);
        if !WARPS.contains(&warps) || vec == 0 || !widest(p).is_multiple_of(vec) {
            let reason = format!("{warps} warps, {vec} elements a load: not for rows of {}", p.n);
            return Err(Rejection::DoesNotBuild { reason });
        }
        let together = if warps == 1 { TOGETHER } else { 1 };
        let mut defines = facts(p);
        defines.extend([("N", p.n as i64), ("WARPS", warps as i64), ("VEC", vec as i64), ("STREAM", stream as i64)]);
        defines.extend([("TOGETHER", together as i64), ("KEEP", i64::from(is_kept(p, warps, vec)))]);
        let text = include_str!("rows.cu");
        Ok(Plan {
            source: Source { entry: self.id(), text, headers: &[ELEMENT], defines },
            threads: (32 * warps * together) as u32,
            shared: 0,
            grid: Grid::Blocks(p.rows.div_ceil(together)),
            arguments: arguments(p),
            overlap: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::norm::Norm;
    use warplap_core::op::Op;

    #[test]
    fn rows_of_every_length_have_a_setting_and_short_ones_stay_in_registers() {
        let chip = Chip::h200();
        for dtype in ["f32", "f16", "bf16"] {
            for n in [1, 2, 3, 31, 33, 64, 77, 768, 1000, 1024, 4095, 4096, 8192, 32768, 32769, 40001, 1 << 20] {
                let p = Norm::parse(&format!("rows=9,n={n},dtype={dtype}")).unwrap();
                let configs = Rows.space(&p, &chip).configs();
                assert!(!configs.is_empty(), "{n} {dtype}");
                for config in &configs {
                    let plan = Rows.plan(&p, config, &chip).unwrap();
                    let kept = plan.source.defines.contains(&("KEEP", 1));
                    assert!(kept == (n <= 32768) && plan.threads <= 1024, "{n} {dtype} {config}");
                }
            }
        }
    }

    #[test]
    fn loads_are_as_wide_as_rows_allow_and_a_model_s_row_begins_with_two_a_thread() {
        let vec = |text: &str| widest(&Norm::parse(text).unwrap());
        assert_eq!(vec("rows=1,n=4096,dtype=bf16"), 8);
        assert_eq!(vec("rows=1,n=4096,dtype=f32"), 4);
        assert_eq!((vec("rows=1,n=20,dtype=f16"), vec("rows=1,n=77,dtype=f16")), (4, 1));
        let p = Norm::parse("rows=1,n=4096,dtype=bf16").unwrap();
        let first = Rows.space(&p, &Chip::h200()).default_config().unwrap();
        assert_eq!((first.int("WARPS"), first.int("VEC")), (Some(8), Some(8)));
        let odd = Config::parse("WARPS=8,VEC=16,STREAM=0").unwrap();
        assert!(Rows.plan(&p, &odd, &Chip::h200()).is_err());
    }
}
