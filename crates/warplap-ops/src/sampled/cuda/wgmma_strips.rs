//! Several blocks of a row at once through wgmma. Twin of `wgmma_strips.cu`, which says how.
//!
//! Wins: half types on Hopper. Limits: blocks of 16, 32 or 64; rows of row-major factors of whole 16 bytes.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, HOPPER, Layers, Source, TensorMapSpec};

use super::plan::{facts, no_tensor_cores, square};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan, axis, int};
use crate::gemm::Layout;
use crate::sampled::SampledProblem;
use crate::sampled::slot::{B, COL_IDX, G, ROW_PTR, VALUES};

/// Up to so many blocks of a row a CTA.
pub(super) struct WgmmaStrips;

/// Bytes of shared memory that aligning the stages, and what the kernel declares itself, may take.
const MARGIN: u64 = 2048;

/// More stages than this bring nothing.
const DEEPEST: u64 = 8;

/// Bytes of one stage.
fn stage(bs: u64, parts: u64) -> u64 {
    bs * 128 + parts * 8192
}

/// Stages for each of so many CTAs on a multiprocessor.
fn stages(bs: u64, parts: u64, ctas: u64, chip: &Chip) -> u64 {
    let room = (chip.shared_memory / ctas.max(1)).saturating_sub(MARGIN);
    (room / stage(bs, parts)).min(DEEPEST)
}

impl CudaKernelSpec<SampledProblem> for WgmmaStrips {
    fn id(&self) -> &'static str {
        "wgmma_strips"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &SampledProblem, chip: &Chip) -> Fit {
        match no_tensor_cores(p) {
            Some(why) => Fit::aside(why),
            None if !chip.is_hopper() => Fit::aside("needs a Hopper chip"),
            None if !matches!(p.pattern.bs, 16 | 32 | 64) => Fit::aside("blocks of 16, 32 or 64"),
            None => Fit::HIGH,
        }
    }

    fn space(&self, p: &SampledProblem, chip: &Chip) -> Space {
        let (bs, chip) = (p.pattern.bs, chip.clone());
        // A lane holds 128 sums at the most.
        let parts = [2, 4, 8, 1].into_iter().filter(|parts| parts * bs <= 256);
        Space::single()
            .axis(Axis::ints("PARTS", parts.map(|parts| parts as i64)))
            .axis(Axis::ints("CTAS", [2, 1, 3]))
            .rule(Rule::on("two stages fit shared memory", &["PARTS", "CTAS"], move |c| {
                let of = |name| c.int(name).and_then(|v| u64::try_from(v).ok()).unwrap_or(1);
                stages(bs, of("PARTS"), of("CTAS"), &chip) >= 2
            }))
    }

    fn plan(&self, p: &SampledProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        square(p)?;
        let (of, [parts, ctas]) = (&p.pattern, [axis(c, "PARTS")?.max(1), axis(c, "CTAS")?]);
        let deep = stages(of.bs, parts, ctas, chip);
        let mut defines = facts(p);
        defines.extend([("PARTS", parts), ("CTAS", ctas), ("STAGES", deep)].map(|(n, v)| (n, v as i64)));
        let blocks = parts * 64 / of.bs;
        let maps = [factor(p, G, p.g, of.m), factor(p, B, of.b, of.k), stored(p)];
        let indices = [ROW_PTR, COL_IDX].map(Argument::Pointer);
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("wgmma_strips.cu"), headers: &[HOPPER], defines },
            threads: 160,
            shared: deep * stage(of.bs, parts) + 1024,
            grid: Grid::Blocks(of.rows() as u64 * of.row_max.div_ceil(blocks).max(1)),
            arguments: maps.into_iter().chain(indices).chain([int(of.n), int(of.rows() as u64)]).collect(),
            overlap: true,
        })
    }
}

/// A factor of so many lines by n, in boxes of one block's lines by 64 numbers along n.
fn factor(p: &SampledProblem, buffer: usize, layout: Layout, lines: u64) -> Argument {
    let (n, bs) = (p.pattern.n, p.pattern.bs as u32);
    match layout {
        Layout::Row => map(p, buffer, (n, lines), [64, bs]),
        Layout::Col => map(p, buffer, (lines, n), [bs, 64]),
    }
}

/// The stored blocks as one tall matrix of their rows, in boxes of one block.
fn stored(p: &SampledProblem) -> Argument {
    let (bs, nnz) = (p.pattern.bs, p.pattern.nnz.max(1));
    map(p, VALUES, (bs, nnz * bs), [bs as u32, bs as u32])
}

/// A matrix without gaps between its lines, in boxes whose swizzle is as wide as they are.
fn map(p: &SampledProblem, buffer: usize, (inner, outer): (u64, u64), block: [u32; 2]) -> Argument {
    let (dtype, bytes) = (p.pattern.dtype, p.pattern.dtype.bytes() as u64);
    let (swizzle, promote) = (block[0] * bytes as u32, (inner * bytes).is_multiple_of(128));
    let (pitch, layers) = (inner, Layers::Behind(1));
    Argument::Map(buffer, TensorMapSpec { dtype, inner, outer, pitch, layers, block, swizzle, promote, tf32: false })
}
