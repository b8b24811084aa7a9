//! AMX: both products on the tile registers, for brain floats; a block of rows keeps its whole strip of scores.
//!
//! Idea: tiles multiply bf16 four to eight times as fast as vectors multiply f32, so the exponentials decide; those
//! are exact strips with no rescaling, and weights are rounded to bf16 on their way to the second product (sums stay
//! in f32). K and V are brought into the tiles' form once per head. Wins: bf16 with more than a few rows. Limits:
//! Linux on Intel server cores from Sapphire Rapids on; the strip is workspace, `rows·sk` numbers a thread.
//! From: oneDNN's brgemm attention in PyTorch (Flash-style, bf16 weights).

use std::ops::Range;
use std::sync::Arc;

use half::bf16;
use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::Cpu;
use warplap_cpu::amx::{Amx as Proof, DEPTH, SIDE, STEP, Tiles};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::Isa;

use super::call::Call;
use super::pairs;
use super::rows::{Narrow, Turn};
use super::scratch::{self, Pieces, lines};
use super::setup;
use super::softmax::inverse;
use crate::attention::{Attention, AttentionProblem};

/// Tile products of brain floats.
pub(super) struct Amx;

impl Variant<Attention, Cpu> for Amx {
    fn id(&self) -> &str {
        "amx"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &AttentionProblem, cpu: &Cpu) -> Fit {
        if p.dtype != DType::Bf16 {
            return Fit::aside(format!("the tiles take bf16, not {}", p.dtype));
        }
        if cpu.isa() != Isa::Avx512 || !pairs::available() || Proof::get().is_none() {
            return Fit::aside("this machine has no AMX, or the system does not let us use it");
        }
        if p.packed.is_some() {
            return Fit::aside(setup::PACKED);
        }
        if p.is_uneven() {
            return Fit::aside(setup::UNEVEN);
        }
        if p.window.is_some() || p.has_score_mod() || p.may_see_nothing() || p.dropout() > 0.0 {
            let why =
                "scores are bent, weights dropped or a row does not begin with the first key: other kernels do that";
            return Fit::aside(why);
        }
        match p.group() * p.sq {
            0..2 => Fit::LOW,
            2..4 => Fit::MEDIUM,
            _ => Fit::HIGH,
        }
    }

    fn space(&self, p: &AttentionProblem, cpu: &Cpu) -> Space {
        Space::single().axis(Axis::ints("rows", [32, 64, 128])).axis(setup::threads(p, cpu))
    }

    fn needs(&self, p: &AttentionProblem, config: &Config) -> Needs {
        let sizes = BlockSizes::new(p, config);
        let workspace = (sizes.threads * sizes.numbers() * 4) as u64;
        Needs { threads: sizes.threads as u64, workspace, ..Needs::default() }
    }

    fn build(&self, p: &AttentionProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let refused = || Rejection::DoesNotBuild { reason: "no AMX".into() };
        let proof = Proof::get().filter(|_| pairs::available()).ok_or_else(refused)?;
        Ok(Box::new(Blocks { problem: *p, sizes: BlockSizes::new(p, config), proof, pool: cpu.pool().clone() }))
    }
}

/// Sizes of one task, each a whole number of tiles.
#[derive(Clone, Copy)]
struct BlockSizes {
    rows: usize,
    threads: usize,
    keys: usize,
    d: usize,
    dv: usize,
}

impl BlockSizes {
    fn new(p: &AttentionProblem, config: &Config) -> Self {
        let rows = ((p.group() * p.sq) as usize).next_multiple_of(SIDE);
        BlockSizes {
            rows: config.size("rows").unwrap_or(SIDE).next_multiple_of(SIDE).min(rows),
            threads: setup::chosen(config).0,
            keys: (p.sk as usize).next_multiple_of(DEPTH),
            d: (p.d as usize).next_multiple_of(DEPTH),
            dv: (p.dv as usize).next_multiple_of(SIDE),
        }
    }

    /// Two brain floats take the room of one number.
    fn numbers(&self) -> usize {
        lines(self.keys * self.d / 2)
            + lines(self.keys * self.dv / 2)
            + lines(16 * self.d / 2)
            + lines(self.rows * self.d / 2)
            + lines(self.rows * self.keys)
            + lines(self.rows * self.keys / 2)
            + lines(self.rows * self.dv)
            + lines(self.rows)
    }
}

struct Blocks {
    problem: AttentionProblem,
    sizes: BlockSizes,
    proof: Proof,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for Blocks {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        let call = Call::<bf16>::new(&self.problem, args)?;
        let sizes = self.sizes;
        let blocks = call.most_rows().div_ceil(sizes.rows);
        // A head is one task where there are heads enough for all threads; else each part packs its head again.
        let parts = if call.heads.is_multiple_of(sizes.threads) { 1 } else { sizes.threads.min(blocks) };
        self.pool.each(sizes.threads, call.heads * parts, |task| {
            let (head, part) = (task / parts, task % parts);
            let rows = |part: usize| (blocks * part / parts * sizes.rows).min(call.most_rows());
            let rows = rows(part)..rows(part + 1);
            scratch::with(sizes.numbers(), |room| {
                self.proof.with(|tiles| one_part(&call, sizes, tiles, head, rows, room));
            });
        });
        Ok(())
    }

    fn workspace(&self) -> u64 {
        (self.sizes.threads * self.sizes.numbers() * 4) as u64
    }
}

fn one_part(call: &Call<bf16>, sizes: BlockSizes, tiles: &Tiles, head: usize, rows: Range<usize>, room: &mut [f32]) {
    let mut room = Pieces(room);
    let packed_k = room.cut(sizes.keys * sizes.d / 2);
    let packed_v = room.cut(sizes.keys * sizes.dv / 2);
    let lines_k = room.cut(16 * sizes.d / 2);
    let queries = room.cut(sizes.rows * sizes.d / 2);
    let scores = room.cut(sizes.rows * sizes.keys);
    let weights = room.cut(sizes.rows * sizes.keys / 2);
    let out = room.cut(sizes.rows * sizes.dv);
    let sums = room.cut(sizes.rows);

    let end = call.most_seen(head, rows.clone());
    let all_steps = end.div_ceil(DEPTH);
    pack_keys(call, sizes, head, end, lines_k, packed_k);
    // SAFETY: pairs::available was asked; `end` values of dv lie there, and there is room for whole tiles of them.
    unsafe {
        let to = packed_v.as_mut_ptr().cast::<u16>();
        pairs::pack_values(call.v(head, 0).cast(), call.v_step(), end, call.dv, to);
    }

    let d_steps = sizes.d / DEPTH;
    for first in rows.clone().step_by(sizes.rows) {
        let block = first..(first + sizes.rows).min(rows.end);
        let steps = call.most_seen(head, block.clone()).div_ceil(DEPTH);
        let squares = block.len().div_ceil(SIDE);
        let q = queries.as_mut_ptr().cast::<u16>();
        pack_queries(call, sizes, head, block.clone(), q);
        for panel in 0..steps {
            for square in 0..squares {
                // SAFETY: whole tiles of queries, keys and scores lie inside their pieces.
                unsafe {
                    let a = q.add(square * d_steps * STEP);
                    let b = packed_k.as_ptr().cast::<u16>().add(panel * d_steps * STEP);
                    let to = scores.as_mut_ptr().add(square * SIDE * sizes.keys + panel * SIDE);
                    tiles.multiply(d_steps, a, b, (std::ptr::null(), 0), (to, sizes.keys));
                }
            }
        }
        let w = weights.as_mut_ptr().cast::<u16>();
        for (i, row) in block.clone().enumerate() {
            // SAFETY: the row's scores hold whole tiles of keys, its mask sk entries, the weights whole tiles.
            let (most, sum) = unsafe {
                pairs::weigh(pairs::Line {
                    scores: scores.as_mut_ptr().add(i * sizes.keys),
                    keys: call.seen(head, row),
                    steps,
                    scale: call.scale,
                    mask: call.mask(head, row).map(|m| m.cast()),
                    to: w.add(i / SIDE * steps * STEP + i % SIDE * DEPTH),
                })
            };
            sums[i] = sum;
            call.keep(head, row, most, 1.0, sum);
        }
        for square in 0..squares {
            for panel in 0..sizes.dv / SIDE {
                // SAFETY: whole tiles of weights, values and sums lie inside their pieces.
                unsafe {
                    let b = packed_v.as_ptr().cast::<u16>().add(panel * all_steps * STEP);
                    let to = out.as_mut_ptr().add(square * SIDE * sizes.dv + panel * SIDE);
                    tiles.multiply(steps, w.add(square * steps * STEP), b, (std::ptr::null(), 0), (to, sizes.dv));
                }
            }
        }
        for (i, row) in block.enumerate() {
            let from = out[i * sizes.dv..].as_ptr();
            Isa::Avx512.run(Narrow { from, width: call.dv, factor: inverse(sums[i]), to: call.out(head, row) });
        }
    }
}

/// Brings the first `end` keys into the form of B: 32 keys a panel, pairs of elements turned to lie across keys.
fn pack_keys(call: &Call<bf16>, sizes: BlockSizes, head: usize, end: usize, lines: &mut [f32], packed: &mut [f32]) {
    let whole = call.d == sizes.d;
    for (half, key) in (0..end.next_multiple_of(SIDE)).step_by(16).enumerate() {
        let count = end.saturating_sub(key).min(16);
        let (from, from_row) = if whole && count == 16 {
            (call.k(head, key).cast::<f32>(), call.k_step() / 2)
        } else {
            lines.fill(0.0);
            let to = lines.as_mut_ptr().cast::<bf16>();
            for i in 0..count {
                // SAFETY: a key of d elements, and room for 16 of sizes.d.
                unsafe { std::ptr::copy_nonoverlapping(call.k(head, key + i), to.add(i * sizes.d), call.d) };
            }
            (lines.as_ptr(), sizes.d / 2)
        };
        for step in 0..sizes.d / DEPTH {
            let to = packed[(half / 2 * sizes.d / DEPTH + step) * STEP / 2 + half % 2 * STEP / 4..].as_mut_ptr();
            // Pairs of brain floats move as one number: nothing looks inside.
            let from = from.wrapping_add(step * 16);
            Isa::Avx512.run(Turn { from, from_row, rows: 16, columns: 16, to, to_row: 16 });
        }
    }
}

/// Brings a block of rows of Q into the form of A: 32 rows at a time, 32 elements a step, zeros around.
fn pack_queries(call: &Call<bf16>, sizes: BlockSizes, head: usize, rows: Range<usize>, to: *mut u16) {
    let steps = sizes.d / DEPTH;
    for i in 0..rows.len().next_multiple_of(SIDE) {
        for step in 0..steps {
            let at = (i / SIDE * steps + step) * STEP + i % SIDE * DEPTH;
            let count = if i < rows.len() { (call.d - step * DEPTH).min(DEPTH) } else { 0 };
            // SAFETY: `at` lies in the block's room; a row holds d elements.
            unsafe {
                let to = to.add(at);
                if count > 0 {
                    let from = call.q(head, rows.start + i).add(step * DEPTH).cast::<u16>();
                    std::ptr::copy_nonoverlapping(from, to, count);
                }
                std::ptr::write_bytes(to.add(count), 0, DEPTH - count);
            }
        }
    }
}
