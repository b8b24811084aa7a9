//! Union: lines of 64 rows walk the union of their block columns and share slabs of B. Twin of `wgmma_union.cu`.
//!
//! Wins: blocks of 64 and 128. Limits: f16, bf16, f8e4m3; rows of B and C of whole 16 bytes.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, ELEMENT, HOPPER, QUANT, QUANT_HOPPER, SCALED, Source};

use crate::bsr::BsrProblem;
use crate::bsr::cuda::plan::{
    B, BsrKernelSpec, COL_IDX, MARGIN, ORDER, QUEUE, ROW_PTR, SKEWED, VALUES, b_col_map, b_map, bytes_map, c_map,
    facts, is_half, is_wide, no_tma, persistent, scale_arguments, values_map,
};
use crate::cuda::plan::{Argument, CudaKernelSpec, Plan, axis, int, stages};
use crate::gemm::Layout;

/// Lines that share slabs of B.
pub(crate) struct Union;

/// Lines of a block, columns, blocks on a multiprocessor: what won somewhere on an H200. The first is for many tiles.
const LARGE: [[i64; 3]; 5] = [[2, 256, 1], [4, 128, 1], [1, 128, 2], [2, 128, 1], [2, 192, 1]];
const SMALL: [[i64; 3]; 4] = [[1, 128, 1], [1, 64, 2], [1, 128, 2], [2, 128, 1]];
/// Of bytes, whose sums take registers twice.
const LARGE_BYTES: [[i64; 3]; 5] = [[2, 256, 1], [4, 128, 1], [3, 128, 1], [1, 128, 2], [2, 128, 1]];

/// Columns whose sums are added up in f32 at once: all, where registers hold them twice.
fn part(lines: u64, bn: u64) -> u64 {
    if bn > 192 || lines > 3 { bn / 2 } else { bn }
}

impl CudaKernelSpec<BsrProblem> for Union {
    fn id(&self) -> &'static str {
        "wgmma_union"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &BsrProblem, chip: &Chip) -> Fit {
        match no_tma(p, chip) {
            Some(why) => Fit::aside(why),
            None if !p.is_square() => Fit::aside("square blocks only"),
            None if !is_half(p) && !p.is_bytes() => Fit::aside("f16, bf16 and f8e4m3 only"),
            None if !matches!(p.bs, 64 | 128) => Fit::aside("blocks of 64 or 128"),
            None => Fit::HIGH,
        }
    }

    fn space(&self, p: &BsrProblem, chip: &Chip) -> Space {
        let tiles = (p.m / 64).div_ceil(2) * p.n.div_ceil(256);
        let shapes: &'static [[i64; 3]] = match tiles >= u64::from(chip.multiprocessors) {
            true if p.is_bytes() => &LARGE_BYTES,
            true => &LARGE,
            false => &SMALL,
        };
        let skewed = p.imbalance() > SKEWED;
        let column = |i: usize| shapes.iter().map(move |s| s[i]);
        Space::single()
            .axis(Axis::ints("CONS", column(0)))
            .axis(Axis::ints("BN", column(1)))
            .axis(Axis::ints("CTAS", column(2)))
            .axis(Axis::ints("CN", [1, 2]))
            .axis(Axis::ints("ORDER", [0, 1]))
            .axis(Axis::ints("GROUPED", [1, 0]))
            .axis(Axis::ints("DYNAMIC", if skewed { [1, 0] } else { [0, 1] }))
            .rule(Rule::on("the tile is one of the list", &["CONS", "BN", "CTAS"], move |c| {
                shapes.contains(&["CONS", "BN", "CTAS"].map(|a| c.int(a).unwrap_or(0)))
            }))
            .rule(Rule::on("blocks of A are shared between wide tiles only", &["BN", "CN"], |c| {
                c.int("CN") == Some(1) || c.int("BN") == Some(256)
            }))
            .rule(Rule::on("long rows come first only where rows are grouped", &["ORDER", "GROUPED"], |c| {
                c.int("ORDER") == Some(0) || c.int("GROUPED") == Some(1)
            }))
            .rule(Rule::on(
                "a queue is for single blocks of threads, long rows first",
                &["CN", "ORDER", "DYNAMIC"],
                |c| c.int("DYNAMIC") == Some(0) || c.int("CN") == Some(1) && c.int("ORDER") == Some(1),
            ))
    }

    fn plan(&self, p: &BsrProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [lines, bn, resident] = [axis(c, "CONS")?.max(1), axis(c, "BN")?, axis(c, "CTAS")?.max(1)];
        let [cn, order, dynamic] = [axis(c, "CN")?.max(1), axis(c, "ORDER")?, axis(c, "DYNAMIC")?];
        let slots = if lines > 2 || bn == 64 || resident > 1 { 1 } else { 2 };
        // Bytes along k of the lines of a stage.
        let along = if p.is_bytes() { p.bs } else { 128 };
        let stage = (bn + lines * 64) * along;
        let fixed = lines * slots * 8192;
        let deep = stages(chip, stage, fixed + MARGIN, resident, 1024 / along)?;
        let col = p.b == Layout::Col;
        let mut defines = facts(p);
        if p.is_bytes() {
            defines.push(("PN", part(lines, bn) as i64));
        }
        defines.extend([("B_COL", i64::from(col)), ("WIDE", i64::from(is_wide(p))), ("PASSING", 1)]);
        let axes = [("CONS", lines), ("BN", bn), ("CTAS", resident), ("CN", cn), ("ORDER", order)];
        defines.extend(axes.map(|(n, v)| (n, v as i64)));
        defines.extend([("STAGES", deep as i64), ("SLOTS", slots as i64)]);
        defines.push(("DYNAMIC", dynamic as i64));
        let (values, b) = match p.is_bytes() {
            true => (bytes_map(p, VALUES, 64 / cn), bytes_map(p, B, bn)),
            false => (values_map(p, [64, 64 / cn as u32]), if col { b_col_map(p, 64, bn) } else { b_map(p, 64, bn) }),
        };
        let mut arguments = vec![
            values,
            b,
            c_map(p, 64),
            Argument::Pointer(ROW_PTR),
            Argument::Pointer(COL_IDX),
            Argument::Pointer(ORDER),
            int(p.m),
            int(p.n),
            Argument::Pointer(QUEUE),
        ];
        arguments.extend(scale_arguments(p));
        let tiles = (p.m / 64).div_ceil(lines) * p.n.div_ceil(bn * cn);
        Ok(Plan {
            source: Source {
                entry: self.id(),
                text: include_str!("wgmma_union.cu"),
                headers: &[QUANT_HOPPER, HOPPER, QUANT, ELEMENT, SCALED],
                defines,
            },
            threads: 128 * (lines as u32 + 1),
            shared: deep * stage + fixed + 1024,
            grid: persistent(tiles, cn, resident, chip),
            arguments,
            overlap: true,
        })
    }
}

impl BsrKernelSpec for Union {
    fn has_queue(&self, c: &Config) -> Result<bool, Rejection> {
        Ok(axis(c, "DYNAMIC")? == 1)
    }

    fn together(&self, p: &BsrProblem, c: &Config) -> Result<usize, Rejection> {
        Ok(if axis(c, "GROUPED")? == 0 { 0 } else { (axis(c, "CONS")? * 64 / p.bs).max(1) as usize })
    }
}

#[cfg(test)]
mod tests {
    use warplap_core::op::Op;

    use super::*;
    use crate::bsr::Bsr;
    use crate::bsr::cuda::{densify, reference, right, turned};
    use crate::cuda::compiling;

    #[test]
    fn every_tile_of_bytes_compiles_for_hopper_and_spills_nothing() {
        let (Some(compiler), chip) = (compiling::compiler(), Chip::h200()) else { return };
        for text in [
            "bsr:m=4096,k=4096,n=4096,bs=128,density=0.125,dtype=f8e4m3,alpha=0.25",
            "bsr:m=4096,k=4096,n=4096,bs=64,density=0.125,dtype=f8e4m3,beta=1",
            "bsr:m=320,k=448,n=264,bs=64,density=0.3,dtype=f8e4m3,c=col",
        ] {
            let p = Bsr::parse(text).unwrap();
            let mut seen = Vec::new();
            for config in Union.space(&p, &chip).configs() {
                let tile = ["CONS", "BN", "CTAS", "CN"].map(|name| config.int(name));
                if !seen.contains(&tile) {
                    seen.push(tile);
                    let plan = Union.plan(&p, &config, &chip).unwrap();
                    compiling::check(&plan, &chip, &compiler, &format!("{text}: {config}"));
                }
            }
            assert!(seen.len() >= 4, "{text}");
        }
    }

    #[test]
    fn what_bytes_need_besides_compiles_before_hopper_too() {
        let Some(compiler) = compiling::compiler() else { return };
        for (text, capability) in [
            ("bsr:m=256,k=256,n=64,bs=128,density=0.5,dtype=f8e4m3,turned=true", (9, 0)),
            ("bsr:m=256,k=256,n=64,bs=16,density=0.5,dtype=f8e4m3,c=col,beta=1,turned=true", (8, 0)),
        ] {
            let (p, chip) = (Bsr::parse(text).unwrap(), compiling::chip(capability));
            let sources = [reference::source(&p), right::source(&p), densify::text(&p), turned::source(&p)];
            sources.iter().for_each(|source| compiling::check_builds(source, &chip, &compiler, text));
        }
        let odd = Bsr::parse("bsr:m=48,k=64,n=64,bs=24,bc=8,density=0.5,dtype=f8e4m3,turned=true").unwrap();
        compiling::check_builds(&turned::source(&odd), &compiling::chip((8, 0)), &compiler, "odd blocks");
    }

    #[test]
    fn lines_of_bytes_are_as_deep_as_a_block_and_reach_the_copy_engine_as_pairs() {
        let chip = Chip::h200();
        for (bs, stages, swizzle) in [(128, 4, 128), (64, 8, 64)] {
            let p = Bsr::parse(&format!("m=4096,k=4096,n=4096,bs={bs},density=0.125,dtype=f8e4m3")).unwrap();
            let plan = Union.plan(&p, &Union.space(&p, &chip).default_config().unwrap(), &chip).unwrap();
            let fact = |name: &str| plan.source.defines.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
            assert_eq!(
                (fact("BYTES"), fact("DTYPE"), fact("BN"), fact("PN")),
                (Some(1), Some(1), Some(256), Some(128))
            );
            assert_eq!(fact("STAGES"), Some(stages));
            let Argument::Map(_, b) = plan.arguments[1] else { panic!("B comes by the copy engine") };
            assert_eq!((b.inner, b.outer, b.block, b.swizzle), (2048, 4096, [bs / 2, 256], swizzle));
        }
    }
}
