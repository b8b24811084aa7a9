//! Where blocks lie. A problem's counts and a seed come in; row pointers and column indices with exactly those counts
//! go out.

use warplap_core::declare::words;

use std::collections::BTreeSet;

words! {
    /// How the blocks of a drawn matrix lie.
    #[derive(Default)]
    pub enum Pattern {
        /// Each row's columns are drawn evenly.
        #[default]
        Uniform = "uniform",
        /// A band along the diagonal.
        Banded = "banded",
        /// Groups of rows that share their columns.
        Blockdiag = "blockdiag",
        /// A few columns are in nearly every row, most in few.
        Powerlaw = "powerlaw",
        /// On and below the diagonal only, as in causal attention.
        Causal = "causal",
        /// The columns up to the diagonal, as many as a row has blocks: causal attention over a sliding window.
        Window = "window",
    }
}

impl Pattern {
    /// Whether rows end at the diagonal.
    fn is_causal(self) -> bool {
        matches!(self, Pattern::Causal | Pattern::Window)
    }

    /// Columns that a row may use: the first so many.
    fn reach(self, row: usize, rows: usize, columns: usize) -> usize {
        if self.is_causal() { ((row + 1) * columns).div_ceil(rows) } else { columns }
    }

    /// The most blocks there can be when no row has more than `row_max`.
    pub(super) fn room(self, rows: usize, columns: usize, row_max: usize) -> usize {
        (0..rows).map(|row| self.reach(row, rows, columns).min(row_max)).sum()
    }

    /// Blocks of the fullest row when each row takes the same share of the columns it may use.
    pub(super) fn even_max(self, rows: usize, columns: usize, nnz: usize) -> usize {
        let room = self.room(rows, columns, columns);
        let even = ((nnz as u128 * columns as u128).div_ceil(room.max(1) as u128)) as usize;
        even.min(nnz).min(columns)
    }
}

/// The counts a drawn matrix shall have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) nnz: usize,
    pub(super) row_max: usize,
}

/// Row pointers and column indices of a matrix with these counts.
pub(super) fn draw(pattern: Pattern, counts: Counts, rng: &mut fastrand::Rng) -> (Vec<i32>, Vec<i32>) {
    let blocks = row_counts(pattern, counts, rng);
    let mut row_ptr = vec![0];
    let mut col_idx = Vec::with_capacity(counts.nnz);
    for (row, count) in blocks.into_iter().enumerate() {
        col_idx.extend(row_columns(pattern, counts, row, count, rng).into_iter().map(|c| c as i32));
        row_ptr.push(col_idx.len() as i32);
    }
    (row_ptr, col_idx)
}

/// How many blocks each row has: one row has `row_max`, the others fall off by rank so that all sum to `nnz`.
fn row_counts(pattern: Pattern, c: Counts, rng: &mut fastrand::Rng) -> Vec<usize> {
    let room = |row| pattern.reach(row, c.rows, c.columns).min(c.row_max);
    let mut order: Vec<usize> = (0..c.rows).rev().collect();
    if !pattern.is_causal() {
        rng.shuffle(&mut order);
    }
    let even = c.row_max <= pattern.even_max(c.rows, c.columns, c.nnz);
    let fall = if even { 0.0 } else { steepness(c.rows, c.row_max as f64 * c.rows as f64 / c.nnz as f64) };
    let weights: Vec<f64> = (order.iter().enumerate())
        .map(|(rank, row)| ((rank + 1) as f64).powf(-fall) * pattern.reach(*row, c.rows, c.columns) as f64)
        .collect();
    let scale = c.nnz as f64 / weights.iter().sum::<f64>();
    let mut counts = vec![0; c.rows];
    for (row, weight) in order.iter().zip(&weights) {
        counts[*row] = room(*row).min((weight * scale) as usize);
    }
    counts[order[0]] = c.row_max;
    // Rounding, full rows and the one row that was set leave a rest: hand it out, or take it back from the last ranks.
    let mut sum: usize = counts.iter().sum();
    while sum < c.nnz {
        let share = ((c.nnz - sum) / c.rows).max(1);
        let before = sum;
        for row in &order {
            let more = share.min(room(*row) - counts[*row]).min(c.nnz - sum);
            counts[*row] += more;
            sum += more;
        }
        if sum == before {
            break;
        }
    }
    while sum > c.nnz {
        let before = sum;
        for row in order[1..].iter().rev() {
            if sum > c.nnz && counts[*row] > 0 {
                counts[*row] -= 1;
                sum -= 1;
            }
        }
        if sum == before {
            break;
        }
    }
    counts
}

/// The exponent at which the first of `rows` ranks weighs `imbalance` times the mean.
fn steepness(rows: usize, imbalance: f64) -> f64 {
    let (mut low, mut high) = (0.0, 16.0);
    for _ in 0..30 {
        let middle = (low + high) / 2.0;
        let mean = (1..=rows).map(|rank| (rank as f64).powf(-middle)).sum::<f64>() / rows as f64;
        if 1.0 / mean < imbalance { low = middle } else { high = middle }
    }
    low
}

fn row_columns(pattern: Pattern, c: Counts, row: usize, count: usize, rng: &mut fastrand::Rng) -> Vec<usize> {
    let window = |start: usize| (start.min(c.columns - count)..).take(count).collect();
    match pattern {
        Pattern::Uniform => sample(c.columns, count, rng),
        Pattern::Banded => window((row * c.columns / c.rows).saturating_sub(count / 2)),
        Pattern::Blockdiag => {
            let width = c.nnz.div_ceil(c.rows).max(1);
            let groups = (c.columns / width).max(1);
            window(row * groups / c.rows * width)
        }
        Pattern::Powerlaw => popular(c.columns, count, rng),
        Pattern::Window => (pattern.reach(row, c.rows, c.columns) - count..).take(count).collect(),
        Pattern::Causal => {
            let diagonal = pattern.reach(row, c.rows, c.columns) - 1;
            let mut columns = sample(diagonal, count.saturating_sub(1), rng);
            columns.extend((count > 0).then_some(diagonal));
            columns
        }
    }
}

/// `count` of the first `columns` numbers, each subset as likely as the other, in order (Knuth's S, Floyd's F2).
fn sample(columns: usize, count: usize, rng: &mut fastrand::Rng) -> Vec<usize> {
    if 8 * count > columns {
        let mut left = count;
        let taken = |c: &usize| {
            let take = rng.usize(..columns - c) < left;
            left -= usize::from(take);
            take
        };
        return (0..columns).filter(taken).collect();
    }
    let mut chosen = BTreeSet::new();
    for last in columns - count..columns {
        if !chosen.insert(rng.usize(..=last)) {
            chosen.insert(last);
        }
    }
    chosen.into_iter().collect()
}

/// `count` columns, low ones far more often than high ones.
fn popular(columns: usize, count: usize, rng: &mut fastrand::Rng) -> Vec<usize> {
    let mut chosen = BTreeSet::new();
    for _ in 0..8 * count {
        if chosen.len() < count {
            chosen.insert(((rng.f64().powi(3) * columns as f64) as usize).min(columns - 1));
        }
    }
    for column in 0..columns {
        if chosen.len() < count {
            chosen.insert(column);
        }
    }
    chosen.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bsr::{Bsr, BsrProblem, validate};
    use warplap_core::op::Op;

    fn drawn(p: &BsrProblem, seed: u64) -> (Vec<i32>, Vec<i32>) {
        let counts = Counts { rows: p.rows(), columns: p.columns(), nnz: p.nnz as usize, row_max: p.row_max as usize };
        draw(p.pattern, counts, &mut fastrand::Rng::with_seed(seed))
    }

    #[test]
    fn every_pattern_hits_density_and_imbalance_exactly_and_is_valid() {
        for pattern in Pattern::ALL {
            for (m, k, bs) in [(2048, 2048, 64), (512, 2048, 32), (2048, 256, 16), (8, 8, 8), (64, 1024, 64)] {
                for density in [0.0, 0.01, 0.125, 0.4, 0.77, 1.0] {
                    for imbalance in ["", ",imbalance=1", ",imbalance=2", ",imbalance=3.3", ",imbalance=7"] {
                        let text = format!("m={m},k={k},n=4,bs={bs},density={density},pattern={pattern}{imbalance}");
                        let Ok(p) = Bsr::parse(&text) else { continue };
                        for seed in 0..3 {
                            let (rows, columns) = drawn(&p, seed);
                            assert_eq!(validate(&rows, &columns, p.values_len(), &p), Ok(()), "{text}");
                            let fullest = rows.windows(2).map(|r| r[1] - r[0]).max();
                            assert_eq!(fullest, Some(p.row_max as i32), "{text}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_matrix_and_another_seed_another() {
        let p = Bsr::parse("m=1024,k=1024,n=4,bs=32,density=0.2").unwrap();
        assert_eq!(drawn(&p, 1), drawn(&p, 1));
        assert_ne!(drawn(&p, 1), drawn(&p, 2));
    }

    #[test]
    fn patterns_lie_where_they_say() {
        let p = |pattern| Bsr::parse(&format!("m=1024,k=1024,n=4,bs=32,density=0.125,pattern={pattern}")).unwrap();
        let distance = |pattern| {
            let (rows, columns) = drawn(&p(pattern), 5);
            (0..32usize)
                .flat_map(|r| columns[rows[r] as usize..rows[r + 1] as usize].iter().map(move |c| r as i32 - c))
                .map(|d| d.clamp(-32, 32))
                .collect::<Vec<_>>()
        };
        assert!(distance("banded").iter().all(|d| d.abs() <= 4));
        assert!(distance("blockdiag").iter().all(|d| d.abs() < 4));
        assert!(distance("causal").iter().all(|d| *d >= 0));
        // As wide for a late row as its share of the columns before it asks for, and without gaps.
        assert!(distance("window").iter().all(|d| (0..9).contains(d)));
        let low = drawn(&p("powerlaw"), 5).1.iter().filter(|c| **c < 8).count();
        assert!(low > drawn(&p("uniform"), 5).1.iter().filter(|c| **c < 8).count() * 3 / 2, "{low}");
    }
}
