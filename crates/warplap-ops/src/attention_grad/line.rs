//! One query of one head in double precision: products with keys and values come in; weights and gradients of scores go
//! out.

use std::ops::Range;

use crate::attention::ScoreMod;
use crate::philox::Drops;

/// What a query needs to weigh its keys.
pub(crate) struct Line<'a> {
    /// What becomes of products.
    pub(crate) score_mod: ScoreMod,
    /// The keys that it sees.
    pub(crate) keys: Range<usize>,
    /// Its log-sum-exp.
    pub(crate) lse: f64,
    /// The sum of dO ∘ O.
    pub(crate) delta: f64,
    /// What distances are multiplied with.
    pub(crate) lean: f64,
    /// What is added, key by key.
    pub(crate) mask: Option<&'a [f64]>,
    /// Which weights were dropped, where some were.
    pub(crate) drops: Option<Drops>,
    /// Its number.
    pub(crate) row: usize,
}

/// What follows for one key.
pub(crate) struct Pair {
    /// The weight, before anything is dropped.
    pub(crate) weight: f64,
    /// What it was multiplied with afterwards.
    pub(crate) kept: f64,
    /// The gradient of the score: of all that is added behind a cap.
    pub(crate) slope: f64,
    /// How steeply the score grows with the scaled product.
    pub(crate) steep: f64,
}

impl Line<'_> {
    /// Of the products of q and k, and of dO and v.
    pub(crate) fn pair(&self, key: usize, product: f64, dp: f64) -> Pair {
        let added = self.mask.map_or(0.0, |m| m[key]);
        let (score, steep) = self.score_mod.score(product, self.lean, added, self.row, key);
        let hidden = !self.keys.contains(&key) || self.lse == f64::NEG_INFINITY;
        let weight = if hidden { 0.0 } else { (score - self.lse).exp() };
        let kept = self.drops.map_or(1.0, |drops| f64::from(drops.factor(self.row, key)));
        Pair { weight, kept, slope: weight * (dp * kept - self.delta), steep }
    }
}
