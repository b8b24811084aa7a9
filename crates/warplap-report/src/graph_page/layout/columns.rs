//! Where cells stand in their rows: each wants to be in line with its neighbours above and below, in the row's order and
//! without touching anyone.

use super::rows::{Cell, Grid, Join};

/// Sweeps over all rows.
const SWEEPS: usize = 24;

/// Room between boxes, and beside ways.
const BOXES: f64 = 20.0;
const WAYS: f64 = 10.0;

/// A way over many rows is straight before anything else is.
const STRAIGHT: f64 = 8.0;

pub(super) fn columns(grid: &mut Grid) {
    for row in 0..grid.rows.len() {
        let spacings = distances(grid, row);
        let wide: f64 = spacings.iter().sum();
        let mut left = -wide / 2.0;
        for (cell, gap) in grid.rows[row].iter().zip(spacings) {
            grid.cells[*cell].left = left;
            left += gap;
        }
    }
    let count = grid.rows.len();
    for sweep in 0..SWEEPS {
        let is_down = sweep % 2 == 0;
        let is_end = sweep + 16 >= SWEEPS;
        for step in 0..count {
            let row = if is_down { step } else { count - 1 - step };
            let wants: Vec<(f64, f64)> = grid.rows[row]
                .iter()
                .map(|cell| {
                    let cell = &grid.cells[*cell];
                    let above = if is_down || is_end { &cell.above[..] } else { &[] };
                    let below = if !is_down || is_end { &cell.below[..] } else { &[] };
                    wanted(grid, cell, above.iter().chain(below))
                })
                .collect();
            let lefts = spread(&wants, &distances(grid, row));
            for (cell, left) in grid.rows[row].iter().zip(lefts) {
                grid.cells[*cell].left = left;
            }
        }
    }
    straighten(grid);
    let first = grid.cells.iter().map(|cell| cell.left).fold(f64::INFINITY, f64::min);
    grid.cells.iter_mut().for_each(|cell| cell.left -= first);
    // Nobody stands in front of a name.
    grid.cells.iter_mut().filter(|cell| cell.is_name).for_each(|cell| cell.left = 0.0);
}

/// Ways over several rows become as straight as their neighbours let them: bends are only where a box is in the way.
fn straighten(grid: &mut Grid) {
    let spacings: Vec<Vec<f64>> = (0..grid.rows.len()).map(|row| distances(grid, row)).collect();
    let mut place = vec![(0, 0); grid.cells.len()];
    for (row, cells) in grid.rows.iter().enumerate() {
        cells.iter().enumerate().for_each(|(at, cell)| place[*cell] = (row, at));
    }
    // How far left and right a cell may go.
    let room = |grid: &Grid, cell: usize| {
        let (row, at) = place[cell];
        let left = |at: usize| grid.rows[row].get(at).map(|cell| grid.cells[*cell].left);
        let low = at.checked_sub(1).and_then(|at| Some(left(at)? + spacings[row][at]));
        (low.unwrap_or(f64::NEG_INFINITY), left(at + 1).map_or(f64::INFINITY, |next| next - spacings[row][at]))
    };
    for way in ways(grid) {
        let mut rest = &way[..];
        while let [first, more @ ..] = rest {
            let (mut low, mut high) = room(grid, *first);
            let fits = more.iter().take_while(|cell| {
                let (a, b) = room(grid, **cell);
                let both = (low.max(a), high.min(b));
                if both.0 <= both.1 {
                    (low, high) = both;
                }
                both.0 <= both.1
            });
            let (run, after) = rest.split_at(1 + fits.count());
            let last = &grid.cells[run[run.len() - 1]];
            let ends = grid.cells[*first].above.iter().chain(&last.below);
            let mut wants = ends.map(|join| grid.cells[join.cell].left + join.there - join.here);
            let mean = run.iter().map(|cell| grid.cells[*cell].left).sum::<f64>() / run.len() as f64;
            let left = wants.find(|want| (low..=high).contains(want)).unwrap_or(mean.max(low).min(high));
            run.iter().for_each(|cell| grid.cells[*cell].left = left);
            rest = after;
        }
    }
}

/// The cells of every way that is longer than a row.
fn ways(grid: &Grid) -> Vec<Vec<usize>> {
    let is_way = |join: &&Join| grid.cells[join.cell].item.is_none();
    let starts = |i: &usize| grid.cells[*i].item.is_none() && !grid.cells[*i].above.iter().any(|j| is_way(&j));
    let follow = |start: usize| {
        let next = |cell: &usize| grid.cells[*cell].below.iter().find(is_way).map(|join| join.cell);
        std::iter::successors(Some(start), next).collect()
    };
    (0..grid.cells.len()).filter(starts).map(follow).collect()
}

/// From everyone's left side to the next one's.
fn distances(grid: &Grid, row: usize) -> Vec<f64> {
    let cells = &grid.rows[row];
    let is_box = |i: usize| cells.get(i).is_some_and(|cell| grid.cells[*cell].is_box);
    let gap = |i: usize| grid.cells[cells[i]].wide + if is_box(i) && is_box(i + 1) { BOXES } else { WAYS };
    (0..cells.len()).map(gap).collect()
}

/// Where a cell's left side should be by these neighbours, and how much that weighs.
fn wanted<'a>(grid: &Grid, cell: &Cell, joins: impl Iterator<Item = &'a Join>) -> (f64, f64) {
    let (mut sum, mut weight) = (0.0, 0.0);
    for join in joins {
        let other = &grid.cells[join.cell];
        let is_way = cell.item.is_none() as u8 + other.item.is_none() as u8;
        let heavy = [1.0, STRAIGHT / 4.0, STRAIGHT][usize::from(is_way)];
        sum += heavy * (other.left + join.there - join.here);
        weight += heavy;
    }
    if weight > 0.0 { (sum / weight, weight) } else { (cell.left, 0.05) }
}

/// The places nearest to what everyone wants, in this order and at least so far from each other.
fn spread(wants: &[(f64, f64)], spacings: &[f64]) -> Vec<f64> {
    // Without the gaps between them places only have to grow: neighbours that would not are one block at their mean.
    let mut blocks: Vec<(f64, f64, usize)> = Vec::new();
    let mut before = 0.0;
    for ((want, weight), gap) in wants.iter().zip(spacings) {
        blocks.push((weight * (want - before), *weight, 1));
        before += gap;
        while let [.., a, b] = blocks[..]
            && a.0 / a.1 > b.0 / b.1
        {
            blocks.truncate(blocks.len() - 2);
            blocks.push((a.0 + b.0, a.1 + b.1, a.2 + b.2));
        }
    }
    let places = blocks.iter().flat_map(|block| std::iter::repeat_n(block.0 / block.1, block.2));
    let mut before = 0.0;
    let mut lefts = Vec::with_capacity(wants.len());
    for (place, gap) in places.zip(spacings) {
        lefts.push(place + before);
        before += gap;
    }
    lefts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_the_same_place_stands_around_it() {
        let places = spread(&[(10.0, 1.0), (10.0, 1.0)], &[4.0, 4.0]);
        assert_eq!(places, [8.0, 12.0]);
        assert_eq!(spread(&[(0.0, 1.0), (50.0, 1.0)], &[4.0, 4.0]), [0.0, 50.0], "nobody is in the way");
        let heavy = spread(&[(10.0, 3.0), (10.0, 1.0)], &[4.0, 4.0]);
        assert_eq!(heavy, [9.0, 13.0], "who weighs more moves less");
    }
}
