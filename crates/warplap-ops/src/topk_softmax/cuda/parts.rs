//! Parts: one block a row; warps choose of their parts, one of them joins what they chose. Twin of `parts.cu`, which
//! says how.
//!
//! Wins: long rows. Limits: rows from 512 experts on.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use super::plan::{HEADERS, arguments, facts, loads, of_thread, suits, widest};
use crate::cuda::plan::{CudaKernelSpec, Grid, Plan, axis};
use crate::topk_softmax::TopkSoftmaxProblem;

/// One block a row.
pub(super) struct Parts;

/// Warps a row may have.
const WARPS: [u64; 4] = [2, 4, 8, 16];

/// Experts of a row, at the least: shorter ones are a warp's.
const LEAST: u64 = 512;

/// Elements of a thread that are a good beginning.
const OF_THREAD: u64 = 8;

fn warps(p: &TopkSoftmaxProblem) -> Vec<u64> {
    let wide = widest(p);
    let mut warps: Vec<u64> = WARPS.into_iter().filter(|warps| suits(p, 32 * warps, wide)).collect();
    warps.sort_by_key(|warps| of_thread(p, 32 * warps, wide).abs_diff(OF_THREAD));
    warps
}

/// Whether a setting can be built.
fn can(p: &TopkSoftmaxProblem, [warps, vec]: [u64; 2]) -> bool {
    WARPS.contains(&warps) && vec > 0 && widest(p).is_multiple_of(vec) && suits(p, 32 * warps, vec)
}

impl CudaKernelSpec<TopkSoftmaxProblem> for Parts {
    fn id(&self) -> &'static str {
        "parts"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &TopkSoftmaxProblem, chip: &Chip) -> Fit {
        match p.n {
            _ if chip.capability < (8, 0) => Fit::aside("needs a chip from sm_80 on"),
            n if n < LEAST || warps(p).is_empty() => Fit::aside("made for rows of 512 experts and more"),
            _ => Fit::HIGH,
        }
    }

    fn space(&self, p: &TopkSoftmaxProblem, _: &Chip) -> Space {
        let problem = *p;
        let number = |c: &Config, name: &str| c.int(name).map_or(0, |v| v as u64);
        Space::single()
            .axis(Axis::ints("WARPS", warps(p).into_iter().map(|warps| warps as i64)))
            .axis(Axis::ints("VEC", loads(p)))
            .rule(Rule::on("registers hold a row and every warp has a part of it", &["WARPS", "VEC"], move |c| {
                can(&problem, ["WARPS", "VEC"].map(|name| number(c, name)))
            }))
    }

    fn plan(&self, p: &TopkSoftmaxProblem, c: &Config, _: &Chip) -> Result<Plan, Rejection> {
        let [warps, vec] = [axis(c, "WARPS")?, axis(c, "VEC")?];
        if !can(p, [warps, vec]) {
            let reason = format!("{warps} warps, {vec} elements a load: not for rows of {}", p.n);
            return Err(Rejection::DoesNotBuild { reason });
        }
        let mut defines = facts(p);
        let setting = [("WARPS", warps), ("VEC", vec), ("STREAM", 0)];
        defines.extend(setting.map(|(name, value)| (name, value as i64)));
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("parts.cu"), headers: &HEADERS, defines },
            threads: 32 * warps as u32,
            shared: 0,
            grid: Grid::Blocks(p.rows),
            arguments: arguments(p),
            overlap: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topk_softmax::TopkSoftmax;
    use warplap_core::op::Op;

    #[test]
    fn rows_from_512_on_have_settings() {
        let chip = Chip::h200();
        for n in [512, 513, 777, 1000, 1023, 2048, 4095, 4096] {
            for dtype in ["f32", "bf16"] {
                let p = TopkSoftmax::parse(&format!("rows=9,n={n},k=64,dtype={dtype}")).unwrap();
                let configs = Parts.space(&p, &chip).configs();
                assert!(!configs.is_empty() && matches!(Parts.fit(&p, &chip), Fit::Fits(_)), "{p:?}");
                for config in configs {
                    assert!(Parts.plan(&p, &config, &chip).is_ok(), "{p:?} {config}");
                }
            }
        }
        let short = TopkSoftmax::parse("rows=9,n=511,k=8").unwrap();
        assert!(matches!(Parts.fit(&short, &chip), Fit::Aside(_)));
    }
}
