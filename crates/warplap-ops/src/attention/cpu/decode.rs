//! Decode: a few rows against many keys; every key and value is read once, keys are split over the threads.
//!
//! Idea: with one to eight rows a head of K and V, memory decides. Dot products run along a key as it lies, values are
//! added as they lie, half types are widened in registers, and all query heads of a group use each key while it is
//! there. Keys are split so that every thread has work even with a single head; the parts are merged at the end. Wins:
//! decoding, also of keys in pages, which are taken page by page. Limits: sums over lanes make it slow where rows are many.
//! From: Flash-Decoding (Dao, Haziza, Massa, Sizov 2023).

use std::f32::consts::{LN_2, LOG2_E};
use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Ceilings;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa};
use warplap_cpu::{Cpu, Typed};

use super::call::Call;
use super::rows::{Narrow, Widen, padded};
use super::scratch::{self, Pieces, lines};
use super::setup;
use super::softmax::{LOWEST, Row, inverse};
use super::streams::{Dots, Sums};
use crate::attention::{Attention, AttentionProblem};
use crate::typed::for_dtype;

/// Few rows, keys split over threads.
pub(super) struct Decode;

/// Rows of one task at once; more come in several rounds over the same keys.
const ROWS: usize = 8;

/// Keys whose weights are held at once.
const CHUNK: usize = 256;

impl Variant<Attention, Cpu> for Decode {
    fn id(&self) -> &str {
        "decode"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &AttentionProblem, _: &Cpu) -> Fit {
        match p.group() * p.sq {
            _ if p.packed.is_some() => Fit::aside(setup::PACKED),
            _ if p.dropout() > 0.0 => Fit::aside("weights are dropped in training, not one query at a time"),
            rows if rows <= 2 * ROWS as u64 => Fit::HIGH,
            rows if rows <= 64 => Fit::MEDIUM,
            rows => Fit::aside(format!("{rows} rows share a head of keys: arithmetic decides, not memory")),
        }
    }

    fn space(&self, p: &AttentionProblem, cpu: &Cpu) -> Space {
        let (heads, threads) = (p.b * p.hkv, cpu.threads() as u64);
        let mut splits = vec![1u64];
        if p.sk as usize > CHUNK {
            // So many that every thread has a task, and twice that where tasks would be uneven.
            splits.extend([1, 2].map(|even| (even * threads).div_ceil(heads)).into_iter().filter(|s| *s > 1));
            if !heads.is_multiple_of(threads) {
                splits.push(threads);
            }
            splits.reverse();
        }
        Space::single()
            .axis(Axis::ints("splits", splits.into_iter().map(|s| s as i64)))
            .axis(setup::isa(p, cpu))
            .axis(setup::threads(p, cpu))
    }

    fn needs(&self, p: &AttentionProblem, config: &Config) -> Needs {
        let splits = Splits::new(p, config);
        Needs { threads: splits.threads as u64, workspace: splits.bytes(), ..Needs::default() }
    }

    fn floor(&self, p: &AttentionProblem, config: &Config, ceilings: &Ceilings) -> Option<f64> {
        setup::floor(p, config, ceilings)
    }

    fn build(&self, p: &AttentionProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Streams { problem: *p, splits: Splits::new(p, config), pool: cpu.pool().clone() }))
    }
}

#[derive(Clone, Copy)]
struct Splits {
    splits: usize,
    isa: Isa,
    threads: usize,
    d: usize,
    dv: usize,
    /// Rows of O in all.
    rows: usize,
}

impl Splits {
    fn new(p: &AttentionProblem, config: &Config) -> Self {
        let (threads, isa) = setup::chosen(config);
        Splits {
            splits: config.size("splits").unwrap_or(1).clamp(1, p.sk as usize),
            isa,
            threads,
            d: padded(isa, p.d as usize),
            dv: padded(isa, p.dv as usize),
            rows: (p.b * p.h * p.sq) as usize,
        }
    }

    /// Numbers of one row of a part: the sums, then the maximum and the total weight.
    fn part(&self) -> usize {
        lines(self.dv + 2)
    }

    fn numbers(&self) -> usize {
        lines(ROWS * self.d) + lines(ROWS * CHUNK) + lines(ROWS * self.dv)
    }

    fn bytes(&self) -> u64 {
        ((self.threads * self.numbers() + self.splits * self.rows * self.part()) * 4) as u64
    }
}

struct Streams {
    problem: AttentionProblem,
    splits: Splits,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for Streams {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => attend::<T>(self, args))
    }

    fn workspace(&self) -> u64 {
        self.splits.bytes()
    }
}

/// Where the parts of all rows go; every task writes rows of its own.
#[derive(Clone, Copy)]
struct Parts(*mut f32);
// SAFETY: see the type; the memory outlives the tasks.
unsafe impl Sync for Parts {}

impl Parts {
    fn row(&self, splits: Splits, split: usize, row: usize) -> *mut f32 {
        self.0.wrapping_add((split * splits.rows + row) * splits.part())
    }
}

fn attend<T: Element + Typed>(streams: &Streams, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let call = Call::<T>::new(&streams.problem, args)?;
    let splits = streams.splits;
    scratch::with(splits.splits * splits.rows * splits.part(), |parts| {
        let parts = Parts(parts.as_mut_ptr());
        streams.pool.each(splits.threads, call.heads * splits.splits, |task| {
            let parts = &parts;
            scratch::with(splits.numbers(), |room| one_part(&call, splits, task, parts, room));
        });
        for head in 0..call.heads {
            for row in 0..call.most_rows() {
                merge(&call, splits, head, row, &parts);
            }
        }
    });
    Ok(())
}

fn one_part<T: Element + Typed>(call: &Call<T>, splits: Splits, task: usize, parts: &Parts, room: &mut [f32]) {
    let (head, split) = (task / splits.splits, task % splits.splits);
    let (isa, rows) = (splits.isa, call.most_rows());
    let mut room = Pieces(room);
    let (queries, weights, sums) = (room.cut(ROWS * splits.d), room.cut(ROWS * CHUNK), room.cut(ROWS * splits.dv));
    let (start, end) = (call.sk * split / splits.splits, call.sk * (split + 1) / splits.splits);
    for first in (0..rows).step_by(ROWS) {
        let count = ROWS.min(rows - first);
        let natural = call.mask(head, first).is_some() || call.has_score_mod();
        let (before, after) = if natural { (1.0, LOG2_E) } else { (LOG2_E, 1.0) };
        for i in 0..count {
            let (from, to) = (call.q(head, first + i), queries[i * splits.d..].as_mut_ptr());
            let factor = call.scale * before;
            isa.run(Widen { from, from_row: 0, rows: 1, width: call.d, factor, to, padded: splits.d });
        }
        let (mut most, mut total) = ([LOWEST; ROWS], [0f32; ROWS]);
        sums.fill(0.0);
        let last = end.min(call.most_seen(head, first..first + count));
        let from = (first..first + count).map(|r| call.unseen(head, r)).min().unwrap_or(0).max(start);
        let mut next = from;
        while next < last {
            let (key, keys) = (next, CHUNK.min(last - next).min(call.run(next)));
            next += keys;
            if !call.is_there(head, key) {
                continue;
            }
            isa.run(Dots {
                rows: count,
                keys,
                width: call.d,
                q: queries.as_ptr(),
                q_row: splits.d,
                k: call.k(head, key),
                k_row: call.k_step(),
                out: weights.as_mut_ptr(),
                out_row: CHUNK,
            });
            for i in 0..count {
                let line = &mut weights[i * CHUNK..(i + 1) * CHUNK];
                let seen = call.seen(head, first + i).saturating_sub(key).min(keys);
                call.modify_scores(head, first + i, key, &mut line[..seen]);
                let mask = call.mask(head, first + i).map(|m| m.wrapping_add(key));
                let (top, sum) = isa.run(Row { scores: line.as_mut_ptr(), keys: seen, mask, factor: after });
                line[seen..keys].fill(0.0);
                // Weights are relative to this chunk's maximum; the larger of it and the running one stays.
                let (old, new) =
                    (((most[i] - top.max(most[i])) * after).exp2(), ((top - top.max(most[i])) * after).exp2());
                if old != 1.0 {
                    sums[i * splits.dv..(i + 1) * splits.dv].iter_mut().for_each(|x| *x *= old);
                }
                if new != 1.0 {
                    line[..seen].iter_mut().for_each(|x| *x *= new);
                }
                total[i] = total[i] * old + sum * new;
                most[i] = most[i].max(top);
            }
            isa.run(Sums {
                rows: count,
                keys,
                width: call.dv,
                weights: weights.as_ptr(),
                weights_row: CHUNK,
                v: call.v(head, key),
                v_row: call.v_step(),
                out: sums.as_mut_ptr(),
                out_row: splits.dv,
            });
        }
        for i in 0..count {
            let to = parts.row(splits, split, head * rows + first + i);
            // SAFETY: the row has room for dv sums and two more numbers, and only this task writes it.
            unsafe {
                std::ptr::copy_nonoverlapping(sums[i * splits.dv..].as_ptr(), to, splits.dv);
                *to.add(splits.dv) = most[i] * after;
                *to.add(splits.dv + 1) = total[i];
            }
        }
    }
}

/// Joins the parts of one row and writes it.
fn merge<T: Element + Typed>(call: &Call<T>, splits: Splits, head: usize, row: usize, parts: &Parts) {
    let at = |split: usize| {
        let part = parts.row(splits, split, head * call.most_rows() + row);
        // SAFETY: all tasks have ended: every part of every row is written, and only this thread is here.
        unsafe { std::slice::from_raw_parts_mut(part, splits.dv + 2) }
    };
    let most = (0..splits.splits).map(|s| at(s)[splits.dv].max(LOWEST)).fold(LOWEST, f32::max);
    let whole = at(0);
    let share = |part: &[f32]| (part[splits.dv].max(LOWEST) - most).exp2();
    let own = share(whole);
    if own != 1.0 {
        whole[..splits.dv].iter_mut().for_each(|x| *x *= own);
    }
    let mut total = whole[splits.dv + 1] * own;
    for split in 1..splits.splits {
        let part = at(split);
        let factor = share(part);
        total += part[splits.dv + 1] * factor;
        whole.iter_mut().zip(part.iter()).take(splits.dv).for_each(|(sum, x)| *sum += x * factor);
    }
    splits.isa.run(Narrow { from: whole.as_ptr(), width: call.dv, factor: inverse(total), to: call.out(head, row) });
    call.keep(head, row, most, LN_2, total);
}
