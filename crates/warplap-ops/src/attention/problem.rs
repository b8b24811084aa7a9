//! The facts of one attention request.

use warplap_core::dtype::DType;

use super::keys::{Paged, lengths, usual_pages};
use super::mask::Mask;
use super::memory::Order;
use super::op::usual_scale;
use super::packed::{Packed, sequences};
use super::sight::{Corner, Over, Sight};

/// The facts of O = softmax(scale · Q·Kᵀ + mask) · V, head by head.
///
/// `causal` is torch's `is_causal`: query i sees keys 0 … i (the lower triangle from the top left corner), also where
/// `sq` and `sk` differ, unless `corner=bottom` moves the diagonal to the last query and key. A query that sees no key
/// gets a row of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionProblem {
    /// Batch: sequences.
    pub b: u64,
    /// Heads of Q and O.
    pub h: u64,
    /// Heads of K and V; query head `i` reads head `i / (h / hkv)`.
    pub hkv: u64,
    /// Queries; of the longest sequence where they are packed.
    pub sq: u64,
    /// Keys; of the longest sequence where they are packed.
    pub sk: u64,
    /// Elements of one query and one key.
    pub d: u64,
    /// Elements of one value and one output row.
    pub dv: u64,
    /// Type of all buffers; scores, softmax and sums are kept in f32.
    pub dtype: DType,
    /// Whether query i sees keys 0 … i only.
    pub causal: bool,
    /// What is added to the scaled scores.
    pub mask: Mask,
    /// The bits of the f32 that scores are multiplied with.
    scale: u32,
    /// Order of the dimensions of Q, K, V and O.
    pub layout: Order,
    /// Whether the log-sum-exps of the scores are written too: what the backward pass begins with.
    pub lse: bool,
    /// How far the keys a query sees are from its own place at the most.
    pub window: Option<u64>,
    /// Where the diagonal begins.
    pub corner: Corner,
    /// The bits of the f32 that scores stay below by its tanh; none is zero.
    softcap: u32,
    /// Whether each head's slope times the distance of a key is taken from scores (ALiBi).
    pub alibi: bool,
    /// Who has a mask of its own.
    pub over: Over,
    /// The bits of the f32 share of weights that are dropped.
    dropout: u32,
    /// Whether each batch says how many of the keys it has.
    pub lengths: bool,
    /// Where K and V are pools of pages, and each batch names its own.
    pub paged: Option<Paged>,
    /// Where sequences lie one behind the other, and offsets say where each begins.
    pub packed: Option<Packed>,
}

impl AttentionProblem {
    /// Attention with one size of head, no mask and scale 1/√d.
    pub fn new(b: u64, h: u64, sq: u64, sk: u64, d: u64, dtype: DType) -> Self {
        AttentionProblem {
            b,
            h,
            hkv: h,
            sq,
            sk,
            d,
            dv: d,
            dtype,
            causal: false,
            mask: Mask::None,
            scale: usual_scale(d).to_bits(),
            layout: Order::Bhsd,
            lse: false,
            window: None,
            corner: Corner::Top,
            softcap: 0,
            alibi: false,
            over: Over::All,
            dropout: 0,
            lengths: false,
            paged: None,
            packed: None,
        }
    }

    /// What scores are multiplied with.
    pub fn scale(&self) -> f32 {
        f32::from_bits(self.scale)
    }

    /// The same problem with another scale.
    pub fn with_scale(mut self, scale: f32) -> Self {
        self.scale = scale.to_bits();
        self
    }

    /// What scores stay below, where there is something.
    pub fn softcap(&self) -> Option<f32> {
        (self.softcap != 0).then(|| f32::from_bits(self.softcap))
    }

    /// The same problem with scores that stay below a number.
    pub fn with_softcap(mut self, cap: f32) -> Self {
        self.softcap = cap.to_bits();
        self
    }

    /// The share of weights that are dropped; what is kept grows by as much as is missing.
    pub fn dropout(&self) -> f32 {
        f32::from_bits(self.dropout)
    }

    /// The same problem with another share; `None` where it is not from 0 to below 1.
    pub fn with_dropout(mut self, share: f32) -> Option<Self> {
        self.dropout = (share + 0.0).to_bits();
        (0.0..1.0).contains(&share).then_some(self)
    }

    /// What queries see, where a batch has all keys.
    pub fn sight(&self) -> Sight {
        Sight::of(self, self.sq, self.sk)
    }

    /// What queries see in a batch that has the first of the queries and keys: the last corner is at the last of these.
    pub fn sight_of(&self, queries: usize, keys: usize) -> Sight {
        Sight::of(self, queries as u64, keys as u64)
    }

    /// Whether keys lie in pages, or each batch has a number of its own.
    pub fn is_uneven(&self) -> bool {
        self.lengths || self.paged.is_some() || self.packed.is_some()
    }

    /// Page numbers of one batch.
    pub fn entries(&self) -> u64 {
        self.paged.map_or(0, |paged| self.sk.div_ceil(paged.page))
    }

    /// So many pages that every batch has its own, and a few that nobody names.
    pub(super) fn usual_pages(&self) -> u64 {
        usual_pages(self.b, self.entries())
    }

    /// The same problem with pools no larger than its batches need, and squares of a share that many have.
    pub(super) fn as_raced(mut self) -> Self {
        if let Mask::Tiles(tiles) = self.mask {
            self.mask = Mask::Tiles(tiles.rounded());
        }
        if let Some(Paged { page, pages }) = self.paged {
            self.paged = Some(Paged { page, pages: pages.min(self.usual_pages()) });
        }
        self
    }

    /// Whether scores are more than products with a scale and something added.
    pub fn has_score_mod(&self) -> bool {
        self.softcap != 0 || self.alibi || matches!(self.mask, Mask::Bool | Mask::Tiles(_))
    }

    /// Whether some query may see nothing, by its place alone.
    pub fn may_see_nothing(&self) -> bool {
        let (first, last) = (self.sight().of_query(0), self.sight().of_query(self.sq as usize - 1));
        first.is_empty() || last.is_empty() || self.is_uneven()
    }

    /// Pairs of a query and a key it sees, in one head of a batch that has all keys.
    pub fn pairs(&self) -> u64 {
        if self.window.is_some() || self.corner == Corner::Bottom {
            return self.pairs_of([self.sq, self.sk]);
        }
        if !self.causal {
            return self.sq * self.sk;
        }
        let corner = self.sq.min(self.sk);
        corner * (corner + 1) / 2 + (self.sq - corner) * self.sk
    }

    /// The same of a batch that has the first of the queries and keys.
    fn pairs_of(&self, [queries, keys]: [u64; 2]) -> u64 {
        let sight = Sight::of(self, queries, keys);
        (0..queries as usize).map(|i| sight.of_query(i).len() as u64).sum()
    }

    /// Pairs of a query and a key it sees, in one head of each batch, and keys that somebody looks at, both summed over
    /// batches as they are drawn. What a page that nobody has hides is taken off: at most its own keys.
    pub(crate) fn seen(&self) -> [f64; 2] {
        // Nobody looks at the keys before the first query's or behind the last one's.
        let share = self.mask.tiles().map_or(1.0, |tiles| tiles.share(self));
        let keys = |[queries, keys]: [u64; 2]| {
            let sight = Sight::of(self, queries, keys);
            let end = queries.checked_sub(1).map_or(0, |last| sight.of_query(last as usize).end);
            end.saturating_sub(sight.of_query(0).start)
        };
        let sum = |[pairs, seen]: [f64; 2], n| [pairs + self.pairs_of(n) as f64, seen + keys(n) as f64];
        let all = match (self.packed, self.lengths) {
            (Some(packed), _) => sequences(self, packed).into_iter().fold([0.0; 2], sum),
            (None, true) => lengths(self).map(|n| [self.sq, n]).fold([0.0; 2], sum),
            (None, false) => [self.pairs() as f64, keys([self.sq, self.sk]) as f64].map(|one| self.b as f64 * one),
        };
        // Keys in squares that nobody looks at are not brought either.
        let all = all.map(|n| n * share);
        match self.paged {
            Some(Paged { page, pages }) => {
                let hidden = if self.b * self.entries() > 1 { page } else { 0 };
                let pairs = (all[0] - (hidden * self.sq) as f64).max(0.0);
                // Where there are fewer pages than entries, batches share them.
                [pairs, (all[1] - hidden as f64).clamp(0.0, (pages * page) as f64)]
            }
            None => all,
        }
    }
}
