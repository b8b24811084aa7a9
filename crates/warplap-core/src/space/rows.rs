//! All legal configs as a table of value numbers, one column an axis: the list for those who want all of it.

use super::diagram::{Diagram, END};

/// Value numbers of one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Column {
    Bytes(Vec<u8>),
    Shorts(Vec<u16>),
    /// An axis with one value.
    Fixed,
}

impl Column {
    fn fill(&mut self, value: u16, rows: usize) {
        match self {
            Column::Bytes(c) => c.resize(c.len() + rows, value as u8),
            Column::Shorts(c) => c.resize(c.len() + rows, value),
            Column::Fixed => {}
        }
    }

    fn repeat(&mut self, start: usize, rows: usize) {
        match self {
            Column::Bytes(c) => c.extend_from_within(start..start + rows),
            Column::Shorts(c) => c.extend_from_within(start..start + rows),
            Column::Fixed => {}
        }
    }

    fn get(&self, row: usize) -> u16 {
        match self {
            Column::Bytes(c) => u16::from(c[row]),
            Column::Shorts(c) => c[row],
            Column::Fixed => 0,
        }
    }
}

/// Every legal config; row `i` is the point with index `i`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    columns: Vec<Column>,
    len: usize,
}

impl Rows {
    /// Lists a diagram; `None` when it holds more configs than memory can.
    pub(super) fn of(diagram: &Diagram) -> Option<Rows> {
        let len = usize::try_from(diagram.count()).ok().filter(|n| *n <= isize::MAX as usize / 2)?;
        let column = |size: &usize| match size {
            0 | 1 => Column::Fixed,
            2..=256 => Column::Bytes(Vec::with_capacity(len)),
            _ => Column::Shorts(Vec::with_capacity(len)),
        };
        let mut writer = Writer {
            diagram,
            columns: diagram.order.iter().map(|axis| column(&diagram.sizes[*axis])).collect(),
            written: vec![usize::MAX; diagram.nodes()],
            rows: vec![0; diagram.order.len() + 1],
        };
        if let Some(root) = diagram.root() {
            writer.node(root, 0);
        }
        let mut columns = vec![Column::Fixed; diagram.sizes.len()];
        for (axis, column) in diagram.order.iter().zip(writer.columns) {
            columns[*axis] = column;
        }
        Some(Rows { columns, len })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is legal.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value number of an axis in a row.
    pub fn get(&self, row: usize, axis: usize) -> u16 {
        self.columns[axis].get(row)
    }

    /// One row as a point.
    pub fn point(&self, row: usize) -> Vec<u16> {
        self.columns.iter().map(|c| c.get(row)).collect()
    }
}

struct Writer<'d> {
    diagram: &'d Diagram,
    columns: Vec<Column>,
    /// By node: the first row it was written at.
    written: Vec<usize>,
    /// By level: rows written so far.
    rows: Vec<usize>,
}

impl Writer<'_> {
    fn node(&mut self, node: u32, level: usize) {
        let start = self.rows[level];
        let earlier = self.written[node as usize];
        if earlier != usize::MAX {
            // Written before: the block is copied, column by column.
            let rows = self.diagram.configs_behind(node) as usize;
            for (column, written) in self.columns[level..].iter_mut().zip(&mut self.rows[level..]) {
                column.repeat(earlier, rows);
                *written += rows;
            }
            return;
        }
        self.written[node as usize] = start;
        let diagram = self.diagram;
        for edge in diagram.edges(node) {
            let rows = match edge.child {
                END => 1,
                child => {
                    self.node(child, level + 1);
                    diagram.configs_behind(child) as usize
                }
            };
            self.columns[level].fill(edge.value, rows);
            self.rows[level] += rows;
        }
    }
}
