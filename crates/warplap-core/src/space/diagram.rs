//! The legal configs of a space as a decision diagram: counting, the config of an index and the index of a config, all
//! without a list.
//!
//! Axes are set one after the other. Two beginnings that leave the same continuations share one node, so independent
//! groups of axes multiply instead of repeating, and 10⁸ configs may need a thousand nodes.

use std::collections::HashMap;

use super::program::{Program, Setting};
use super::{Space, SpaceError, order};

/// Edges that may be made before a space is called too entangled: some 2 GB.
const MOST_EDGES: usize = 40_000_000;

/// The node behind the last axis.
pub(super) const END: u32 = 0;
const DEAD: u32 = u32::MAX;

/// One value of a node's axis that leads somewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) value: u16,
    pub(super) child: u32,
    /// Configs of the same node behind smaller values.
    before: u128,
}

#[derive(Clone, Copy, Debug)]
struct DiagramSpan {
    first: u32,
    edges: u16,
    count: u128,
}

/// All legal configs. A point is one config as value numbers, by the space's axes.
#[derive(Debug)]
pub struct Diagram {
    /// The axes that have a choice, outermost first.
    pub(super) order: Vec<usize>,
    /// Values of each axis of the space.
    pub(super) sizes: Vec<usize>,
    nodes: Vec<DiagramSpan>,
    edges: Vec<Edge>,
    root: u32,
}

impl Diagram {
    /// Finds the legal configs of a space by propagation.
    pub(super) fn new(space: &Space) -> Result<Diagram, SpaceError> {
        let order = order::order(space);
        let program = Program::new(space, space.rules(), &order);
        let levels = order.len();
        let mut grower = Grower {
            space,
            diagram: Diagram::empty(space, order),
            registers: program.registers.clone(),
            picks: vec![0; space.axes().len()],
            seen: (0..levels).map(|_| HashMap::default()).collect(),
            scratch: Vec::new(),
            key: Vec::new(),
            program,
        };
        let setting = Setting { space, picks: &grower.picks };
        let possible = space.axes().iter().all(|a| !a.values().is_empty());
        if possible && grower.program.run(0, &mut grower.registers, &setting, space.rules()) {
            grower.diagram.root = grower.grow(0)?;
        }
        Ok(grower.diagram)
    }

    fn empty(space: &Space, order: Vec<usize>) -> Diagram {
        let end = DiagramSpan { first: 0, edges: 0, count: 1 };
        let sizes = space.axes().iter().map(|a| a.values().len()).collect();
        Diagram { order, sizes, nodes: vec![end], edges: Vec::new(), root: DEAD }
    }

    /// The diagram of exactly these points, in any order.
    pub(super) fn of_points(space: &Space, points: &[Vec<u16>]) -> Result<Diagram, SpaceError> {
        let order: Vec<usize> = (0..space.axes().len()).filter(|a| space.axes()[*a].values().len() > 1).collect();
        let mut diagram = Diagram::empty(space, order);
        let mut sorted: Vec<&Vec<u16>> = points.iter().collect();
        sorted.sort_unstable_by(|a, b| diagram.order.iter().map(|i| a[*i]).cmp(diagram.order.iter().map(|i| b[*i])));
        sorted.dedup();
        let mut known = HashMap::new();
        if !sorted.is_empty() {
            diagram.root = diagram.trie(&sorted, 0, &mut known)?;
        }
        Ok(diagram)
    }

    fn trie(
        &mut self,
        points: &[&Vec<u16>],
        level: usize,
        known: &mut HashMap<Vec<(u16, u32)>, u32>,
    ) -> Result<u32, SpaceError> {
        let Some(axis) = self.order.get(level).copied() else { return Ok(END) };
        let mut edges = Vec::new();
        for run in points.chunk_by(|a, b| a[axis] == b[axis]) {
            edges.push((run[0][axis], self.trie(run, level + 1, known)?));
        }
        if let Some(node) = known.get(&edges) {
            return Ok(*node);
        }
        let node = self.add(edges.iter().copied())?;
        known.insert(edges, node);
        Ok(node)
    }

    fn add(&mut self, edges: impl IntoIterator<Item = (u16, u32)>) -> Result<u32, SpaceError> {
        let first = self.edges.len();
        let mut count = 0u128;
        for (value, child) in edges {
            self.edges.push(Edge { value, child, before: count });
            count = count.checked_add(self.nodes[child as usize].count).ok_or(SpaceError::TooLarge)?;
        }
        if self.edges.len() > MOST_EDGES {
            return Err(SpaceError::TooEntangled);
        }
        let edges = (self.edges.len() - first) as u16;
        self.nodes.push(DiagramSpan { first: first as u32, edges, count });
        Ok((self.nodes.len() - 1) as u32)
    }

    /// How many configs are legal.
    pub fn count(&self) -> u128 {
        if self.root == DEAD { 0 } else { self.nodes[self.root as usize].count }
    }

    /// Nodes it is made of.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn root(&self) -> Option<u32> {
        (self.root != DEAD).then_some(self.root)
    }

    pub(super) fn edges(&self, node: u32) -> &[Edge] {
        let span = &self.nodes[node as usize];
        &self.edges[span.first as usize..span.first as usize + usize::from(span.edges)]
    }

    pub(super) fn configs_behind(&self, node: u32) -> u128 {
        self.nodes[node as usize].count
    }

    /// The point with this index; `None` when the index is not below the count.
    pub fn point(&self, index: u128) -> Option<Vec<u16>> {
        if index >= self.count() {
            return None;
        }
        let (mut node, mut rest, mut point) = (self.root, index, vec![0; self.sizes.len()]);
        for axis in &self.order {
            let edges = self.edges(node);
            let edge = &edges[edges.partition_point(|e| e.before <= rest) - 1];
            rest -= edge.before;
            point[*axis] = edge.value;
            node = edge.child;
        }
        Some(point)
    }

    /// The index of a point; `None` when it is not legal.
    pub fn index(&self, point: &[u16]) -> Option<u128> {
        if self.root == DEAD || point.len() != self.sizes.len() {
            return None;
        }
        let (mut node, mut index) = (self.root, 0);
        let mut seen = 0;
        for axis in &self.order {
            let (edges, value) = (self.edges(node), point[*axis]);
            let edge = match edges.len() == self.sizes[*axis] {
                true => edges.get(usize::from(value))?,
                false => &edges[edges.binary_search_by_key(&value, |e| e.value).ok()?],
            };
            index += edge.before;
            node = edge.child;
            seen += usize::from(value != 0);
        }
        // Axes with one value have the number 0.
        (point.iter().filter(|v| **v != 0).count() == seen).then_some(index)
    }
}

struct Grower<'s> {
    space: &'s Space,
    diagram: Diagram,
    program: Program,
    registers: Vec<super::expr::Num>,
    picks: Vec<u16>,
    /// By level: nodes by what later levels read.
    seen: Vec<HashMap<Box<[u64]>, u32, foldhash::fast::FixedState>>,
    scratch: Vec<(u16, u32)>,
    key: Vec<u64>,
}

impl Grower<'_> {
    fn grow(&mut self, level: usize) -> Result<u32, SpaceError> {
        if level == self.diagram.order.len() {
            return Ok(END);
        }
        self.read_key(level);
        if let Some(node) = self.seen[level].get(self.key.as_slice()) {
            return Ok(*node);
        }
        let key: Box<[u64]> = self.key.as_slice().into();
        let axis = self.diagram.order[level];
        let start = self.scratch.len();
        for value in 0..self.program.values[axis].len() {
            self.registers[axis] = self.program.values[axis][value];
            self.picks[axis] = value as u16;
            let setting = Setting { space: self.space, picks: &self.picks };
            if !self.program.run(level + 1, &mut self.registers, &setting, self.space.rules()) {
                continue;
            }
            let child = self.grow(level + 1)?;
            if child != DEAD {
                self.scratch.push((value as u16, child));
            }
        }
        let node = match self.scratch.len() == start {
            true => DEAD,
            false => {
                let diagram = &mut self.diagram;
                diagram.add(self.scratch.drain(start..))?
            }
        };
        self.seen[level].insert(key, node);
        Ok(node)
    }

    /// What later levels read, word by word; kinds are packed 32 to a word behind.
    fn read_key(&mut self, level: usize) {
        self.key.clear();
        let live = &self.program.live[level];
        self.key.extend(live.iter().map(|r| self.registers[*r as usize].bits()));
        for some in live.chunks(32) {
            let kinds = some.iter().fold(0u64, |k, r| k << 2 | u64::from(self.registers[*r as usize].kind()));
            self.key.push(kinds);
        }
    }
}
