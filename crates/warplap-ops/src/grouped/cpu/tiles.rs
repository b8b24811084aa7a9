//! Tiles: packed panels and register tiles of dense products, expert by expert.
//!
//! Idea: with rows enough an expert's product is a dense one, whose loops are there. Pieces of columns of all experts
//! are dealt out to threads, the largest first, so that nobody waits behind each expert; or each expert's product has
//! all threads. Wins: tens of rows an expert and more. Limits: none. From: Goto and van de Geijn's loops (`gemm`'s
//! `packed`), and grouped products of CUTLASS, whose blocks take tiles of all problems.

use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa};
use warplap_cpu::{Cpu, Typed};

use super::call::Call;
use super::pieces::{isa, isas, pieces, threads};
use crate::gemm::cpu::kernel::blocked::{self, Blocking, Keep, MC};
use crate::grouped::{Grouped, GroupedProblem};
use crate::typed::for_dtype;

/// Dense tiles by groups.
pub(super) struct Tiles;

/// Rows of an expert, on average, from which it is raced first.
const MANY: u64 = 16;

impl Variant<Grouped, Cpu> for Tiles {
    fn id(&self) -> &str {
        "tiles"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &GroupedProblem, _: &Cpu) -> Fit {
        if p.rows >= MANY * p.experts { Fit::HIGH } else { Fit::MEDIUM }
    }

    fn space(&self, p: &GroupedProblem, cpu: &Cpu) -> Space {
        let all = Isa::available().into_iter().rev();
        let tiles: Vec<String> = all.flat_map(|isa| Blocking::tiles(isa).iter().map(move |t| name(isa, *t))).collect();
        Space::single()
            .axis(isas())
            .axis(Axis::choices("tile", &tiles.iter().map(String::as_str).collect::<Vec<_>>()))
            .axis(Axis::ints("kc", if p.k <= 512 { [512, 256] } else { [256, 512] }))
            .axis(Axis::choices("keep", &["a", "b"]))
            .axis(Axis::choices("deal", &["pieces", "experts"]))
            .axis(threads(p, cpu))
            .rule(Rule::on("the tile is one of the isa's", &["isa", "tile"], |c| read_tile(c).is_some()))
            .rule(Rule::on("the best isa alone has other forms", &["isa", "keep", "deal", "kc"], |c| {
                isa(c) == Some(Isa::best())
                    || (read_keep(c) == Some(Keep::A) && is_dealt(c) && c.size("kc") != Some(512))
            }))
            .rule(Rule::on("one thread shares nothing", &["deal", "threads"], |c| {
                is_dealt(c) || c.size("threads") != Some(1)
            }))
    }

    fn needs(&self, p: &GroupedProblem, config: &Config) -> Needs {
        let (threads, kc) = (config.size("threads").unwrap_or(1) as u64, config.size("kc").unwrap_or(256) as u64);
        // Panels of B and of A, and sums of half types between blocks of k, which no more than all rows have.
        let columns = p.n.min(2048).next_multiple_of(64);
        let sums = if p.dtype.bytes() < 4 { p.rows * columns } else { 0 };
        let each = 2 * kc.min(p.k) * columns + (MC as u64 + 64) * kc;
        Needs { threads, workspace: 4 * (threads * each + sums), ..Needs::default() }
    }

    fn build(&self, p: &GroupedProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let refused = || Rejection::DoesNotBuild { reason: format!("no tiles for '{config}'") };
        let (isa, (mr, nv)) = read_tile(config).ok_or_else(refused)?;
        let keep = read_keep(config).ok_or_else(refused)?;
        let kc = config.size("kc").filter(|kc| *kc > 0).ok_or_else(refused)?;
        let threads = config.size("threads").unwrap_or(1).max(1);
        let blocking = Blocking { isa, mr, nv, mc: MC, kc, nc: keep.columns(kc), keep, threads };
        Ok(Box::new(Built { problem: *p, blocking, is_dealt: is_dealt(config), pool: cpu.pool().clone() }))
    }
}

/// Whether pieces are dealt out to threads.
fn is_dealt(config: &Config) -> bool {
    config.get("deal").is_some_and(|deal| deal.to_string() == "pieces")
}

/// What stays near.
fn read_keep(config: &Config) -> Option<Keep> {
    match config.get("keep")?.to_string().as_str() {
        "a" => Some(Keep::A),
        "b" => Some(Keep::B),
        _ => None,
    }
}

/// A tile by rows and columns.
fn name(isa: Isa, (rows, vectors): (usize, usize)) -> String {
    format!("{rows}x{}", vectors * isa.lanes())
}

/// The isa and tile of a config, if the isa has such a tile.
fn read_tile(config: &Config) -> Option<(Isa, (usize, usize))> {
    let (isa, wanted) = (isa(config)?, config.get("tile")?.to_string());
    Blocking::tiles(isa).iter().find(|t| name(isa, **t) == wanted).map(|t| (isa, *t))
}

struct Built {
    problem: GroupedProblem,
    blocking: Blocking,
    is_dealt: bool,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for Built {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => launch::<T>(self, args))
    }
}

fn launch<T: Element + Typed>(kernel: &Built, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let (call, n, threads) =
        (Call::<T>::of(&kernel.problem, args)?, kernel.problem.n as usize, kernel.blocking.threads);
    if kernel.is_dealt {
        let pieces = pieces(&call.groups, n, threads, |rows| rows);
        let alone = Blocking { threads: 1, ..kernel.blocking };
        // SAFETY: pieces are of the problem's experts, rows and columns, and no two share an element of y.
        kernel.pool.each(threads, pieces.len(), |i| unsafe {
            let piece = pieces[i].clone();
            blocked::product(&kernel.pool, alone, call.product(piece.expert, piece.rows, piece.columns));
        });
    } else {
        for (expert, rows) in call.groups.iter().enumerate() {
            // SAFETY: the ranges are those of the problem; one product after the other writes its own rows.
            unsafe { blocked::product(&kernel.pool, kernel.blocking, call.product(expert, rows.clone(), 0..n)) };
        }
    }
    Ok(())
}
