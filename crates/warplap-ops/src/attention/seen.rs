//! What there is to do for an attention request: pairs of a query and a key that it sees.

use super::AttentionProblem;
use super::keys::{Paged, lengths};
use super::sight::{Corner, Sight};

impl AttentionProblem {
    /// Pairs of a query and a key it sees, in one head of a batch that has all keys.
    pub fn pairs(&self) -> u64 {
        if self.window.is_some() || self.corner == Corner::Bottom {
            return self.pairs_of(self.sk);
        }
        if !self.causal {
            return self.sq * self.sk;
        }
        let corner = self.sq.min(self.sk);
        corner * (corner + 1) / 2 + (self.sq - corner) * self.sk
    }

    /// The same of a batch that has the first of the keys.
    fn pairs_of(&self, keys: u64) -> u64 {
        let sight = Sight::of(self, keys);
        (0..self.sq as usize).map(|i| sight.of_query(i).len() as u64).sum()
    }

    /// Pairs of a query and a key it sees, in one head of each batch, and keys that somebody looks at, both summed over
    /// batches as they are drawn. What a page that nobody has hides is taken off: at most its own keys.
    pub(super) fn seen(&self) -> [f64; 2] {
        // Nobody looks at the keys before the first query's or behind the last one's.
        let keys = |sight: Sight| sight.of_query(self.sq as usize - 1).end.saturating_sub(sight.of_query(0).start);
        let all = match self.lengths {
            false => [self.b as f64 * self.pairs() as f64, self.b as f64 * keys(self.sight()) as f64],
            true => lengths(self).fold([0.0; 2], |[pairs, seen], n| {
                [pairs + self.pairs_of(n) as f64, seen + keys(self.sight_of(n as usize)) as f64]
            }),
        };
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
