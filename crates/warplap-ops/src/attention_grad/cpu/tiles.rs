//! Tiles: blocks of keys, then blocks of queries, each with all whom they meet, by ordinary products.
//!
//! Idea: a task owns a block of keys of one head of K, computes their scores with all queries that see them, and with
//! those weights dK and dV; another owns a block of queries and computes dQ. Scores are computed twice, but nobody adds
//! to anybody else's sums, tasks are many, and memory grows with the length, not with its square. Half types are widened
//! once. Wins: all but the smallest problems. Limits: none.
//! From: FlashAttention 2 (Dao), with the products of the `gemm` crate.

use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa};
use warplap_cpu::{Cpu, Typed};

use super::call::{Call, Rows, row, row_mut};
use super::weigh::Weigh;
use crate::attention::{AttentionProblem, Strides};
use crate::attention_grad::{AttentionGrad, AttentionGradProblem};
use crate::faer::{self, Parallelism, Strided};
use crate::typed::for_dtype;

/// Blocks of keys and of queries.
pub(super) struct Tiles;

/// Queries that one product of a block of keys meets: their scores stay in the second cache.
const MET: usize = 512;

impl Variant<AttentionGrad, Cpu> for Tiles {
    fn id(&self) -> &str {
        "tiles"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &AttentionGradProblem, _: &Cpu) -> Fit {
        Fit::HIGH
    }

    fn space(&self, AttentionGradProblem(p): &AttentionGradProblem, cpu: &Cpu) -> Space {
        let small = p.b * p.h * p.pairs().min(1 << 20) <= 1 << 14;
        let threads = [cpu.threads() as i64].into_iter().chain((small && cpu.threads() > 1).then_some(1));
        Space::single().axis(Axis::ints("block", [64, 128, 32])).axis(Axis::ints("threads", threads))
    }

    fn needs(&self, AttentionGradProblem(p): &AttentionGradProblem, config: &Config) -> Needs {
        let setting = Setting::read(p, config);
        let wide =
            if p.dtype == warplap_core::dtype::DType::F32 { 0 } else { p.q_len() + p.k_len() + p.v_len() + p.o_len() };
        let numbers = wide + setting.threads * setting.room(p) + p.lse_len();
        Needs { threads: setting.threads as u64, workspace: 4 * numbers as u64, ..Needs::default() }
    }

    fn build(&self, p: &AttentionGradProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Built { p: p.0, setting: Setting::read(&p.0, config), isa: cpu.isa(), pool: cpu.pool().clone() }))
    }
}

#[derive(Clone, Copy)]
struct Setting {
    block: usize,
    threads: usize,
}

impl Setting {
    fn read(p: &AttentionProblem, config: &Config) -> Self {
        let block = config.size("block").unwrap_or(64).clamp(1, p.sq.max(p.sk) as usize);
        Setting { block, threads: config.size("threads").unwrap_or(1).max(1) }
    }

    /// Numbers that a task holds: two blocks of scores, and sums.
    fn room(self, p: &AttentionProblem) -> usize {
        2 * self.block * MET + 2 * self.block * (p.d + p.dv) as usize
    }
}

struct Built {
    p: AttentionProblem,
    setting: Setting,
    isa: Isa,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for Built {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.p.dtype, T => self.differentiate::<T>(args))
    }
}

/// A tensor in f32: as it lies, or widened.
struct Wide {
    rows: Rows<*const f32>,
    _kept: Vec<f32>,
}

// SAFETY: the pointer is to numbers that nobody writes while it lives: its own, or the caller's inputs.
unsafe impl Sync for Wide {}

/// What every task reads.
struct Given<'a, T> {
    p: &'a AttentionProblem,
    isa: Isa,
    q: Wide,
    k: Wide,
    v: Wide,
    grad: Wide,
    deltas: Vec<f32>,
    call: Call<T>,
}

impl Built {
    fn differentiate<T: Element + Typed>(&self, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
        let (p, call) = (&self.p, Call::<T>::new(&self.p, args)?);
        let widened = |rows: Rows<*const T>, len: usize| -> Wide {
            // SAFETY: the slot holds as many elements as the problem says.
            let all = unsafe { std::slice::from_raw_parts(rows.first, len) };
            if T::DTYPE == warplap_core::dtype::DType::F32 {
                return Wide { rows: Rows { first: rows.first.cast(), lies: rows.lies }, _kept: Vec::new() };
            }
            let kept: Vec<f32> = all.iter().map(|x| x.widen()).collect();
            Wide { rows: Rows { first: kept.as_ptr(), lies: rows.lies }, _kept: kept }
        };
        let (q, k) = (widened(call.q, p.q_len()), widened(call.k, p.k_len()));
        let (v, grad) = (widened(call.v, p.v_len()), widened(call.grad, p.o_len()));
        let mut given = Given { p, isa: self.isa, q, k, v, grad, deltas: Vec::new(), call };
        given.deltas = given.deltas();
        let (block, threads, given) = (self.setting.block, self.setting.threads, &given);
        let (keys, queries) = ((p.sk as usize).div_ceil(block), (p.sq as usize).div_ceil(block));
        let shared = (p.b * p.hkv) as usize * keys;
        // The first keys, which most queries see, and the last queries, which see most keys, come first.
        self.pool.each(threads, shared + (p.b * p.h) as usize * queries, |task| match task.checked_sub(shared) {
            None => given.keys(task / keys, task % keys * block, block),
            Some(task) => given.queries(task / queries, (queries - 1 - task % queries) * block, block),
        });
        Ok(())
    }
}

impl<T: Element> Given<'_, T> {
    fn deltas(&self) -> Vec<f32> {
        let (p, dv) = (self.p, self.p.dv as usize);
        let of = |n: usize| {
            let rows = p.stretches()[1] as usize;
            let (head, i) = (n / rows, n % rows);
            let at = [head / p.h as usize, head % p.h as usize, i];
            // SAFETY: both tensors have that row of dv elements.
            let (g, o) = unsafe { (row(self.grad.rows, at, dv), row(self.call.out, at, dv)) };
            g.iter().zip(o).map(|(g, o)| g * o.widen()).sum()
        };
        (0..p.lse_len()).map(of).collect()
    }

    /// Weights and gradients of scores of some queries of one head with some keys.
    fn weigh(&self, [b, h]: [usize; 2], queries: [usize; 2], keys: [usize; 2], room: &mut [Vec<f32>; 2]) {
        let (p, [first, rows], [key, width]) = (self.p, queries, keys);
        let (kv, [own, met]) = (h / p.group() as usize, self.call.stretches(p, b));
        let [scores, slopes] = room;
        scores.resize(rows * width, 0.0);
        slopes.resize(rows * width, 0.0);
        let products = [(&self.q, &self.k, p.d, &mut *scores), (&self.grad, &self.v, p.dv, &mut *slopes)];
        for (mine, others, depth, to) in products {
            let a = Part::of(mine.rows, [b, h, own.start + first]);
            let k = Part::of(others.rows, [b, kv, met.start + key]).turned();
            multiply((rows, width, depth as usize), a, k, to);
        }
        let sums = p.lse_strides();
        let at = b * sums.batch + h * sums.head + own.start + first;
        // SAFETY: there is a log-sum-exp for each query.
        let lse = unsafe { std::slice::from_raw_parts(self.call.lse.add(at), rows) };
        let mut steep = Vec::new();
        if p.is_bent() {
            steep = self.bend([b, h], [first, key], width, scores);
        }
        let mut kept = Vec::new();
        if let Some(drops) = self.call.drops(p, [b, h]) {
            kept.extend((0..rows * width).map(|n| drops.factor(first + n / width, key + n % width)));
            slopes.iter_mut().zip(&kept).for_each(|(slope, kept)| *slope *= kept);
        }
        let line = self.call.line(p, [b, h, first]);
        self.isa.run(Weigh {
            scores,
            slopes,
            width,
            first: [first, key],
            lse,
            deltas: &self.deltas[at..at + rows],
            scale: if p.is_bent() { 1.0 } else { p.scale() },
            sight: self.call.sight(p, b),
            mask: (if line.is_null() { line } else { line.wrapping_add(key) }, p.sk as usize),
        });
        slopes.iter_mut().zip(&steep).for_each(|(slope, steep)| *slope *= steep);
        scores.iter_mut().zip(&kept).for_each(|(weight, kept)| *weight *= kept);
    }

    /// Scales and bends scores one by one; how steeply they grow goes out beside them.
    fn bend(&self, [b, h]: [usize; 2], [first, key]: [usize; 2], width: usize, scores: &mut [f32]) -> Vec<f32> {
        let (p, mut steep) = (self.p, Vec::with_capacity(scores.len()));
        for (i, row) in scores.chunks_exact_mut(width).enumerate() {
            let bend = self.call.bend(p, [b, h, first + i]);
            for (j, score) in row.iter_mut().enumerate() {
                let (bent, grows) = bend(*score * p.scale(), key + j);
                *score = bent;
                steep.push(grows);
            }
        }
        steep
    }

    /// dK and dV of some keys.
    fn keys(&self, shared: usize, key: usize, block: usize) {
        let p = self.p;
        let (b, kv) = (shared / p.hkv as usize, shared % p.hkv as usize);
        let ([own, met], sight) = (self.call.stretches(p, b), self.call.sight(p, b));
        if key >= met.len() {
            return;
        }
        let (d, dv, width) = (p.d as usize, p.dv as usize, block.min(met.len() - key));
        let mut room = [Vec::new(), Vec::new()];
        let (mut of_k, mut of_v, mut more) = (vec![0f32; width * d], vec![0f32; width * dv], Vec::new());
        for h in kv * p.group() as usize..(kv + 1) * p.group() as usize {
            let seen = sight.of_keys(key..key + width, own.len());
            for first in seen.clone().step_by(MET) {
                let rows = MET.min(seen.end - first);
                self.weigh([b, h], [first, rows], [key, width], &mut room);
                for (weights, with, wide, sums) in
                    [(&room[1], &self.q, d, &mut of_k), (&room[0], &self.grad, dv, &mut of_v)]
                {
                    more.resize(width * wide, 0.0);
                    let turned = Part { first: weights.as_ptr(), column: 1, row: width }.turned();
                    multiply((width, wide, rows), turned, Part::of(with.rows, [b, h, own.start + first]), &mut more);
                    sums.iter_mut().zip(&more).for_each(|(sum, x)| *sum += x);
                }
            }
        }
        // SAFETY: the rows are this task's alone.
        unsafe {
            put(self.call.dk, [b, kv, met.start + key], &of_k, d, p.scale());
            put(self.call.dv, [b, kv, met.start + key], &of_v, dv, 1.0);
        }
    }

    /// dQ of some queries.
    fn queries(&self, head: usize, first: usize, block: usize) {
        let (p, d) = (self.p, self.p.d as usize);
        let (b, h) = (head / p.h as usize, head % p.h as usize);
        let ([own, met], sight) = (self.call.stretches(p, b), self.call.sight(p, b));
        if first >= own.len() {
            return;
        }
        let (kv, rows) = (h / p.group() as usize, block.min(own.len() - first));
        let seen = sight.of_query(first).start..sight.of_query(first + rows - 1).end;
        let (mut room, mut sums, mut more) = ([Vec::new(), Vec::new()], vec![0f32; rows * d], vec![0f32; rows * d]);
        for key in seen.clone().step_by(MET) {
            let width = MET.min(seen.end - key);
            self.weigh([b, h], [first, rows], [key, width], &mut room);
            let slopes = Part { first: room[1].as_ptr(), column: 1, row: width };
            multiply((rows, d, width), slopes, Part::of(self.k.rows, [b, kv, met.start + key]), &mut more);
            sums.iter_mut().zip(&more).for_each(|(sum, x)| *sum += x);
        }
        // SAFETY: the rows are this task's alone.
        unsafe { put(self.call.dq, [b, h, own.start + first], &sums, d, p.scale()) };
    }
}

/// A matrix that a product reads.
type Part = Strided<*const f32>;

impl Part {
    /// Rows of a head from one on.
    fn of(rows: Rows<*const f32>, [b, h, first]: [usize; 3]) -> Self {
        let Strides { row, .. } = rows.lies;
        // SAFETY: the tensor has that row.
        Part { first: unsafe { rows.first.add(rows.at(b, h, first)) }, column: 1, row }
    }
}

/// A product into rows behind each other, on this thread.
fn multiply((m, n, k): (usize, usize, usize), a: Part, b: Part, to: &mut [f32]) {
    assert!(to.len() >= m * n, "room for a product of {m} by {n}");
    // SAFETY: the parts are of tensors and blocks that hold what is read, `to` is ours alone.
    unsafe { faer::product((m, n, k), a, b, Strided::rows(to.as_mut_ptr(), n), Parallelism::None) };
}

/// Writes rows.
///
/// # Safety
/// The tensor has those rows, and nobody else writes them.
unsafe fn put<T: Element>(to: Rows<*mut T>, [b, h, first]: [usize; 3], sums: &[f32], width: usize, scale: f32) {
    for (i, sums) in sums.chunks_exact(width).enumerate() {
        // SAFETY: the caller's word.
        let row = unsafe { row_mut(to, [b, h, first + i], width) };
        row.iter_mut().zip(sums).for_each(|(to, sum)| *to = T::narrow(sum * scale));
    }
}
