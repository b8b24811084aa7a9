//! tf32 on Hopper's tensor cores, one operand from registers. Twin of `wgmma_tf32.cu`, which says how.
//!
//! Wins: f32 where tf32 is allowed, from a wave of tiles on. Limits: A and B aligned; not A column-major with B
//! row-major.

use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan, axis, stages};
use crate::gemm::cuda::plan::{HEADERS, Side, epilogue, facts, map, pointer, rounded, sizes, tiles};
use crate::gemm::{GemmProblem, Layout};

/// One operand from registers.
pub(crate) struct WgmmaTf32;

/// Tiles worth trying: rows of the first operand, rows of the second.
const TILES: [[i64; 2]; 4] = [[128, 256], [128, 192], [128, 128], [64, 128]];

impl CudaKernelSpec<GemmProblem> for WgmmaTf32 {
    fn id(&self) -> &'static str {
        "wgmma_tf32"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &GemmProblem, chip: &Chip) -> Fit {
        if !chip.is_hopper() {
            Fit::aside("needs a Hopper chip")
        } else if p.dtype != DType::F32 || !p.tf32 {
            Fit::aside("f32 only where tf32 is allowed (tf32=true)")
        } else if p.align < 16 || !p.lda.is_multiple_of(4) || !p.ldb.is_multiple_of(4) {
            Fit::aside("needs 16-byte aligned buffers and leading dimensions")
        } else if p.a == Layout::Col && p.b == Layout::Row {
            Fit::aside("one of A and B must lie with K contiguous")
        } else if p.m.max(p.n).max(p.k) > i32::MAX as u64 || p.batch > 65535 {
            Fit::aside("sizes must fit 31 bits, and a batch 16")
        } else if 2 * tiles(p) >= u64::from(chip.multiprocessors) {
            Fit::HIGH
        } else {
            Fit::MEDIUM
        }
    }

    fn space(&self, _: &GemmProblem, _: &Chip) -> Space {
        let column = |i: usize| TILES.iter().map(move |t| t[i]);
        Space::single()
            .axis(Axis::ints("BR", column(0)))
            .axis(Axis::ints("BS", column(1)))
            .axis(Axis::ints("CR", [2, 1]))
            .axis(Axis::ints("GROUP", [8, 16]))
            .rule(Rule::on("the tile is one worth trying", &["BR", "BS"], |c| {
                TILES.contains(&["BR", "BS"].map(|a| c.int(a).unwrap_or(0)))
            }))
    }

    fn plan(&self, p: &GemmProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [br, bs, cr, group] = [axis(c, "BR")?, axis(c, "BS")?, axis(c, "CR")?.max(1), axis(c, "GROUP")?];
        let cons = br / 64;
        // The second operand's rows must have K contiguous.
        let swap = p.a == Layout::Row;
        let flat = if swap { p.b == Layout::Row } else { p.a == Layout::Col };
        let [first, second] = if swap { [Side::B, Side::A] } else { [Side::A, Side::B] };
        let stage = (br + bs) * 128;
        let deep = stages(chip, stage, 1024, 1, 8)?;
        let shared = deep * stage + 1024;
        let pairs = p.align.is_multiple_of(8) && p.ldc.is_multiple_of(2);
        let mut defines = facts(p);
        defines.retain(|(name, _)| !matches!(*name, "A_COL" | "B_COL"));
        let axes = [("BR", br), ("BS", bs), ("CR", cr), ("STAGES", deep), ("CONS", cons), ("GROUP", group)];
        defines.push(("SHARED", shared as i64));
        defines.extend(axes.map(|(n, v)| (n, v as i64)));
        defines.extend([("SWAP", swap), ("FLAT", flat), ("VEC_C", pairs)].map(|(n, v)| (n, i64::from(v))));
        let lines = if flat { 32 } else { br as u32 };
        let mut arguments =
            vec![map(p, first, [32, lines]), rounded(map(p, second, [32, (bs / cr) as u32])), pointer(Side::C)];
        arguments.extend(sizes(p));
        arguments.push(Argument::Long(p.ldc));
        arguments.extend(epilogue(p));
        let [rows, columns] = if swap { [p.n, p.m] } else { [p.m, p.n] };
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("wgmma_tf32.cu"), headers: &HEADERS, defines },
            threads: 128 * (cons as u32 + 1),
            shared,
            grid: Grid::Persistent {
                tiles: rows.div_ceil(br * cr) * columns.div_ceil(bs) * p.batch,
                cluster: cr as u32,
            },
            arguments,
            overlap: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::Gemm;
    use warplap_core::op::Op;

    #[test]
    fn the_operand_that_has_k_contiguous_comes_from_shared_memory() {
        let chip = Chip::h200();
        for (layout, swap, flat) in [("", 1, 1), (",b=col", 1, 0), (",a=col,b=col", 0, 1)] {
            let p = Gemm::parse(&format!("gemm:m=512,n=256,k=1024,dtype=f32,tf32=true{layout}")).unwrap();
            let plan = WgmmaTf32.plan(&p, &WgmmaTf32.space(&p, &chip).default_config().unwrap(), &chip).unwrap();
            let of = |name| plan.source.defines.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
            assert_eq!((of("SWAP"), of("FLAT")), (Some(swap), Some(flat)), "{layout}");
            let Argument::Map(second, spec) = plan.arguments[1] else { panic!("no map") };
            assert!(spec.tf32 && spec.inner == p.k && second == usize::from(swap == 0), "{layout}: {spec:?}");
        }
        let p = Gemm::parse("gemm:m=512,n=256,k=1024,dtype=f32,tf32=true,a=col").unwrap();
        assert!(matches!(WgmmaTf32.fit(&p, &chip), Fit::Aside(_)));
    }
}
