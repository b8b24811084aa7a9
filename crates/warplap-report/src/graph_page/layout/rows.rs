//! Boxes in rows: sizes and who reads whom come in; each box below everything that it reads, and the ways between them,
//! go out.
//!
//! A row is as far down as the longest path to it. A way over several rows has a narrow place of its own in each of them,
//! shared by all ways from the same value. Ways bend between rows only.

use std::collections::BTreeMap;

use super::Rect;
use super::{columns, order};

/// Room that a way needs in a row.
const THIN: f64 = 8.0;

/// What a gap between rows grows by, and may grow to, for a way that goes far to a side: flat curves are hard to follow.
const LEAN: f64 = 0.06;
const WIDEST: f64 = 30.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) size: (f64, f64),
    pub(super) pin: Option<Pin>,
}

/// A row that an item is held in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pin {
    First,
    Last,
    /// The first row, in front of all others.
    Name,
}

/// One item reads another; the way leaves and enters so far from their left sides. Ways of one trunk carry one value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) out: f64,
    pub(super) into: f64,
    pub(super) trunk: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) rects: Vec<Rect>,
    pub(super) ways: Vec<Vec<(f64, f64)>>,
    pub(super) size: (f64, f64),
}

/// A place in a row: an item's, or that of a way that goes on.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) item: Option<usize>,
    pub(super) wide: f64,
    pub(super) left: f64,
    pub(super) is_name: bool,
    /// Whether it is a box that is seen, not a port or a way.
    pub(super) is_box: bool,
    pub(super) above: Vec<Join>,
    pub(super) below: Vec<Join>,
}

/// A neighbour in the next row, and where the way between them meets this cell and that one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Join {
    pub(super) cell: usize,
    pub(super) here: f64,
    pub(super) there: f64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Grid {
    pub(super) cells: Vec<Cell>,
    pub(super) rows: Vec<Vec<usize>>,
}

impl Grid {
    fn cell(&mut self, row: usize, item: Option<usize>, wide: f64) -> usize {
        let (above, below) = (Vec::new(), Vec::new());
        self.cells.push(Cell { item, wide, left: 0.0, is_name: false, is_box: false, above, below });
        self.rows[row].push(self.cells.len() - 1);
        self.cells.len() - 1
    }

    fn join(&mut self, above: usize, below: usize, out: f64, into: f64) {
        let (down, up) = (Join { cell: below, here: out, there: into }, Join { cell: above, here: into, there: out });
        let is_known = |join: &Join| join.cell == below && join.here == out && join.there == into;
        if !self.cells[above].below.iter().any(is_known) {
            self.cells[above].below.push(down);
            self.cells[below].above.push(up);
        }
    }
}

/// Places items in rows that are so far apart.
pub(super) fn place(items: &[Item], links: &[Link], apart: f64) -> Placed {
    let rows = rows(items, links);
    let mut grid = Grid { rows: vec![Vec::new(); rows.iter().max().map_or(0, |last| last + 1)], ..Grid::default() };
    // A name is the first one of its row.
    let (names, others): (Vec<usize>, _) = (0..items.len()).partition(|i| items[*i].pin == Some(Pin::Name));
    let mut of_item = vec![0; items.len()];
    for i in names.into_iter().chain(others) {
        of_item[i] = grid.cell(rows[i], Some(i), items[i].size.0);
        grid.cells[of_item[i]].is_name = items[i].pin == Some(Pin::Name);
        grid.cells[of_item[i]].is_box = items[i].pin.is_none();
    }
    let mut trunks: BTreeMap<(usize, usize, usize), usize> = BTreeMap::new();
    let mut through: Vec<Vec<usize>> = Vec::new();
    for link in links {
        let mut cells = Vec::new();
        let (mut last, mut out) = (of_item[link.from], link.out);
        for row in rows[link.from] + 1..rows[link.to] {
            let known = trunks.get(&(link.trunk, link.from, row)).copied();
            let cell = known.unwrap_or_else(|| grid.cell(row, None, THIN));
            trunks.insert((link.trunk, link.from, row), cell);
            grid.join(last, cell, out, THIN / 2.0);
            cells.push(cell);
            (last, out) = (cell, THIN / 2.0);
        }
        if rows[link.from] < rows[link.to] {
            grid.join(last, of_item[link.to], out, link.into);
        }
        through.push(cells);
    }
    order::order(&mut grid);
    columns::columns(&mut grid);
    drawn(items, links, &rows, &grid, &of_item, &through, apart)
}

/// The row of everyone: one below the lowest that it reads. One that reads nobody is just above its first reader.
fn rows(items: &[Item], links: &[Link]) -> Vec<usize> {
    let named = usize::from(items.iter().any(|item| item.pin == Some(Pin::Name)));
    let mut reads = vec![Vec::new(); items.len()];
    links.iter().for_each(|link| reads[link.to].push(link.from));
    let mut row: Vec<Option<usize>> = vec![None; items.len()];
    for _ in items {
        // Where all wait for each other the first one goes ahead: whatever is given is drawn.
        let open = || (0..items.len()).filter(|i| row[*i].is_none());
        let ready = open().find(|i| reads[*i].iter().all(|read| row[*read].is_some())).or_else(|| open().next());
        let Some(ready) = ready else { break };
        let below = reads[ready].iter().filter_map(|read| row[*read]).max().map_or(0, |above| above + 1);
        row[ready] = Some(if matches!(items[ready].pin, Some(Pin::First | Pin::Name)) { 0 } else { below.max(named) });
    }
    let mut row: Vec<usize> = row.into_iter().map(Option::unwrap_or_default).collect();
    let is_last = |i: &usize| items[*i].pin == Some(Pin::Last);
    let lowest = (0..items.len()).filter(|i| !is_last(i)).map(|i| row[i]).max().unwrap_or(0);
    for i in (0..items.len()).filter(is_last) {
        row[i] = lowest + 1;
    }
    for i in (0..items.len()).filter(|i| reads[*i].is_empty() && items[*i].pin.is_none()) {
        let first = links.iter().filter(|link| link.from == i).map(|link| row[link.to]).min();
        row[i] = first.map_or(row[i], |first| first.saturating_sub(1).max(row[i]));
    }
    row
}

/// Heights of rows, boxes in the middle of theirs, and ways as points from the one that is read.
fn drawn(
    items: &[Item],
    links: &[Link],
    rows: &[usize],
    grid: &Grid,
    of_item: &[usize],
    through: &[Vec<usize>],
    apart: f64,
) -> Placed {
    let high = |cell: &usize| grid.cells[*cell].item.map_or(0.0, |item| items[item].size.1);
    let mut bands = Vec::new();
    let mut y = 0.0;
    for (at, row) in grid.rows.iter().enumerate() {
        let end = y + row.iter().map(high).fold(0.0, f64::max);
        bands.push((y, end));
        let leans = row
            .iter()
            .map(|cell| &grid.cells[*cell])
            .flat_map(|cell| cell.below.iter().map(|j| (cell.left + j.here - grid.cells[j.cell].left - j.there).abs()));
        let lean = leans.fold(0.0, f64::max);
        // Straight lines into ports need no room.
        let is_flat = grid.rows.get(at + 1).is_some_and(|next| next.iter().all(|cell| high(cell) == 0.0));
        y = end + if is_flat && lean < 0.5 { 0.0 } else { apart + (LEAN * lean).min(WIDEST) };
    }
    let rect = |i: usize| {
        let (top, end) = bands[rows[i]];
        let (wide, high) = items[i].size;
        let down = if items[i].pin.is_some() { 0.0 } else { (end - top - high) / 2.0 };
        Rect { x: grid.cells[of_item[i]].left, y: top + down, wide, high }
    };
    let rects: Vec<Rect> = (0..items.len()).map(rect).collect();
    let way = |(link, cells): (&Link, &Vec<usize>)| {
        let (from, to) = (rects[link.from], rects[link.to]);
        let (start, end) = (from.x + link.out, to.x + link.into);
        let mut points = vec![(start, from.y + from.high)];
        if rows[link.from] < rows[link.to] {
            points.push((start, bands[rows[link.from]].1));
            for (row, cell) in (rows[link.from] + 1..).zip(cells) {
                let x = grid.cells[*cell].left + THIN / 2.0;
                points.extend([(x, bands[row].0), (x, bands[row].1)]);
            }
            points.push((end, bands[rows[link.to]].0));
        }
        points.push((end, to.y));
        points
    };
    let ways = links.iter().zip(through).map(way).collect();
    let wide = grid.cells.iter().map(|cell| cell.left + cell.wide).fold(0.0, f64::max);
    Placed { rects, ways, size: (wide, bands.last().map_or(0.0, |band| band.1)) }
}
