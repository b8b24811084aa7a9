//! One launch as kernels see it: addresses and sizes.

use std::ops::Range;

use warplap_core::arg::Arg;
use warplap_core::rejection::Rejection;
use warplap_core::scalar::Bool;
use warplap_cpu::{Cpu, Typed};

use crate::attention::keys::{clamped, page_of};
use crate::attention::packed::{ascending, stretch};
use crate::attention::{AttentionProblem, Mask, Sight, Strides, slot};
use crate::philox::{Dropout, Drops};
use crate::typed;

/// The buffers of one launch by address, so that tasks on several threads can write rows of their own.
#[derive(Clone, Copy)]
pub(super) struct Call<T> {
    q: *const T,
    k: *const T,
    v: *const T,
    mask: *const T,
    /// Zeros hide; null where none do.
    hides: *const u8,
    out: *mut T,
    /// Null where nobody asks for them.
    lse: *mut f32,
    /// Null where distances take nothing from scores.
    slopes: *const f32,
    /// Seed and stream; null where nothing is dropped.
    seed: *const i64,
    dropout: Dropout,
    /// Page numbers of each batch; null where keys lie in one piece.
    table: *const i32,
    /// How many, keys of a page, and pages there are.
    entries: usize,
    page: usize,
    pages: usize,
    /// Keys of each batch; null where all have all.
    lengths: *const i32,
    /// Where sequences of queries and of keys begin, and rows of all; null where batches lie apart.
    offsets: [*const i32; 2],
    totals: [usize; 2],
    masks: Strides,
    /// Queries and keys that a byte of the mask speaks of.
    side: usize,
    strides: [Strides; 4],
    /// Batches times heads of K and V: what tasks are made of.
    pub(super) heads: usize,
    hkv: usize,
    group: usize,
    sq: usize,
    /// Keys.
    pub(super) sk: usize,
    /// Elements of a query or key.
    pub(super) d: usize,
    /// Elements of a value.
    pub(super) dv: usize,
    problem: AttentionProblem,
    sight: Sight,
    cap: Option<f32>,
    /// What scores are multiplied with.
    pub(super) scale: f32,
}

// SAFETY: the caller of `launch` borrows all buffers until it returns, and every output row is written by one task.
unsafe impl<T> Send for Call<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Call<T> {}

impl<T: Typed + Copy> Call<T> {
    /// Takes the slots of a launch. The catalog hands out kernels that refuse other arguments than the signature's, so
    /// that every slot holds what the problem spans: everything unsafe relies on it.
    pub(super) fn new(p: &AttentionProblem, args: &mut [Arg<'_, Cpu>]) -> Result<Self, Rejection> {
        let [q, k, v] = [slot::Q, slot::K, slot::V].map(|i| args[i].read().and_then(typed::read::<T>));
        let (q, k, v, out) = (q?, k?, v?, typed::write::<T>(args[slot::OUT].write()?)?);
        let (mut mask, mut hides) = (std::ptr::null(), std::ptr::null());
        match p.mask {
            Mask::None => {}
            Mask::Add => mask = args[slot::MASK].read().and_then(typed::read::<T>)?.as_ptr(),
            Mask::Bool | Mask::Tiles(_) => {
                hides = args[slot::MASK].read().and_then(typed::read::<Bool>)?.as_ptr().cast()
            }
        }
        let seed = match p.dropout() > 0.0 {
            true => args[slot::SEED].read().and_then(typed::read::<i64>)?.as_ptr(),
            false => std::ptr::null(),
        };
        let lse = match p.lse {
            true => typed::write::<f32>(args[slot::LSE].write()?)?.as_mut_ptr(),
            false => std::ptr::null_mut(),
        };
        let slopes = match p.alibi {
            true => args[slot::SLOPES].read().and_then(typed::read::<f32>)?.as_ptr(),
            false => std::ptr::null(),
        };
        let whole = |slot: usize, has: bool, args: &[Arg<'_, Cpu>]| match has {
            true => args[slot].read().and_then(typed::read::<i32>).map(<[i32]>::as_ptr),
            false => Ok(std::ptr::null()),
        };
        let begins = |name: &str, slot: usize, args: &[Arg<'_, Cpu>]| -> Result<*const i32, Rejection> {
            let offsets = args[slot].read().and_then(typed::read::<i32>)?;
            ascending(name, offsets).map(|()| offsets.as_ptr())
        };
        let [pages, page] = p.pieces();
        Ok(Call {
            q: q.as_ptr(),
            k: k.as_ptr(),
            v: v.as_ptr(),
            mask,
            hides,
            out: out.as_mut_ptr(),
            lse,
            slopes,
            seed,
            dropout: Dropout::new(p.dropout()),
            table: whole(slot::TABLE, p.paged.is_some(), args)?,
            entries: p.entries() as usize,
            page: page as usize,
            pages: pages as usize,
            lengths: whole(slot::LENGTHS, p.lengths, args)?,
            offsets: match p.packed {
                Some(_) => [begins("offsets_q", slot::OFFSETS_Q, args)?, begins("offsets_k", slot::OFFSETS_K, args)?],
                None => [std::ptr::null(); 2],
            },
            totals: [p.stretches()[1], p.pieces()[1]].map(|rows| rows as usize),
            masks: p.mask_strides(),
            side: p.mask.tiles().map_or(1, |tiles| tiles.side as usize),
            strides: [p.q_strides(), p.k_strides(), p.v_strides(), p.o_strides()],
            heads: (p.b * p.hkv) as usize,
            hkv: p.hkv as usize,
            group: p.group() as usize,
            sq: p.sq as usize,
            sk: p.sk as usize,
            d: p.d as usize,
            dv: p.dv as usize,
            problem: *p,
            sight: p.sight(),
            cap: p.softcap(),
            scale: p.scale(),
        })
    }

    /// The rows of a head's sequence: of Q and O, or of K and V.
    fn stretch(&self, side: usize, head: usize) -> Range<usize> {
        let (offsets, longest) = (self.offsets[side], [self.sq, self.sk][side]);
        if offsets.is_null() {
            return 0..longest;
        }
        debug_assert!(head < self.heads);
        // SAFETY: one number more than there are batches.
        let between = [0, 1].map(|end| unsafe { *offsets.add(head / self.hkv + end) });
        stretch(between, longest, self.totals[side])
    }

    /// Queries of a head.
    fn queries(&self, head: usize) -> usize {
        self.stretch(0, head).len()
    }

    /// Rows of Q and O that share one head of K and V: the queries of all heads of a group.
    pub(super) fn rows(&self, head: usize) -> usize {
        self.group * self.queries(head)
    }

    /// The most rows any head has.
    pub(super) fn most_rows(&self) -> usize {
        self.group * self.sq
    }

    /// Which head of the group a row is of, and which query.
    fn split(&self, head: usize, row: usize) -> (usize, usize) {
        let queries = self.queries(head);
        debug_assert!(row < self.group * queries);
        (row / queries, row % queries)
    }

    /// The query a row is.
    pub(super) fn query(&self, head: usize, row: usize) -> usize {
        self.split(head, row).1
    }

    /// What the queries of a head see: as far as its batch has keys.
    fn sight(&self, head: usize) -> Sight {
        if !self.offsets[0].is_null() {
            return self.problem.sight_of(self.queries(head), self.stretch(1, head).len());
        }
        if self.lengths.is_null() {
            return self.sight;
        }
        // SAFETY: one number a batch.
        let length = unsafe { *self.lengths.add(head / self.hkv) };
        self.problem.sight_of(self.sq, clamped(length, self.sk))
    }

    /// Keys up to the last one a row sees.
    pub(super) fn seen(&self, head: usize, row: usize) -> usize {
        self.sight(head).of_query(self.query(head, row)).end
    }

    /// Keys before the first one a row sees.
    pub(super) fn unseen(&self, head: usize, row: usize) -> usize {
        self.sight(head).of_query(self.query(head, row)).start
    }

    /// Keys from this one on that lie one behind the other, this one among them.
    pub(super) fn run(&self, key: usize) -> usize {
        if self.table.is_null() { self.sk - key } else { self.page - key % self.page }
    }

    /// Whether a key is anywhere: its batch may name no page for it, or have no keys.
    pub(super) fn is_there(&self, head: usize, key: usize) -> bool {
        self.piece(head, key).is_some()
    }

    /// The batch or page a key is in, and its place there.
    fn piece(&self, head: usize, key: usize) -> Option<(usize, usize)> {
        let batch = head / self.hkv;
        if self.table.is_null() {
            let keys = self.stretch(1, head);
            return (key < keys.len()).then_some((batch, keys.start + key));
        }
        debug_assert!(head < self.heads && key < self.sk);
        // SAFETY: a batch has a number for every page that its keys fill.
        let number = unsafe { *self.table.add(batch * self.entries + key / self.page) };
        page_of(number, self.pages).map(|page| (page, key % self.page))
    }

    /// Elements before a key or value of a head. One that is nowhere has the first one's place, which there always is.
    fn before(&self, strides: Strides, head: usize, key: usize) -> usize {
        let (piece, at) = self.piece(head, key).unwrap_or_default();
        piece * strides.batch + head % self.hkv * strides.head + at * strides.row
    }

    /// Whether scores are more than products with a scale.
    pub(super) fn has_score_mod(&self) -> bool {
        self.cap.is_some() || !self.slopes.is_null() || !self.hides.is_null()
    }

    /// Bends a row's scaled scores, the first of which is of key `from`, and hides those before the first key it sees.
    pub(super) fn modify_scores(&self, head: usize, row: usize, from: usize, scores: &mut [f32]) {
        if let Some(cap) = self.cap {
            scores.iter_mut().for_each(|x| *x = cap * (*x / cap).tanh());
        }
        if !self.slopes.is_null() {
            let (of, query) = self.split(head, row);
            // SAFETY: one number a head.
            let slope = unsafe { *self.slopes.add(head % self.hkv * self.group + of) };
            let sight = self.sight(head);
            let lean = |j: usize| slope * sight.distance(query, from + j) as f32;
            scores.iter_mut().enumerate().for_each(|(j, x)| *x -= lean(j));
        }
        if !self.hides.is_null() {
            self.hide(head, row, from, scores);
        }
        let hidden = self.unseen(head, row).saturating_sub(from).min(scores.len());
        scores[..hidden].fill(f32::NEG_INFINITY);
    }

    /// Hides the scores whose bytes of the mask are zero; where it is of squares, one byte is for a run of them.
    fn hide(&self, head: usize, row: usize, from: usize, scores: &mut [f32]) {
        let ((batch, kv), (of, query)) = ((head / self.hkv, head % self.hkv), self.split(head, row));
        let (s, side) = (self.masks, self.side);
        let at = batch * s.batch + (kv * self.group + of) * s.head + query / side * s.row;
        // SAFETY: a mask has a byte for every key, or for every square of keys, of this row.
        let line = unsafe { std::slice::from_raw_parts(self.hides.add(at), (from + scores.len()).div_ceil(side)) };
        if side == 1 {
            let pairs = scores.iter_mut().zip(&line[from..]);
            return pairs.filter(|(_, seen)| **seen == 0).for_each(|(x, _)| *x = f32::NEG_INFINITY);
        }
        for (tile, _) in line.iter().enumerate().skip(from / side).filter(|(_, seen)| **seen == 0) {
            let [begin, end] = [tile, tile + 1].map(|t| (t * side).saturating_sub(from).min(scores.len()));
            scores[begin..end].fill(f32::NEG_INFINITY);
        }
    }

    /// Drops weights of a row, the first of which is of key `from`, where the problem says so.
    pub(super) fn drop_some(&self, head: usize, row: usize, from: usize, weights: &mut [f32]) {
        if self.seed.is_null() {
            return;
        }
        // SAFETY: two numbers.
        let seed = unsafe { [*self.seed as u64, *self.seed.add(1) as u64] };
        let (of, query) = self.split(head, row);
        let drops = Drops::new(self.dropout, seed, (head * self.group + of) as u64);
        weights.iter_mut().enumerate().for_each(|(j, x)| *x *= drops.factor(query, from + j));
    }

    /// The most keys any of these rows sees.
    pub(super) fn most_seen(&self, head: usize, rows: std::ops::Range<usize>) -> usize {
        rows.map(|r| self.seen(head, r)).max().unwrap_or(0)
    }

    /// Elements before a row of a head, whose sequence begins so many rows on.
    fn place(&self, s: Strides, head: usize, row: usize, start: usize) -> usize {
        let ((batch, kv), (of, query)) = ((head / self.hkv, head % self.hkv), self.split(head, row));
        batch * s.batch + (kv * self.group + of) * s.head + (start + query) * s.row
    }

    /// The same in a tensor that lies as Q does.
    fn row_place(&self, s: Strides, head: usize, row: usize) -> usize {
        self.place(s, head, row, self.stretch(0, head).start)
    }

    /// Where a row of Q starts; `d` elements are there.
    pub(super) fn q(&self, head: usize, row: usize) -> *const T {
        debug_assert!(head < self.heads && row < self.rows(head));
        // SAFETY: inside the buffer for every head and row there is.
        unsafe { self.q.add(self.row_place(self.strides[0], head, row)) }
    }

    /// Where a row of O starts; `dv` elements are there, and no other row.
    pub(super) fn out(&self, head: usize, row: usize) -> *mut T {
        debug_assert!(head < self.heads && row < self.rows(head));
        // SAFETY: inside the buffer for every head and row there is.
        unsafe { self.out.add(self.row_place(self.strides[3], head, row)) }
    }

    /// Writes the log-sum-exp of a row, where it is asked for, from its largest score and the sum of weights against it.
    /// Scores in powers of two come with a unit of ln 2.
    pub(super) fn keep(&self, head: usize, row: usize, most: f32, unit: f32, sum: f32) {
        if self.lse.is_null() {
            return;
        }
        let value = if sum > 0.0 { most * unit + sum.ln() } else { f32::NEG_INFINITY };
        debug_assert!(head < self.heads && row < self.rows(head));
        // SAFETY: one number a query, inside the buffer for every head and row there is; each row is one task's.
        unsafe { *self.lse.add(self.row_place(self.problem.lse_strides(), head, row)) = value };
    }

    /// Where a key starts; `d` elements are there, and as many keys behind it as [`Call::run`] says.
    pub(super) fn k(&self, head: usize, key: usize) -> *const T {
        debug_assert!(head < self.heads && key < self.sk);
        // SAFETY: inside the buffer for every head and key there is.
        unsafe { self.k.add(self.before(self.strides[1], head, key)) }
    }

    /// Where a value starts; `dv` elements are there, and values behind it as keys are.
    pub(super) fn v(&self, head: usize, key: usize) -> *const T {
        debug_assert!(head < self.heads && key < self.sk);
        // SAFETY: inside the buffer for every head and key there is.
        unsafe { self.v.add(self.before(self.strides[2], head, key)) }
    }

    /// Elements from one key to the next.
    pub(super) fn k_step(&self) -> usize {
        self.strides[1].row
    }

    /// Elements from one value to the next.
    pub(super) fn v_step(&self) -> usize {
        self.strides[2].row
    }

    /// Where the mask of a row starts, if there is one; `sk` elements are there.
    pub(super) fn mask(&self, head: usize, row: usize) -> Option<*const T> {
        // SAFETY: inside the buffer for every head and query there is.
        (!self.mask.is_null()).then(|| unsafe { self.mask.add(self.place(self.masks, head, row, 0)) })
    }
}
