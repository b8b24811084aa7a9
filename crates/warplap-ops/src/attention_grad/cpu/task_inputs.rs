//! What tasks on several threads share: a launch comes in; blocks of weights and of gradients of scores go out, by ordinary
//! products of f32.

use warplap_core::dtype::DType;
use warplap_cpu::Typed;
use warplap_cpu::simd::{Element, Isa};

use super::call::{Call, Rows, row};
use super::weigh::Weigh;
use crate::attention::{AttentionProblem, Strides};
use crate::faer::{self, Parallelism, Strided};

/// A tensor in f32: as it lies, or widened.
pub(crate) struct Wide {
    pub(crate) rows: Rows<*const f32>,
    _kept: Vec<f32>,
}

// SAFETY: the pointer is to numbers that nobody writes while it lives: its own, or the caller's inputs.
unsafe impl Sync for Wide {}

/// What every task reads.
pub(crate) struct TaskInputs<'a, T> {
    pub(crate) p: &'a AttentionProblem,
    isa: Isa,
    pub(crate) q: Wide,
    pub(crate) k: Wide,
    pub(crate) v: Wide,
    pub(crate) grad: Wide,
    deltas: Vec<f32>,
    pub(crate) call: Call<T>,
}

impl<'a, T: Element + Typed> TaskInputs<'a, T> {
    /// Half types are widened once.
    pub(crate) fn new(p: &'a AttentionProblem, isa: Isa, call: Call<T>) -> Self {
        let widened = |rows: Rows<*const T>, len: usize| -> Wide {
            // SAFETY: the slot holds as many elements as the problem says.
            let all = unsafe { std::slice::from_raw_parts(rows.first, len) };
            if T::DTYPE == DType::F32 {
                return Wide { rows: Rows { first: rows.first.cast(), strides: rows.strides }, _kept: Vec::new() };
            }
            let kept: Vec<f32> = all.iter().map(|x| x.widen()).collect();
            Wide { rows: Rows { first: kept.as_ptr(), strides: rows.strides }, _kept: kept }
        };
        let (q, k) = (widened(call.q, p.q_len()), widened(call.k, p.k_len()));
        let (v, grad) = (widened(call.v, p.v_len()), widened(call.grad, p.o_len()));
        let mut inputs = TaskInputs { p, isa, q, k, v, grad, deltas: Vec::new(), call };
        inputs.deltas = inputs.deltas();
        inputs
    }
}

/// Numbers that are widened, and deltas.
pub(crate) fn numbers(p: &AttentionProblem) -> usize {
    let wide = if p.dtype == DType::F32 { 0 } else { p.q_len() + p.k_len() + p.v_len() + p.o_len() };
    wide + p.lse_len()
}

impl<T: Element> TaskInputs<'_, T> {
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

    /// Weights and gradients of scores of some queries of one head with some keys. How steeply scores grow with products
    /// goes out beside them, where they are bent.
    pub(crate) fn weigh(
        &self,
        [b, h]: [usize; 2],
        queries: [usize; 2],
        keys: [usize; 2],
        room: &mut [Vec<f32>; 2],
    ) -> Vec<f32> {
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
        if p.has_score_mod() {
            steep = self.modify_scores([b, h], [first, key], width, scores);
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
            scale: if p.has_score_mod() { 1.0 } else { p.scale() },
            sight: self.call.sight(p, b),
            mask: (if line.is_null() { line } else { line.wrapping_add(key) }, p.sk as usize),
        });
        scores.iter_mut().zip(&kept).for_each(|(weight, kept)| *weight *= kept);
        steep
    }

    /// Scales and bends scores one by one; how steeply they grow goes out beside them.
    fn modify_scores(
        &self,
        [b, h]: [usize; 2],
        [first, key]: [usize; 2],
        width: usize,
        scores: &mut [f32],
    ) -> Vec<f32> {
        let (p, mut steep) = (self.p, Vec::with_capacity(scores.len()));
        for (i, row) in scores.chunks_exact_mut(width).enumerate() {
            let score_mod = self.call.score_mod(p, [b, h, first + i]);
            for (j, score) in row.iter_mut().enumerate() {
                let (modified_score, grows) = score_mod(*score * p.scale(), key + j);
                *score = modified_score;
                steep.push(grows);
            }
        }
        steep
    }
}

/// A matrix that a product reads.
pub(super) type Part = Strided<*const f32>;

impl Part {
    /// Rows of a head from one on.
    pub(super) fn of(rows: Rows<*const f32>, [b, h, first]: [usize; 3]) -> Self {
        let Strides { row, .. } = rows.strides;
        // SAFETY: the tensor has that row.
        Part { first: unsafe { rows.first.add(rows.at(b, h, first)) }, column: 1, row }
    }
}

/// A product into rows behind each other, on this thread.
pub(super) fn multiply((m, n, k): (usize, usize, usize), a: Part, b: Part, to: &mut [f32]) {
    assert!(to.len() >= m * n, "room for a product of {m} by {n}");
    // SAFETY: the parts are of tensors and blocks that hold what is read, `to` is ours alone.
    unsafe { faer::product((m, n, k), a, b, Strided::rows(to.as_mut_ptr(), n), Parallelism::None) };
}
