//! One launch as kernels see it: addresses, strides and sizes.

use std::ops::Range;

use warplap_core::arg::Arg;
use warplap_core::rejection::Rejection;
use warplap_core::scalar::Bool;
use warplap_cpu::{Cpu, Typed};

use crate::attention::packed::{Packed, ascending, stretch};
use crate::attention::{AttentionProblem, Mask, Sight, Strides, Tiles};
use crate::attention_grad::slot;
use crate::philox::{Dropout, Drops};
use crate::typed;

/// A tensor of one launch by address: rows of heads of batches.
#[derive(Clone, Copy)]
pub(crate) struct Rows<P> {
    pub(crate) first: P,
    pub(crate) strides: Strides,
}

impl<P> Rows<P> {
    /// Elements from the first to a row.
    pub(crate) fn at(&self, batch: usize, head: usize, row: usize) -> usize {
        batch * self.strides.batch + head * self.strides.head + row * self.strides.row
    }
}

/// Where slots lie that the gradients of attention have in places of their own.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    pub(crate) slopes: usize,
    pub(crate) seed: usize,
    /// None where no problem has sequences one behind the other.
    pub(crate) offsets: Option<[usize; 2]>,
}

/// What one launch reads, by address, so that tasks on several threads can.
#[derive(Clone, Copy)]
pub(crate) struct Call<T> {
    pub(crate) q: Rows<*const T>,
    pub(crate) k: Rows<*const T>,
    pub(crate) v: Rows<*const T>,
    pub(crate) out: Rows<*const T>,
    pub(crate) grad: Rows<*const T>,
    /// Null where nothing is added.
    pub(crate) mask: *const T,
    /// Zeros hide; null where none do.
    pub(crate) hides: *const u8,
    /// Seed and stream; null where nothing was dropped.
    pub(crate) seed: *const i64,
    pub(crate) lse: *const f32,
    /// Null where distances took nothing from scores.
    pub(crate) slopes: *const f32,
    /// Where sequences of queries and of keys begin; null where batches lie apart.
    offsets: [*const i32; 2],
}

// SAFETY: the caller of `launch` borrows all buffers until it returns.
unsafe impl<T> Send for Call<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Call<T> {}

/// What is written.
#[derive(Clone, Copy)]
pub(super) struct Gradients<T> {
    pub(super) dq: Rows<*mut T>,
    pub(super) dk: Rows<*mut T>,
    pub(super) dv: Rows<*mut T>,
}

// SAFETY: as above, and every row that is written is one task's.
unsafe impl<T> Send for Gradients<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Gradients<T> {}

/// The places of the gradients of Q, K and V.
pub(super) const PLACES: Places =
    Places { slopes: slot::SLOPES, seed: slot::SEED, offsets: Some([slot::OFFSETS_Q, slot::OFFSETS_K]) };

impl<T: Typed> Gradients<T> {
    pub(super) fn new(p: &AttentionProblem, args: &mut [Arg<'_, Cpu>]) -> Result<Self, Rejection> {
        Ok(Gradients {
            dq: write(args, slot::DQ, p.q_strides())?,
            dk: write(args, slot::DK, p.k_strides())?,
            dv: write(args, slot::DV, p.v_strides())?,
        })
    }
}

/// A tensor to write.
pub(crate) fn write<T: Typed>(
    args: &mut [Arg<'_, Cpu>],
    slot: usize,
    strides: Strides,
) -> Result<Rows<*mut T>, Rejection> {
    let first = typed::write::<T>(args[slot].write()?)?.as_mut_ptr();
    Ok(Rows { first, strides })
}

impl<T: Typed + Copy> Call<T> {
    /// Takes the slots of a launch. The catalog hands out kernels that refuse other arguments than the signature's, so
    /// that every slot holds what the problem spans: everything unsafe relies on it.
    pub(crate) fn new(p: &AttentionProblem, args: &[Arg<'_, Cpu>], at: Places) -> Result<Self, Rejection> {
        fn read<T: Typed>(args: &[Arg<'_, Cpu>], slot: usize, strides: Strides) -> Result<Rows<*const T>, Rejection> {
            let first = args[slot].read().and_then(typed::read::<T>)?.as_ptr();
            Ok(Rows { first, strides })
        }
        fn begins(args: &[Arg<'_, Cpu>], name: &str, slot: usize) -> Result<*const i32, Rejection> {
            let offsets = args[slot].read().and_then(typed::read::<i32>)?;
            ascending(name, offsets).map(|()| offsets.as_ptr())
        }
        Ok(Call {
            q: read(args, slot::Q, p.q_strides())?,
            k: read(args, slot::K, p.k_strides())?,
            v: read(args, slot::V, p.v_strides())?,
            out: read(args, slot::OUT, p.o_strides())?,
            grad: read(args, slot::GRAD, p.o_strides())?,
            mask: match p.mask {
                Mask::Add => args[slot::MASK].read().and_then(typed::read::<T>)?.as_ptr(),
                _ => std::ptr::null(),
            },
            hides: match p.mask {
                Mask::Bool | Mask::Tiles(_) => args[slot::MASK].read().and_then(typed::read::<Bool>)?.as_ptr().cast(),
                _ => std::ptr::null(),
            },
            seed: match p.dropout() > 0.0 {
                true => args[at.seed].read().and_then(typed::read::<i64>)?.as_ptr(),
                false => std::ptr::null(),
            },
            lse: args[slot::LSE].read().and_then(typed::read::<f32>)?.as_ptr(),
            slopes: match p.alibi {
                true => args[at.slopes].read().and_then(typed::read::<f32>)?.as_ptr(),
                false => std::ptr::null(),
            },
            offsets: match at.offsets.filter(|_| p.packed.is_some()) {
                Some([queries, keys]) => [begins(args, "offsets_q", queries)?, begins(args, "offsets_k", keys)?],
                None => [std::ptr::null(); 2],
            },
        })
    }
}

impl<T> Call<T> {
    /// The rows of a batch: of queries, and of keys.
    pub(crate) fn stretches(&self, p: &AttentionProblem, batch: usize) -> [Range<usize>; 2] {
        let longest = [p.sq as usize, p.sk as usize];
        let Some(Packed { tq, tk }) = p.packed else { return longest.map(|rows| 0..rows) };
        debug_assert!(batch < p.b as usize);
        let totals = [tq, tk].map(|rows| rows as usize);
        [0, 1].map(|side| {
            // SAFETY: one number more than there are batches.
            let between = [0, 1].map(|end| unsafe { *self.offsets[side].add(batch + end) });
            stretch(between, longest[side], totals[side])
        })
    }

    /// What the queries of a batch see.
    pub(crate) fn sight(&self, p: &AttentionProblem, batch: usize) -> Sight {
        let [queries, keys] = self.stretches(p, batch);
        p.sight_of(queries.len(), keys.len())
    }

    /// What scores of a query of one head become: the scaled score and its key's number come in; the score and how steeply
    /// it grows go out.
    pub(crate) fn score_mod(
        &self,
        p: &AttentionProblem,
        [batch, head, query]: [usize; 3],
    ) -> impl Fn(f32, usize) -> (f32, f32) {
        let (cap, sight, strides) = (p.softcap(), self.sight(p, batch), p.mask_strides());
        // A byte of the mask is for so many keys of as many queries.
        let shift = p.mask.tiles().map_or(0, Tiles::shift);
        let (hides, at) = (self.hides, batch * strides.batch + head * strides.head + (query >> shift) * strides.row);
        // SAFETY: one number a head.
        let lean = if self.slopes.is_null() { 0.0 } else { unsafe { *self.slopes.add(head) } };
        move |scaled, key| {
            let (capped_score, steep) = cap.map_or((scaled, 1.0), |cap| {
                let tanh = (scaled / cap).tanh();
                (cap * tanh, 1.0 - tanh * tanh)
            });
            // SAFETY: a mask has a byte for every key, or for every square of keys, of this query.
            let hidden = !hides.is_null() && unsafe { *hides.add(at + (key >> shift)) } == 0;
            let score =
                if hidden { f32::NEG_INFINITY } else { capped_score - lean * sight.distance(query, key) as f32 };
            (score, steep)
        }
    }

    /// Which weights of a head were dropped, where some were.
    pub(crate) fn drops(&self, p: &AttentionProblem, [batch, head]: [usize; 2]) -> Option<Drops> {
        // SAFETY: two numbers.
        let seed = || unsafe { [*self.seed as u64, *self.seed.add(1) as u64] };
        let of = batch * p.h as usize + head;
        (!self.seed.is_null()).then(|| Drops::new(Dropout::new(p.dropout()), seed(), of as u64))
    }

    /// Where the mask of a query begins; null where there is none.
    pub(crate) fn line(&self, p: &AttentionProblem, [batch, head, query]: [usize; 3]) -> *const T {
        let strides = p.mask_strides();
        match self.mask.is_null() {
            true => self.mask,
            false => self.mask.wrapping_add(batch * strides.batch + head * strides.head + query * strides.row),
        }
    }
}

/// A row of a tensor.
///
/// # Safety
/// The tensor has that row of so many elements.
pub(crate) unsafe fn row<'a, T>(of: Rows<*const T>, [batch, head, row]: [usize; 3], width: usize) -> &'a [T] {
    // SAFETY: the caller's word.
    unsafe { std::slice::from_raw_parts(of.first.add(of.at(batch, head, row)), width) }
}

/// A row of a tensor to write.
///
/// # Safety
/// As for `row`, and nobody else has it.
pub(crate) unsafe fn row_mut<'a, T>(of: Rows<*mut T>, [batch, head, row]: [usize; 3], width: usize) -> &'a mut [T] {
    // SAFETY: the caller's word.
    unsafe { std::slice::from_raw_parts_mut(of.first.add(of.at(batch, head, row)), width) }
}
