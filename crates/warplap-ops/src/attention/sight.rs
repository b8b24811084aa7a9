//! What a query sees and what becomes of its scores: a problem comes in; ranges of keys and bent scores go out.

use warplap_core::declare::words;

use std::ops::Range;

use super::AttentionProblem;

words! {
    /// Where the diagonal of causal problems, windows and distances begins, where there are more keys than queries or fewer.
    #[derive(Default)]
    pub enum Corner {
        /// The first query is beside the first key.
        #[default]
        Top = "top",
        /// The last query is beside the last key: keys before the queries are their past.
        Bottom = "bottom",
    }
}

words! {
    /// Who has a mask of its own.
    #[derive(Default)]
    pub enum Over {
        /// One mask for all.
        #[default]
        All = "all",
        /// One a head, the same for every batch.
        Heads = "heads",
        /// One a batch, the same for every head.
        Batches = "batches",
        /// One a head of every batch.
        Each = "each",
    }
}

/// Query i sees key j where `lower` <= j - i <= `upper`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// The furthest key before, counted from the query's number.
    pub lower: i64,
    /// The furthest key behind.
    pub upper: i64,
    /// What is added to a query's number to have that of the key beside it.
    pub shift: i64,
    /// Keys.
    pub keys: usize,
}

/// Further than any key.
const FAR: i64 = 1 << 40;

impl Sight {
    pub(super) fn of(p: &AttentionProblem, queries: u64, keys: u64) -> Self {
        let shift = if p.corner == Corner::Bottom { keys as i64 - queries as i64 } else { 0 };
        let wide = p.window.map_or(FAR, |w| w as i64);
        let upper = if p.causal { shift } else { shift + wide };
        Sight { lower: shift - wide, upper, shift, keys: keys as usize }
    }

    /// The keys that a query sees.
    pub fn of_query(&self, query: usize) -> Range<usize> {
        let place = |at: i64| at.clamp(0, self.keys as i64) as usize;
        let (begin, end) = (place(query as i64 + self.lower), place(query as i64 + self.upper + 1));
        begin.min(end)..end
    }

    /// The queries of so many that see some of these keys.
    pub fn of_keys(&self, keys: Range<usize>, queries: usize) -> Range<usize> {
        let place = |at: i64| at.clamp(0, queries as i64) as usize;
        let (begin, end) = (place(keys.start as i64 - self.upper), place(keys.end as i64 - self.lower));
        begin.min(end)..end
    }

    /// How far a key is from a query's own place.
    pub fn distance(&self, query: usize, key: usize) -> u64 {
        (query as i64 + self.shift).abs_diff(key as i64)
    }
}

/// What becomes of the product of a query and a key, in double precision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScoreMod {
    scale: f64,
    cap: Option<f64>,
    sight: Sight,
}

impl ScoreMod {
    /// Of a batch that sees so far.
    pub(crate) fn with(p: &AttentionProblem, sight: Sight) -> Self {
        ScoreMod { scale: f64::from(p.scale()), cap: p.softcap().map(f64::from), sight }
    }

    /// The score and how steeply it grows with the scaled product.
    pub(crate) fn score(&self, product: f64, slope: f64, added: f64, query: usize, key: usize) -> (f64, f64) {
        let scaled = product * self.scale;
        let (capped_score, steep) = match self.cap {
            None => (scaled, 1.0),
            Some(cap) => {
                let tanh = (scaled / cap).tanh();
                (cap * tanh, 1.0 - tanh * tanh)
            }
        };
        (capped_score - slope * self.sight.distance(query, key) as f64 + added, steep)
    }
}

/// The slopes of ALiBi's paper for so many heads: powers of a half.
pub(crate) fn usual_slopes(heads: u64) -> impl Iterator<Item = f64> {
    (1..=heads).map(move |i| (-8.0 * i as f64 / heads as f64).exp2())
}

#[cfg(test)]
mod tests {
    use super::super::Attention;
    use super::*;
    use warplap_core::op::Op;

    #[test]
    fn ranges_are_what_pairs_say_one_by_one() {
        for text in [
            "sq=5,sk=9",
            "sq=5,sk=9,causal=true",
            "sq=5,sk=9,causal=true,corner=bottom",
            "sq=9,sk=5,causal=true,corner=bottom",
            "sq=9,sk=4,window=2",
            "sq=9,sk=4,window=2,causal=true",
            "sq=4,sk=11,window=3,corner=bottom",
            "sq=7,sk=7,window=1,causal=true,corner=bottom",
        ] {
            let p = Attention::parse(&format!("h=1,d=1,{text}")).unwrap();
            let sees = |i: usize, j: usize| {
                let own = i as i64 + if p.corner == Corner::Bottom { p.sk as i64 - p.sq as i64 } else { 0 };
                let away = j as i64 - own;
                !(p.causal && away > 0) && p.window.is_none_or(|w| away.unsigned_abs() <= w)
            };
            let (sq, sk) = (p.sq as usize, p.sk as usize);
            let mut pairs = 0;
            for i in 0..sq {
                let keys: Vec<usize> = p.sight().of_query(i).collect();
                assert_eq!(keys, (0..sk).filter(|j| sees(i, *j)).collect::<Vec<_>>(), "{text}: query {i}");
                pairs += keys.len() as u64;
            }
            assert_eq!(p.pairs(), pairs, "{text}");
            for j in 0..sk {
                let queries: Vec<usize> = p.sight().of_keys(j..j + 1, sq).collect();
                assert_eq!(queries, (0..sq).filter(|i| sees(*i, j)).collect::<Vec<_>>(), "{text}: key {j}");
            }
        }
    }
}
