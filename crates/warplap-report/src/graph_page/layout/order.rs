//! The order of a row: cells go by the median of what they read, then of who reads them, back and forth; the order with
//! the fewest crossings stays.

use super::rows::{Cell, Grid, Join};

/// Sweeps over all rows at the most.
const SWEEPS: usize = 12;

pub(super) fn order(grid: &mut Grid) {
    let mut best = (crossings(grid), grid.rows.clone());
    for sweep in 0..SWEEPS {
        if best.0 == 0 && sweep > 0 {
            break;
        }
        let is_down = sweep % 2 == 0;
        let count = grid.rows.len();
        for step in 0..count {
            sort(grid, if is_down { step } else { count - 1 - step }, is_down);
        }
        let now = crossings(grid);
        if now < best.0 {
            best = (now, grid.rows.clone());
        }
    }
    grid.rows = best.1;
}

/// Sorts a row by the medians of the row above, or below.
fn sort(grid: &mut Grid, row: usize, is_down: bool) {
    let next = if is_down { row.checked_sub(1) } else { Some(row + 1).filter(|next| *next < grid.rows.len()) };
    let Some(next) = next else { return };
    let places = places(grid, next);
    let median = |(now, cell): (usize, &usize)| {
        let cell = &grid.cells[*cell];
        let mut all: Vec<f64> = joins(cell, is_down).iter().map(|join| at(grid, &places, join)).collect();
        all.sort_by(f64::total_cmp);
        match all.len() {
            _ if cell.is_name => -1.0,
            0 => now as f64,
            n => (all[(n - 1) / 2] + all[n / 2]) / 2.0,
        }
    };
    let mut keyed: Vec<(f64, usize)> = grid.rows[row].iter().enumerate().map(|pair| (median(pair), *pair.1)).collect();
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
    grid.rows[row] = keyed.into_iter().map(|(_, cell)| cell).collect();
}

fn joins(cell: &Cell, is_down: bool) -> &[Join] {
    if is_down { &cell.above } else { &cell.below }
}

/// Where a join meets the other row: its cell's place, and how far along that cell.
fn at(grid: &Grid, places: &[(usize, f64)], join: &Join) -> f64 {
    let result = places.binary_search_by_key(&join.cell, |(cell, _)| *cell).map_or(0.0, |i| places[i].1);
    result + join.there / grid.cells[join.cell].wide.max(1.0)
}

/// Places of a row's cells in it, by cell.
fn places(grid: &Grid, row: usize) -> Vec<(usize, f64)> {
    let mut places: Vec<(usize, f64)> = grid.rows[row].iter().enumerate().map(|(at, c)| (*c, at as f64)).collect();
    places.sort_by_key(|(cell, _)| *cell);
    places
}

/// How many pairs of ways cross.
fn crossings(grid: &Grid) -> usize {
    let mut count = 0;
    for (row, cells) in grid.rows.iter().enumerate().take(grid.rows.len().saturating_sub(1)) {
        let places = places(grid, row + 1);
        let mut ends = Vec::new();
        for cell in cells {
            let cell = &grid.cells[*cell];
            let mut from: Vec<(f64, f64)> = cell.below.iter().map(|j| (j.here, at(grid, &places, j))).collect();
            from.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
            ends.extend(from.into_iter().map(|(_, end)| end));
        }
        count += inversions(&mut ends);
    }
    count
}

/// How many pairs stand in the wrong order; sorts them.
fn inversions(ends: &mut [f64]) -> usize {
    if ends.len() < 2 {
        return 0;
    }
    let middle = ends.len() / 2;
    let (left, right) = ends.split_at_mut(middle);
    let mut count = inversions(left) + inversions(right);
    let (mut i, mut j) = (0, 0);
    let mut merged = Vec::with_capacity(left.len() + right.len());
    while i < left.len() || j < right.len() {
        if j == right.len() || (i < left.len() && left[i] <= right[j]) {
            merged.push(left[i]);
            i += 1;
        } else {
            merged.push(right[j]);
            j += 1;
            count += left.len() - i;
        }
    }
    ends.copy_from_slice(&merged);
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_in_the_wrong_order_are_counted() {
        assert_eq!(inversions(&mut [1.0, 2.0, 3.0]), 0);
        assert_eq!(inversions(&mut [3.0, 2.0, 1.0]), 3);
        assert_eq!(inversions(&mut [2.0, 2.0, 1.0, 4.0]), 2);
    }
}
