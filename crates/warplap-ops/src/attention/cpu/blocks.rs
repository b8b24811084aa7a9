//! Rows in blocks: what the kernels share that write out all scores of a block of rows between their two products.
//!
//! A call and the sizes of a block come in. Tasks are dealt out here, queries widened, scores turned into weights and
//! outputs narrowed; the two products are the kernel's own.

use std::f32::consts::{LN_2, LOG2_E};
use std::ops::Range;

use warplap_cpu::Typed;
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa};

use super::call::Call;
use super::rows::{Narrow, Widen};
use super::scratch::{self, Pieces, lines};
use super::softmax::{Row, inverse};

/// Sizes of a block, padded to whole vectors.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    pub(super) rows: usize,
    pub(super) threads: usize,
    pub(super) isa: Isa,
    pub(super) keys: usize,
    pub(super) d: usize,
    pub(super) dv: usize,
}

/// A block's numbers between the products.
pub(super) struct Room<'r> {
    queries: &'r mut [f32],
    scores: &'r mut [f32],
    out: &'r mut [f32],
    sums: &'r mut [f32],
}

impl Blocks {
    /// Numbers of a [`Room`].
    pub(super) fn numbers(&self) -> usize {
        lines(self.rows * self.d) + lines(self.rows * self.keys) + lines(self.rows * self.dv) + lines(self.rows)
    }

    pub(super) fn room<'r>(&self, pieces: &mut Pieces<'r>) -> Room<'r> {
        Room {
            queries: pieces.cut(self.rows * self.d),
            scores: pieces.cut(self.rows * self.keys),
            out: pieces.cut(self.rows * self.dv),
            sums: pieces.cut(self.rows),
        }
    }

    /// Runs `part` for each head and share of its rows, with scratch of so many numbers. A head is one task where there
    /// are heads enough for all threads, so that it is packed or widened once.
    pub(super) fn each_part<T: Element + Typed>(
        &self,
        call: &Call<T>,
        pool: &Pool,
        numbers: usize,
        part: impl Fn(usize, Range<usize>, &mut [f32]) + Sync,
    ) {
        let most = call.most_rows().div_ceil(self.rows);
        let parts = if call.heads.is_multiple_of(self.threads) { 1 } else { self.threads.min(most) };
        pool.each(self.threads, call.heads * parts, |task| {
            let (head, share) = (task / parts, task % parts);
            let blocks = call.rows(head).div_ceil(self.rows);
            let rows = |share: usize| (blocks * share / parts * self.rows).min(call.rows(head));
            let rows = rows(share)..rows(share + 1);
            if !rows.is_empty() {
                scratch::with(numbers, |room| part(head, rows, room));
            }
        });
    }

    /// Attends with some rows of a head, block by block. `score` takes the count of rows, that of keys, the queries and
    /// where scores go; `weigh` the same counts, the weights and where sums of values go.
    pub(super) fn attend<T: Element + Typed>(
        &self,
        call: &Call<T>,
        head: usize,
        rows: Range<usize>,
        room: Room<'_>,
        mut score: impl FnMut(usize, usize, &[f32], &mut [f32]),
        mut weigh: impl FnMut(usize, usize, &[f32], &mut [f32]),
    ) {
        let Room { queries, scores, out, sums } = room;
        for first in rows.clone().step_by(self.rows) {
            let block = first..(first + self.rows).min(rows.end);
            let (count, end) = (block.len(), call.most_seen(head, block.clone()));
            // A mask may reach f32's range, where log2 e times it would leave it: then the factor comes after the
            // maximum.
            let natural = call.mask(head, first).is_some() || call.has_score_mod();
            let (before, after) = if natural { (1.0, LOG2_E) } else { (LOG2_E, 1.0) };
            for (i, row) in block.clone().enumerate() {
                let (from, to) = (call.q(head, row), queries[i * self.d..].as_mut_ptr());
                let factor = call.scale * before;
                self.isa.run(Widen { from, from_row: 0, rows: 1, width: call.d, factor, to, padded: self.d });
            }
            if end > 0 {
                score(count, end, queries, scores);
            }
            for (i, row) in block.clone().enumerate() {
                let line = &mut scores[i * self.keys..(i + 1) * self.keys];
                let keys = call.seen(head, row);
                call.modify_scores(head, row, 0, &mut line[..keys]);
                let weights = Row { scores: line.as_mut_ptr(), keys, mask: call.mask(head, row), factor: after };
                let (most, sum) = self.isa.run(weights);
                line[keys..end].fill(0.0);
                call.drop_some(head, row, 0, &mut line[..keys]);
                sums[i] = sum;
                call.keep(head, row, most, if before == 1.0 { 1.0 } else { LN_2 }, sum);
            }
            match end {
                0 => out.fill(0.0),
                _ => weigh(count, end, scores, out),
            }
            for (i, row) in block.enumerate() {
                let from = out[i * self.dv..].as_ptr();
                self.isa.run(Narrow { from, width: call.dv, factor: inverse(sums[i]), to: call.out(head, row) });
            }
        }
    }
}
