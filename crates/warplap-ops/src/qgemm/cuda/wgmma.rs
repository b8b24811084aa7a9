//! Warpgroups that share one output tile of a persistent grid. Twin of `wgmma.cu`, which says how.
//!
//! Wins: at least one wave of tiles. Limits: Hopper; K a multiple of 16, lines of C on 16 bytes.

use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use super::plan::{HEADERS, factor_bytes, factor_map, no_wgmma, product_map, rest, runs_through, tensor_facts};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Operand, Plan, axis, stages};
use crate::qgemm::{QgemmProblem, Scale, slot};

/// Warpgroups sharing a tile.
pub(super) struct Wgmma;

/// Tiles: BM, BN, columns that are added up at a time, warpgroups, panels of C staged at once, whether they take turns.
type Tile = [i64; 6];

/// Of sums that run through, with those of four bytes alone at the end.
const THROUGH: [Tile; 12] = [
    [128, 256, 256, 2, 2, 0],
    [256, 128, 128, 2, 2, 0],
    [128, 128, 128, 2, 2, 0],
    [128, 192, 192, 2, 1, 0],
    [128, 224, 224, 2, 1, 0],
    [128, 128, 128, 2, 2, 1],
    [64, 256, 256, 2, 2, 1],
    [64, 128, 128, 1, 2, 0],
    [128, 64, 64, 2, 1, 0],
    [128, 256, 256, 2, 0, 0],
    [128, 128, 128, 2, 0, 1],
    [64, 256, 256, 2, 0, 1],
];

/// Of sums that are added up in f32.
const ADDED: [Tile; 10] = [
    [128, 128, 128, 2, 2, 0],
    [128, 256, 128, 2, 2, 0],
    [256, 128, 128, 2, 2, 0],
    [256, 128, 128, 2, 4, 0],
    [192, 128, 128, 3, 1, 0],
    [128, 160, 160, 2, 1, 0],
    [128, 192, 192, 2, 1, 0],
    [128, 224, 112, 2, 1, 0],
    [64, 128, 128, 1, 2, 0],
    [128, 64, 64, 2, 1, 0],
];

/// The same with factors of blocks: each belongs to 128 columns, which a part may not cross.
const BLOCKS: [Tile; 6] = [
    [256, 128, 128, 2, 1, 0],
    [128, 256, 128, 2, 1, 0],
    [192, 128, 128, 3, 1, 0],
    [128, 128, 128, 2, 2, 0],
    [64, 128, 128, 1, 2, 0],
    [128, 64, 64, 2, 1, 0],
];

/// The tiles of a problem.
fn tiles(p: &QgemmProblem) -> Vec<Tile> {
    let all = match p.scale {
        Scale::Block => &BLOCKS[..],
        _ if runs_through(p) => &THROUGH[..],
        _ => &ADDED[..],
    };
    let good = |tile: &&Tile| {
        let [bm, bn, _, cons, slots, ping] = **tile;
        // Where there are fewer rows than in a tile, half of it would be multiplied in vain.
        let tall = p.m > 64 || bm == 64;
        // What leaves from registers has four bytes.
        let direct = slots > 0 || p.out.bytes() == 4;
        // Narrow tiles are for as many of them as there are multiprocessors where there are few rows.
        let wide = bn > 64 || p.m <= 256;
        // The assembler serialises the products of these (C7520).
        let serialised = (cons == 1 || ping == 1) && p.fast && p.out == DType::F32;
        tall && direct && wide && !serialised
    };
    all.iter().filter(good).copied().collect()
}

/// Tile rows of a band.
const GROUP: u64 = 8;

const AXES: [&str; 6] = ["BM", "BN", "PN", "CONS", "SLOTS", "PING"];

impl CudaKernelSpec<QgemmProblem> for Wgmma {
    fn id(&self) -> &'static str {
        "wgmma"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &QgemmProblem, chip: &Chip) -> Fit {
        match no_wgmma(p, chip) {
            Some(why) => Fit::aside(why),
            None if !p.is_even() => Fit::aside("its stores write whole 16 bytes: lines of C must begin on them"),
            None if p.m <= 16 => Fit::LOW,
            None => Fit::HIGH,
        }
    }

    fn space(&self, p: &QgemmProblem, _: &Chip) -> Space {
        let good = tiles(p);
        let axes = AXES.iter().enumerate();
        let space = axes.fold(Space::single(), |space, (i, name)| {
            let mut values: Vec<i64> = Vec::new();
            good.iter().map(|tile| tile[i]).for_each(|v| {
                if !values.contains(&v) {
                    values.push(v)
                }
            });
            space.axis(Axis::ints(name, values))
        });
        space
            .axis(Axis::ints("CM", [2, 1]))
            .axis(Axis::ints("CN", [1, 2]))
            .rule(Rule::on("the tile is one of the list", &AXES, move |c| {
                good.contains(&AXES.map(|name| c.int(name).unwrap_or(0)))
            }))
            .rule(Rule::on("CM * CN <= 2", &["CM", "CN"], |c| c.int("CM") != Some(2) || c.int("CN") != Some(2)))
    }

    fn plan(&self, p: &QgemmProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [bm, bn, pn] = [axis(c, "BM")?, axis(c, "BN")?, axis(c, "PN")?];
        let [cons, slots, ping] = [axis(c, "CONS")?, axis(c, "SLOTS")?, axis(c, "PING")?];
        let [cm, cn] = [axis(c, "CM")?, axis(c, "CN")?];
        let (a, b) = (Operand::new(bm, 64, false, cn)?, Operand::new(bn, 64, false, cm)?);
        let size = p.out.bytes() as u64;
        let wide = if size == 2 && bn.is_multiple_of(64) { 64 } else { 32 };
        let fixed = cons * slots * 64 * wide * size + 1024;
        let stage = a.bytes + b.bytes + factor_bytes(p, bm, bn / pn.max(1));
        let deep = stages(chip, stage, fixed, 1, 12)?;
        let shared = deep * stage + fixed;
        let mut defines = tensor_facts(p);
        let values = [bm, bn, pn, cons, slots, ping, cm, cn, GROUP, deep, shared];
        let names = AXES.into_iter().chain(["CM", "CN", "GROUP", "STAGES", "SHARED"]);
        defines.extend(names.zip(values).map(|(name, value)| (name, value as i64)));
        let mut arguments =
            vec![factor_map(p, slot::A, a.lines), factor_map(p, slot::B, b.lines), product_map(p, wide as u32)];
        arguments.push(Argument::Pointer(slot::C));
        arguments.extend(rest(p));
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("wgmma.cu"), headers: &HEADERS, defines },
            threads: 128 * (cons as u32 + 1),
            shared,
            grid: Grid::Persistent { tiles: p.m.div_ceil(bm * cm) * p.n.div_ceil(bn * cn), cluster: (cm * cn) as u32 },
            arguments,
            overlap: true,
        })
    }
}
