//! How many rows each expert of a drawn problem has.

use warplap_core::declare::words;

words! {
    /// How unevenly rows are dealt out to experts.
    #[derive(Default)]
    pub enum Spread {
        /// As 1, 1/2, 1/3 and so on of the busiest expert's rows: what routers of real models come near.
        #[default]
        Skewed = "skewed",
        /// All experts have as many, give or take one.
        Even = "even",
        /// One expert has them all.
        One = "one",
    }
}

impl Spread {
    /// Rows of each expert, the busiest first: they add up to `rows`.
    pub fn counts(self, rows: u64, experts: u64) -> Vec<u64> {
        match self {
            Spread::Even => (0..experts).map(|i| rows / experts + u64::from(i < rows % experts)).collect(),
            Spread::One => (0..experts).map(|i| if i == 0 { rows } else { 0 }).collect(),
            Spread::Skewed => skewed(rows, experts),
        }
    }
}

/// Shares of 1/rank, rounded down; what is left over goes to whoever lost most by it, the busier first.
fn skewed(rows: u64, experts: u64) -> Vec<u64> {
    let harmonic: f64 = (1..=experts).map(|rank| 1.0 / rank as f64).sum();
    let shares: Vec<f64> = (1..=experts).map(|rank| rows as f64 / (harmonic * rank as f64)).collect();
    let mut counts: Vec<u64> = shares.iter().map(|share| share.floor() as u64).collect();
    let mut losers: Vec<usize> = (0..shares.len()).collect();
    losers.sort_by(|a, b| shares[*b].fract().total_cmp(&shares[*a].fract()).then(a.cmp(b)));
    // Sums of rounded shares may be over by one, never by as many as there are experts.
    let left = rows.saturating_sub(counts.iter().sum());
    losers.into_iter().cycle().take(left as usize).for_each(|loser| counts[loser] += 1);
    let over = counts.iter().sum::<u64>().saturating_sub(rows);
    counts[0] -= over.min(counts[0]);
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_the_busiest_comes_first() {
        for spread in Spread::ALL {
            for (rows, experts) in [(1, 1), (1, 8), (7, 8), (16, 32), (100, 3), (4096, 128), (131_072, 128), (5, 1024)]
            {
                let counts = spread.counts(rows, experts);
                assert_eq!((counts.iter().sum::<u64>(), counts.len() as u64), (rows, experts), "{spread}");
                assert!(counts.is_sorted_by(|a, b| a >= b), "{spread}: {counts:?}");
            }
        }
    }

    #[test]
    fn skewed_counts_fall_as_one_over_the_rank() {
        assert_eq!(Spread::Skewed.counts(1100, 3), [600, 300, 200]);
        let counts = Spread::Skewed.counts(32_768, 128);
        assert!((counts[0] as f64 / counts[63] as f64 - 64.0).abs() < 1.0, "{counts:?}");
        // Of few rows most experts have none.
        assert!(Spread::Skewed.counts(16, 32).iter().filter(|count| **count > 0).count() <= 12);
        assert_eq!(Spread::Even.counts(7, 3), [3, 2, 2]);
        assert_eq!(Spread::One.counts(7, 3), [7, 0, 0]);
    }
}
