//! How the operands of an attention request lie in memory, and how many elements they have.

use warplap_core::declare::words;
use warplap_core::dtype::DType;

use super::sight::Over;
use super::{AttentionProblem, Mask};

words! {
    /// The order of the four dimensions in memory, outermost first. Rows of one head are contiguous in both.
    #[derive(Default)]
    pub enum Order {
        /// Batch, head, position, element.
        #[default]
        Bhsd = "bhsd",
        /// Batch, position, head, element.
        Bshd = "bshd",
    }
}

/// Elements from one batch, head and row to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// From one batch to the next.
    pub batch: usize,
    /// From one head to the next.
    pub head: usize,
    /// From one row to the next.
    pub row: usize,
}

impl AttentionProblem {
    /// Masks by batch and by head.
    pub fn masks(&self) -> [u64; 2] {
        match self.over {
            Over::All => [1, 1],
            Over::Heads => [1, self.h],
            Over::Batches => [self.b, 1],
            Over::Each => [self.b, self.h],
        }
    }

    /// How masks lie in memory; those that are shared have a step of zero.
    pub fn mask_strides(&self) -> Strides {
        self.strides_of_masks(self.mask_sides())
    }

    /// The same of what is added to every score.
    pub(crate) fn added_strides(&self) -> Strides {
        self.strides_of_masks([self.sq, self.sk])
    }

    fn strides_of_masks(&self, [rows, columns]: [u64; 2]) -> Strides {
        let ([batches, heads], one) = (self.masks(), (rows * columns) as usize);
        let batch = if batches > 1 { heads as usize * one } else { 0 };
        Strides { batch, head: if heads > 1 { one } else { 0 }, row: columns as usize }
    }

    /// Rows and columns of one mask.
    pub fn mask_sides(&self) -> [u64; 2] {
        let side = self.mask.tiles().map_or(1, |tiles| tiles.side);
        [self.sq, self.sk].map(|n| n.div_ceil(side))
    }

    /// Query heads that share one head of K and V.
    pub fn group(&self) -> u64 {
        self.h / self.hkv
    }

    fn strides(&self, heads: u64, rows: u64, width: u64) -> Strides {
        let (heads, rows, width) = (heads as usize, rows as usize, width as usize);
        let (head, row) = match self.layout {
            Order::Bhsd => (rows * width, width),
            Order::Bshd => (width, heads * width),
        };
        // Where sequences lie one behind the other, offsets lead from one to the next.
        let batch = if self.packed.is_some() { 0 } else { heads * rows * width };
        Strides { batch, head, row }
    }

    /// How many pieces Q and O lie in, and queries of each: batches, or one of all sequences.
    pub fn stretches(&self) -> [u64; 2] {
        self.packed.map_or([self.b, self.sq], |packed| [1, packed.tq])
    }

    /// How Q lies in memory.
    pub fn q_strides(&self) -> Strides {
        self.strides(self.h, self.stretches()[1], self.d)
    }

    /// How many pieces K and V lie in, and keys of each: batches, pages, or one of all sequences.
    pub fn pieces(&self) -> [u64; 2] {
        let batches = self.packed.map_or([self.b, self.sk], |packed| [1, packed.tk]);
        self.paged.map_or(batches, |paged| [paged.pages, paged.page])
    }

    /// How K lies in memory; from one page to the next where it lies in pages, not from batch to batch.
    pub fn k_strides(&self) -> Strides {
        self.strides(self.hkv, self.pieces()[1], self.d)
    }

    /// How V lies in memory, as K does.
    pub fn v_strides(&self) -> Strides {
        self.strides(self.hkv, self.pieces()[1], self.dv)
    }

    /// How O lies in memory.
    pub fn o_strides(&self) -> Strides {
        self.strides(self.h, self.stretches()[1], self.dv)
    }

    /// Elements of Q.
    pub fn q_len(&self) -> usize {
        self.lse_len() * self.d as usize
    }

    /// Elements of K.
    pub fn k_len(&self) -> usize {
        (self.pieces().iter().product::<u64>() * self.hkv * self.d) as usize
    }

    /// Elements of V.
    pub fn v_len(&self) -> usize {
        (self.pieces().iter().product::<u64>() * self.hkv * self.dv) as usize
    }

    /// Elements of O.
    pub fn o_len(&self) -> usize {
        self.lse_len() * self.dv as usize
    }

    /// Log-sum-exps: one a query.
    pub fn lse_len(&self) -> usize {
        (self.stretches().iter().product::<u64>() * self.h) as usize
    }

    /// The shape of log-sum-exps.
    pub(crate) fn lse_shape(&self) -> Vec<u64> {
        let [stretches, rows] = self.stretches();
        [stretches, self.h, rows][usize::from(self.packed.is_some())..].to_vec()
    }

    /// How log-sum-exps lie.
    pub fn lse_strides(&self) -> Strides {
        let rows = self.stretches()[1] as usize;
        Strides { batch: if self.packed.is_some() { 0 } else { self.h as usize * rows }, head: rows, row: 1 }
    }

    /// Elements of the mask; none without one.
    pub fn mask_len(&self) -> usize {
        let one = if self.mask == Mask::None { 0 } else { self.mask_sides().iter().product() };
        (self.masks().iter().product::<u64>() * one) as usize
    }

    /// The type of the mask's elements.
    pub fn mask_dtype(&self) -> DType {
        if matches!(self.mask, Mask::Bool | Mask::Tiles(_)) { DType::Bool } else { self.dtype }
    }

    /// Bytes of the mask that somebody looks at for certain.
    pub(crate) fn mask_bytes(&self) -> f64 {
        let pairs = self.masks().iter().product::<u64>() as f64 * self.pairs() as f64;
        match self.mask {
            Mask::None => 0.0,
            _ if self.is_uneven() => 0.0,
            // A byte for a thousand pairs and more.
            Mask::Tiles(_) => 0.0,
            Mask::Add | Mask::Bool => pairs * self.mask_dtype().bytes() as f64,
        }
    }
}
