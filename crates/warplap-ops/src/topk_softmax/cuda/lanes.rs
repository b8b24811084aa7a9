//! Lanes: some lanes of a warp a row, the row in registers. Twin of `lanes.cu`, which says how.
//!
//! Wins: rows of up to some hundred experts. Limits: rows that the registers of a warp hold, 1024 experts.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use super::plan::{HEADERS, arguments, facts, loads, of_thread, suits, widest};
use crate::cuda::plan::{CudaKernelSpec, Grid, Plan, axis};
use crate::topk_softmax::TopkSoftmaxProblem;

/// Some lanes of a warp a row.
pub(super) struct Lanes;

/// Lanes a row may have.
const LANES: [u64; 6] = [1, 2, 4, 8, 16, 32];

/// Elements of a lane that are a good beginning: enough of them are under way, and few are looked at again.
const OF_LANE: u64 = 8;

/// Weights that a block keeps until their sum is known, at the most.
const KEPT: u64 = 8192;

fn lanes(p: &TopkSoftmaxProblem) -> Vec<u64> {
    let wide = widest(p);
    let mut lanes: Vec<u64> = LANES.into_iter().filter(|lanes| suits(p, *lanes, wide)).collect();
    lanes.sort_by_key(|lanes| of_thread(p, *lanes, wide).abs_diff(OF_LANE));
    lanes
}

/// Whether a setting can be built.
fn can(p: &TopkSoftmaxProblem, [lanes, vec, threads]: [u64; 3]) -> bool {
    let known = LANES.contains(&lanes) && vec > 0 && widest(p).is_multiple_of(vec) && [128, 256].contains(&threads);
    known && suits(p, lanes, vec) && threads / lanes * p.k <= KEPT
}

impl CudaKernelSpec<TopkSoftmaxProblem> for Lanes {
    fn id(&self) -> &'static str {
        "lanes"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &TopkSoftmaxProblem, chip: &Chip) -> Fit {
        match lanes(p).is_empty() {
            _ if chip.capability < (8, 0) => Fit::aside("needs a chip from sm_80 on"),
            true => Fit::aside("a warp's registers do not hold a row"),
            false => Fit::HIGH,
        }
    }

    fn space(&self, p: &TopkSoftmaxProblem, _: &Chip) -> Space {
        let problem = *p;
        let number = |c: &Config, name: &str| c.int(name).map_or(0, |v| v as u64);
        Space::single()
            .axis(Axis::ints("LANES", lanes(p).into_iter().map(|lanes| lanes as i64)))
            .axis(Axis::ints("VEC", loads(p)))
            .axis(Axis::ints("THREADS", [128, 256]))
            .rule(Rule::on("registers hold a row and a block its weights", &["LANES", "VEC", "THREADS"], move |c| {
                can(&problem, ["LANES", "VEC", "THREADS"].map(|name| number(c, name)))
            }))
    }

    fn plan(&self, p: &TopkSoftmaxProblem, c: &Config, _: &Chip) -> Result<Plan, Rejection> {
        let [lanes, vec, threads] = [axis(c, "LANES")?, axis(c, "VEC")?, axis(c, "THREADS")?];
        if !can(p, [lanes, vec, threads]) {
            let reason = format!("{lanes} lanes of {threads}, {vec} elements a load: not for rows of {}", p.n);
            return Err(Rejection::DoesNotBuild { reason });
        }
        let mut defines = facts(p);
        let setting = [("LANES", lanes), ("VEC", vec), ("THREADS", threads), ("WARPS", 1), ("STREAM", 0)];
        defines.extend(setting.map(|(name, value)| (name, value as i64)));
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("lanes.cu"), headers: &HEADERS, defines },
            threads: threads as u32,
            shared: 0,
            grid: Grid::Blocks(p.rows.div_ceil(threads / lanes)),
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
    fn rows_of_up_to_1024_have_settings_and_short_ones_share_a_warp() {
        let chip = Chip::h200();
        for n in [1, 2, 7, 8, 60, 64, 77, 128, 256, 1000, 1023, 1024] {
            for k in [1, n.min(64)] {
                for dtype in ["f32", "bf16"] {
                    let p = TopkSoftmax::parse(&format!("rows=9,n={n},k={k},dtype={dtype}")).unwrap();
                    let configs = Lanes.space(&p, &chip).configs();
                    assert!(!configs.is_empty() && matches!(Lanes.fit(&p, &chip), Fit::Fits(_)), "{p:?}");
                    for config in configs {
                        assert!(Lanes.plan(&p, &config, &chip).is_ok(), "{p:?} {config}");
                    }
                }
            }
        }
        let first = |text: &str| Lanes.space(&TopkSoftmax::parse(text).unwrap(), &chip).default_config().unwrap();
        assert_eq!(first("rows=9,n=8,k=2,dtype=bf16").int("LANES"), Some(1));
        assert_eq!(first("rows=9,n=128,k=8,dtype=bf16").int("LANES"), Some(16));
        let long = TopkSoftmax::parse("rows=9,n=1025,k=8").unwrap();
        assert!(matches!(Lanes.fit(&long, &chip), Fit::Aside(_)));
    }
}
