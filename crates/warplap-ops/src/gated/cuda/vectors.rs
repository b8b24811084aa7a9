//! Vectors: a thread has some vectors of a row, and asks for all of them at once. Twin of `vectors.cu`, which says how.
//!
//! Wins: everything. Limits: rows of odd length have vectors of one element.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{AMPERE, Chip, ELEMENT, EPILOGUE, ROWS, Source};

use super::plan::{arguments, facts};
use crate::cuda::plan::{CudaKernelSpec, Grid, Plan, axis};
use crate::gated::{GatedProblem, align};
use crate::gemm::Join;

/// Some vectors a thread.
pub(super) struct Vectors;

/// Threads that fill a GPU: with fewer a thread takes one vector first, with more several.
const FILLS: u64 = 1 << 17;

/// Vectors of a thread.
const UNROLLS: [u64; 3] = [1, 2, 4];

/// The elements of the widest load that rows allow.
fn widest(p: &GatedProblem) -> u64 {
    let ldb = if p.join == Join::None { p.n } else { p.ldb };
    [p.n, p.lda, ldb].iter().map(|n| align(*n, p.dtype)).min().unwrap_or(1) / p.dtype.bytes() as u64
}

impl CudaKernelSpec<GatedProblem> for Vectors {
    fn id(&self) -> &'static str {
        "vectors"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &GatedProblem, chip: &Chip) -> Fit {
        if chip.capability < (8, 0) { Fit::aside("needs a chip from sm_80 on") } else { Fit::HIGH }
    }

    fn space(&self, p: &GatedProblem, _: &Chip) -> Space {
        let wide = widest(p);
        let vecs = [wide, wide / 2].into_iter().filter(|v| *v == wide || *v >= 2).map(|v| v as i64);
        let begin = if p.rows * p.n / wide > FILLS { 2 } else { 1 };
        let mut unrolls = UNROLLS;
        unrolls.sort_by_key(|unroll| unroll.abs_diff(begin));
        Space::single()
            .axis(Axis::ints("UNROLL", unrolls.map(|unroll| unroll as i64)))
            .axis(Axis::ints("THREADS", [256, 128, 512]))
            .axis(Axis::ints("VEC", vecs))
            .axis(Axis::ints("STREAM", [0, 1]))
    }

    fn plan(&self, p: &GatedProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [unroll, threads, vec, stream] =
            [axis(c, "UNROLL")?, axis(c, "THREADS")?, axis(c, "VEC")?, axis(c, "STREAM")?];
        let fits = vec > 0 && widest(p).is_multiple_of(vec);
        if !fits || !UNROLLS.contains(&unroll) || !(32..=1024).contains(&threads) {
            let reason = format!("{unroll} vectors of {vec} elements, {threads} threads: not for this problem");
            return Err(Rejection::DoesNotBuild { reason });
        }
        let mut defines = facts(p);
        let setting = [("THREADS", threads), ("UNROLL", unroll), ("VEC", vec), ("STREAM", stream)];
        defines.extend(setting.map(|(name, value)| (name, value as i64)));
        let headers = &[AMPERE, EPILOGUE, ROWS, ELEMENT];
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("vectors.cu"), headers, defines },
            threads: threads as u32,
            shared: 0,
            grid: Grid::Blocks((p.rows * (p.n / vec)).div_ceil(threads * unroll)),
            arguments: arguments(p),
            overlap: chip.capability >= (9, 0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gated::Gated;
    use warplap_core::op::Op;

    #[test]
    fn loads_are_as_wide_as_rows_allow() {
        for (text, vec) in [
            ("rows=9,n=128,dtype=bf16", 8),
            ("rows=9,n=128", 4),
            ("rows=9,n=128,dtype=bf16,lda=260", 4),
            ("rows=9,n=128,dtype=bf16,ldb=129", 1),
            ("rows=9,n=77,dtype=f16,join=none", 1),
            ("rows=9,n=130,dtype=f16,join=add", 2),
        ] {
            let p = Gated::parse(text).unwrap();
            assert_eq!(widest(&p), vec, "{text}");
        }
    }

    #[test]
    fn every_vector_has_a_thread() {
        let p = Gated::parse("rows=9,n=1000,dtype=bf16").unwrap();
        let chip = crate::cuda::compiling::chip((9, 0));
        for config in Vectors.space(&p, &chip).configs() {
            let plan = Vectors.plan(&p, &config, &chip).unwrap();
            let Grid::Blocks(blocks) = plan.grid else { panic!("{config}") };
            let number = |name: &str| config.int(name).unwrap() as u64;
            let all = blocks * u64::from(plan.threads) * number("UNROLL") * number("VEC");
            assert!((9000..9000 + 512 * 4 * 8).contains(&all), "{config}: {all}");
        }
    }
}
