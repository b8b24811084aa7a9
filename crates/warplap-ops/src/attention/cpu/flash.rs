//! Flash: lanes hold queries, keys and values are read as they lie, the softmax is updated tile by tile.
//!
//! Idea: a tile of queries is turned once so that each lane is a query; scores come out with keys down the rows, so
//! maxima, sums and rescaling are lane by lane with no horizontal step, and neither K nor V is packed (half types are
//! widened tile by tile). Rows of all heads that share a head of K and V fill the lanes together. Wins: many queries,
//! long or short keys, f32. Limits: no mask (its rows lie across the lanes); few rows leave lanes empty.
//! From: FlashAttention-2 (Dao 2023, online softmax over key tiles); the turned product is our own.

use std::f32::consts::{LN_2, LOG2_E};
use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Ceilings;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa};
use warplap_cpu::{Cpu, Typed};

use super::call::Call;
use super::products::{Products, Start};
use super::rows::{Narrow, Turn, Widen, padded};
use super::scratch::{self, Pieces, lines};
use super::setup;
use super::softmax::{Columns, LOWEST, inverse};
use crate::attention::{Attention, AttentionProblem, Mask};
use crate::typed::for_dtype;

/// Lanes hold queries, online softmax.
pub(super) struct Flash;

impl Variant<Attention, Cpu> for Flash {
    fn id(&self) -> &str {
        "flash"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &AttentionProblem, cpu: &Cpu) -> Fit {
        if p.mask != Mask::None {
            return Fit::aside("rows of a mask lie across the lanes");
        }
        if setup::is_scattered(p) {
            return Fit::aside(setup::UNEVEN);
        }
        let sees = p.packed.is_some() || !p.may_see_nothing();
        if p.window.is_some() || p.has_score_mod() || !sees || p.dropout() > 0.0 {
            let why =
                "scores are bent, weights dropped or a row does not begin with the first key: other kernels do that";
            return Fit::aside(why);
        }
        let rows = p.group() * p.sq;
        if rows >= cpu.isa().lanes() as u64 { Fit::HIGH } else { Fit::LOW }
    }

    fn space(&self, p: &AttentionProblem, cpu: &Cpu) -> Space {
        // Small problems ask about threads and instruction sets instead of the finer sizes.
        let small = setup::small(p);
        Space::single()
            .axis(Axis::ints("queries", if small { vec![64, 32] } else { vec![64, 32, 128] }))
            .axis(Axis::ints("keys", if small { vec![64, 128] } else { vec![64, 32, 128] }))
            .axis(setup::isa(p, cpu))
            .axis(setup::threads(p, cpu))
    }

    fn needs(&self, p: &AttentionProblem, config: &Config) -> Needs {
        let sizes = TileSizes::new(p, config);
        Needs {
            threads: sizes.threads as u64,
            workspace: (sizes.threads * sizes.numbers() * 4) as u64,
            ..Needs::default()
        }
    }

    fn floor(&self, p: &AttentionProblem, config: &Config, ceilings: &Ceilings) -> Option<f64> {
        setup::floor(p, config, ceilings)
    }

    fn build(&self, p: &AttentionProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Tiles { problem: *p, sizes: TileSizes::new(p, config), pool: cpu.pool().clone() }))
    }
}

/// Sizes of one task's tiles.
#[derive(Clone, Copy)]
struct TileSizes {
    queries: usize,
    keys: usize,
    isa: Isa,
    threads: usize,
    d: usize,
    dv: usize,
    widened: bool,
}

impl TileSizes {
    fn new(p: &AttentionProblem, config: &Config) -> Self {
        let (threads, isa) = setup::chosen(config);
        let rows = (p.group() * p.sq) as usize;
        TileSizes {
            // Fewer rows than a tile: no more lanes than they need.
            queries: config.size("queries").unwrap_or(64).next_multiple_of(isa.lanes()).min(padded(isa, rows)),
            keys: config.size("keys").unwrap_or(64).clamp(1, p.sk as usize),
            isa,
            threads,
            d: padded(isa, p.d as usize),
            dv: padded(isa, p.dv as usize),
            widened: p.dtype != DType::F32,
        }
    }

    /// Numbers of workspace of one task.
    fn numbers(&self) -> usize {
        let wide = if self.widened { lines(self.keys * self.d) + lines(self.keys * self.dv) } else { 0 };
        lines(self.queries * self.d)
            + lines(self.queries * self.keys)
            + lines(self.queries * self.dv)
            + lines(self.queries * self.d.max(self.dv))
            + 4 * lines(self.queries)
            + wide
    }
}

struct Tiles {
    problem: AttentionProblem,
    sizes: TileSizes,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for Tiles {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => attend::<T>(self, args))
    }

    fn workspace(&self) -> u64 {
        (self.sizes.threads * self.sizes.numbers() * 4) as u64
    }
}

fn attend<T: Element + Typed>(tiles: &Tiles, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let call = Call::<T>::new(&tiles.problem, args)?;
    let sizes = tiles.sizes;
    let per_head = call.most_rows().div_ceil(sizes.queries);
    tiles.pool.each(sizes.threads, call.heads * per_head, |task| {
        // The last rows of a causal head see the most: they go first.
        let (head, tile) = (task / per_head, per_head - 1 - task % per_head);
        let first = tile * sizes.queries;
        let rows = first..(first + sizes.queries).min(call.rows(head));
        if rows.is_empty() {
            return;
        }
        scratch::with(sizes.numbers(), |room| one_tile(&call, sizes, head, rows, room));
    });
    Ok(())
}

fn one_tile<T: Element + Typed>(
    call: &Call<T>,
    sizes: TileSizes,
    head: usize,
    rows: std::ops::Range<usize>,
    room: &mut [f32],
) {
    let (isa, count) = (sizes.isa, rows.len());
    let width = padded(isa, count);
    let mut room = Pieces(room);
    let turned = room.cut(sizes.queries * sizes.d);
    let scores = room.cut(sizes.queries * sizes.keys);
    let out = room.cut(sizes.queries * sizes.dv);
    let straight = room.cut(sizes.queries * sizes.d.max(sizes.dv));
    let [most, sum, factor, last] = std::array::from_fn(|_| room.cut(sizes.queries));
    let (wide_k, wide_v) = if sizes.widened {
        (room.cut(sizes.keys * sizes.d).as_mut_ptr(), room.cut(sizes.keys * sizes.dv).as_mut_ptr())
    } else {
        (std::ptr::null_mut(), std::ptr::null_mut())
    };

    straight[count * sizes.d..width * sizes.d].fill(0.0);
    for (lane, row) in rows.clone().enumerate() {
        let to = straight[lane * sizes.d..].as_mut_ptr();
        let from = call.q(head, row);
        let factor = call.scale * LOG2_E;
        isa.run(Widen { from, from_row: 0, rows: 1, width: call.d, factor, to, padded: sizes.d });
    }
    isa.run(Turn {
        from: straight.as_ptr(),
        from_row: sizes.d,
        rows: width,
        columns: sizes.d,
        to: turned.as_mut_ptr(),
        to_row: width,
    });
    most.fill(LOWEST);
    sum.fill(0.0);

    let end = call.most_seen(head, rows.clone());
    if end == 0 {
        out.fill(0.0);
    }
    let least = rows.clone().map(|r| call.seen(head, r)).min().unwrap_or(0);
    for first in (0..end).step_by(sizes.keys) {
        let keys = sizes.keys.min(end - first);
        let (k, k_row) = tile_of(isa, call.k(head, first), call.k_step(), keys, call.d, wide_k, sizes.d);
        isa.run(Products {
            rows: keys,
            columns: width,
            steps: call.d,
            a: k,
            a_row: k_row,
            a_step: 1,
            b: turned.as_ptr(),
            b_row: width,
            out: scores.as_mut_ptr(),
            out_row: width,
            start: Start::Zero,
        });
        let hidden = first + keys > least;
        if hidden {
            for (lane, to) in last[..width].iter_mut().enumerate() {
                let seen = if lane < count { call.seen(head, rows.start + lane) } else { end };
                *to = seen as f32 - 1.0 - first as f32;
            }
        }
        isa.run(Columns {
            scores: scores.as_mut_ptr(),
            keys,
            width,
            last: hidden.then_some(last.as_ptr()),
            most: most.as_mut_ptr(),
            sum: sum.as_mut_ptr(),
            factor: factor.as_mut_ptr(),
        });
        let (v, v_row) = tile_of(isa, call.v(head, first), call.v_step(), keys, call.dv, wide_v, sizes.dv);
        isa.run(Products {
            rows: call.dv,
            columns: width,
            steps: keys,
            a: v,
            a_row: 1,
            a_step: v_row,
            b: scores.as_ptr(),
            b_row: width,
            out: out.as_mut_ptr(),
            out_row: width,
            start: if first == 0 { Start::Zero } else { Start::Scaled(factor.as_ptr()) },
        });
    }

    isa.run(Turn {
        from: out.as_ptr(),
        from_row: width,
        rows: sizes.dv,
        columns: width,
        to: straight.as_mut_ptr(),
        to_row: sizes.dv,
    });
    for (lane, row) in rows.enumerate() {
        let from = straight[lane * sizes.dv..].as_ptr();
        isa.run(Narrow { from, width: call.dv, factor: inverse(sum[lane]), to: call.out(head, row) });
        call.keep(head, row, most[lane], LN_2, sum[lane]);
    }
}

/// A tile of K or V as f32: where it lies, or widened. Gives its address and the step from row to row.
fn tile_of<T: Element + Typed>(
    isa: Isa,
    from: *const T,
    from_row: usize,
    rows: usize,
    width: usize,
    to: *mut f32,
    padded: usize,
) -> (*const f32, usize) {
    if T::DTYPE == DType::F32 {
        return (from.cast(), from_row);
    }
    isa.run(Widen { from, from_row, rows, width, factor: 1.0, to, padded });
    (to, padded)
}
