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

use super::call::{Call, Gradients, PLACES, Rows, row_mut};
use super::task_inputs::{Part, TaskInputs, multiply, numbers};
use crate::attention::AttentionProblem;
use crate::attention_grad::{AttentionGrad, AttentionGradProblem};
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
        source!(crate::faer::VERSION)
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
        let numbers = numbers(p) + setting.threads * setting.room(p);
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

impl Built {
    fn differentiate<T: Element + Typed>(&self, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
        let (p, call) = (&self.p, Call::<T>::new(&self.p, args, PLACES)?);
        let (inputs, to) = (&TaskInputs::new(p, self.isa, call), &Gradients::new(p, args)?);
        let (block, threads) = (self.setting.block, self.setting.threads);
        let (keys, queries) = ((p.sk as usize).div_ceil(block), (p.sq as usize).div_ceil(block));
        let shared = (p.b * p.hkv) as usize * keys;
        // The first keys, which most queries see, and the last queries, which see most keys, come first.
        self.pool.each(threads, shared + (p.b * p.h) as usize * queries, |task| match task.checked_sub(shared) {
            None => inputs.keys(to, task / keys, task % keys * block, block),
            Some(task) => inputs.queries(to, task / queries, (queries - 1 - task % queries) * block, block),
        });
        Ok(())
    }
}

impl<T: Element> TaskInputs<'_, T> {
    /// Weights and gradients of scaled products.
    fn slopes(&self, head: [usize; 2], queries: [usize; 2], keys: [usize; 2], room: &mut [Vec<f32>; 2]) {
        let steep = self.weigh(head, queries, keys, room);
        room[1].iter_mut().zip(&steep).for_each(|(slope, steep)| *slope *= steep);
    }

    /// dK and dV of some keys.
    fn keys(&self, to: &Gradients<T>, shared: usize, key: usize, block: usize) {
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
                self.slopes([b, h], [first, rows], [key, width], &mut room);
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
            put(to.dk, [b, kv, met.start + key], &of_k, d, p.scale());
            put(to.dv, [b, kv, met.start + key], &of_v, dv, 1.0);
        }
    }

    /// dQ of some queries.
    fn queries(&self, to: &Gradients<T>, head: usize, first: usize, block: usize) {
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
            self.slopes([b, h], [first, rows], [key, width], &mut room);
            let slopes = Part { first: room[1].as_ptr(), column: 1, row: width };
            multiply((rows, d, width), slopes, Part::of(self.k.rows, [b, kv, met.start + key]), &mut more);
            sums.iter_mut().zip(&more).for_each(|(sum, x)| *sum += x);
        }
        // SAFETY: the rows are this task's alone.
        unsafe { put(to.dq, [b, h, own.start + first], &sums, d, p.scale()) };
    }
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
