//! Where everything of a graph lies: nodes with the sizes of their texts come in; boxes of nodes and of covers, and the
//! ways of edges, go out.
//!
//! A cover is laid out by itself first, with a port at its edge for everything that goes in or out, and is one box in the
//! graph around it. So boxes never overlap, and edges run between boxes.

mod columns;
mod order;
mod rows;

use std::collections::{BTreeMap, BTreeSet};

use super::Decided;
use rows::{Item, Link, Pin, Placed};

/// Room around what is in a cover, and around everything.
const PAD: f64 = 10.0;

/// Rows in a cover are nearer to each other than rows outside.
const INSIDE: f64 = 16.0;
const OUTSIDE: f64 = 26.0;

/// A port's width: room for a line.
const PORT: f64 = 8.0;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rect {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) wide: f64,
    pub(super) high: f64,
}

/// An edge: who reads whom, and its way from the one that is read.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) points: Vec<(f64, f64)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    pub(super) nodes: Vec<Rect>,
    /// A cover without nodes has none.
    pub(super) covers: Vec<Option<Rect>>,
    pub(super) edges: Vec<Edge>,
    pub(super) size: (f64, f64),
}

/// What is inside of a cover, with its ports by the node that goes through them.
struct Inside {
    nodes: Vec<usize>,
    placed: Placed,
    /// Edges inside, as (read, reader), in the order of the placed ways. One outside is a port's.
    ways: BTreeMap<(usize, usize), usize>,
    ins: BTreeMap<usize, f64>,
    outs: BTreeMap<usize, (f64, usize)>,
}

impl Inside {
    fn size(&self) -> (f64, f64) {
        (self.placed.size.0 + 2.0 * PAD, self.placed.size.1 + 1.5 * PAD)
    }
}

/// A part of the graph around the covers.
enum Part {
    Node(usize),
    Cover(usize),
}

/// Places a graph whose nodes and whose covers' names need so much room.
pub(super) fn layout(graph: &Decided, sizes: &[(f64, f64)], names: &[(f64, f64)]) -> Layout {
    let all: Vec<(usize, usize)> =
        (0..graph.nodes.len()).flat_map(|to| graph.reads(to).into_iter().map(move |from| (from, to))).collect();
    let inside: Vec<Inside> = (0..names.len()).map(|c| inside(graph, c, &all, sizes, names[c])).collect();
    let mut parts = Vec::new();
    let mut part = vec![0; graph.nodes.len()];
    let mut of_cover = vec![None; names.len()];
    for (node, at) in part.iter_mut().enumerate() {
        let new = parts.len();
        *at = match graph.cover(node) {
            Some(cover) => *of_cover[cover].get_or_insert(new),
            None => new,
        };
        if *at == new {
            parts.push(graph.cover(node).map_or(Part::Node(node), Part::Cover));
        }
    }
    let items: Vec<Item> = (parts.iter())
        .map(|part| match part {
            Part::Node(node) => Item { size: sizes[*node], pin: None },
            Part::Cover(cover) => Item { size: inside[*cover].size(), pin: None },
        })
        .collect();
    let mut links: Vec<Link> = Vec::new();
    let mut way: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for (from, to) in all.iter().filter(|(from, to)| part[*from] != part[*to]) {
        let out = match parts[part[*from]] {
            Part::Node(node) => sizes[node].0 / 2.0,
            Part::Cover(cover) => PAD + inside[cover].outs[from].0,
        };
        let into = match parts[part[*to]] {
            Part::Node(node) => sizes[node].0 / 2.0,
            Part::Cover(cover) => PAD + inside[cover].ins[from],
        };
        way.entry((*from, part[*to])).or_insert_with(|| {
            links.push(Link { from: part[*from], to: part[*to], out, into, trunk: *from });
            links.len() - 1
        });
    }
    let outer = rows::place(&items, &links, OUTSIDE);
    let mut result = Layout {
        nodes: vec![Rect::default(); graph.nodes.len()],
        covers: of_cover.iter().map(|part| part.map(|part| moved(outer.rects[part]))).collect(),
        edges: Vec::new(),
        size: (outer.size.0 + 2.0 * PAD, outer.size.1 + 2.0 * PAD),
    };
    let corner = |cover: usize| {
        let rect = result.covers[cover].unwrap_or_default();
        (rect.x + PAD, rect.y + PAD / 2.0)
    };
    let corners: Vec<(f64, f64)> = (0..names.len()).map(corner).collect();
    for (at, part) in parts.iter().enumerate() {
        match part {
            Part::Node(node) => result.nodes[*node] = moved(outer.rects[at]),
            Part::Cover(cover) => {
                for (node, rect) in inside[*cover].nodes.iter().zip(&inside[*cover].placed.rects) {
                    let (x, y) = corners[*cover];
                    result.nodes[*node] = Rect { x: rect.x + x, y: rect.y + y, ..*rect };
                }
            }
        }
    }
    for (from, to) in &all {
        let within = |cover: usize, way: usize| -> Vec<(f64, f64)> {
            let (x, y) = corners[cover];
            inside[cover].placed.ways[way].iter().map(|point| (point.0 + x, point.1 + y)).collect()
        };
        let mut points = Vec::new();
        let (a, b) = (graph.cover(*from), graph.cover(*to));
        if a.is_none() || a != b {
            if let Some(cover) = a {
                points.extend(within(cover, inside[cover].outs[from].1));
            }
            points.extend(outer.ways[way[&(*from, part[*to])]].iter().map(|(x, y)| (x + PAD, y + PAD)));
        }
        if let Some(cover) = b {
            points.extend(within(cover, inside[cover].ways[&(*from, *to)]));
        }
        result.edges.push(Edge { from: *from, to: *to, points });
    }
    result
}

fn moved(rect: Rect) -> Rect {
    Rect { x: rect.x + PAD, y: rect.y + PAD, ..rect }
}

/// Lays a cover out: its name and the ports of what it reads on top, the ports of what others read at the bottom.
fn inside(graph: &Decided, cover: usize, all: &[(usize, usize)], sizes: &[(f64, f64)], name: (f64, f64)) -> Inside {
    let is_in = |node: usize| graph.cover(node) == Some(cover);
    let nodes: Vec<usize> = (0..graph.nodes.len()).filter(|node| is_in(*node)).collect();
    let place: BTreeMap<usize, usize> = nodes.iter().enumerate().map(|(at, node)| (*node, at)).collect();
    let read: BTreeSet<usize> = all.iter().filter(|(from, to)| !is_in(*from) && is_in(*to)).map(|e| e.0).collect();
    let inputs: BTreeSet<usize> = all.iter().filter(|(from, to)| is_in(*from) && !is_in(*to)).map(|e| e.0).collect();
    let mut items: Vec<Item> = nodes.iter().map(|node| Item { size: sizes[*node], pin: None }).collect();
    let mut ports = |all: &BTreeSet<usize>, pin: Pin| -> BTreeMap<usize, usize> {
        let first = items.len();
        items.extend(all.iter().map(|_| Item { size: (PORT, 0.0), pin: Some(pin) }));
        all.iter().enumerate().map(|(at, node)| (*node, first + at)).collect()
    };
    let (ins, outs) = (ports(&read, Pin::First), ports(&inputs, Pin::Last));
    items.push(Item { size: name, pin: Some(Pin::Name) });
    let middle = |item: usize| items[item].size.0 / 2.0;
    let mut links = Vec::new();
    let mut ways = BTreeMap::new();
    for (from, to) in all.iter().filter(|(_, to)| is_in(*to)) {
        let (above, below) = (place.get(from).copied().unwrap_or_else(|| ins[from]), place[to]);
        ways.insert((*from, *to), links.len());
        links.push(Link { from: above, to: below, out: middle(above), into: middle(below), trunk: *from });
    }
    let first = links.len();
    for node in &inputs {
        let (above, below) = (place[node], outs[node]);
        links.push(Link { from: above, to: below, out: middle(above), into: middle(below), trunk: *node });
    }
    let placed = rows::place(&items, &links, INSIDE);
    let x = |item: &usize| placed.rects[*item].x + PORT / 2.0;
    let ins = ins.iter().map(|(node, item)| (*node, x(item))).collect();
    let outs = outs.iter().enumerate().map(|(at, (node, item))| (*node, (x(item), first + at))).collect();
    Inside { nodes, placed, ways, ins, outs }
}
