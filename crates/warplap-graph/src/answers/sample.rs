//! Some rows of a graph that computes every row by itself: a smaller graph of the same nodes comes out, and for each
//! value which rows of it that graph has.

use warplap_core::array::Array;

use crate::node::{Node, Value, What};
use crate::plan::Plan;

/// Elements of every output that a sample has at the least.
const ELEMENTS: u64 = 1 << 18;

/// Rows that it has at the least.
const ROWS: u64 = 64;

/// How many times fewer rows than the graph it has at the least: else it is not worth having.
const FEWER: u64 = 4;

pub(crate) struct Sample {
    /// The graph of these rows.
    pub(crate) plan: Plan,
    rows: Vec<usize>,
    /// For each value the elements of its rows; nothing where it is the same for all rows.
    by_row: Vec<Option<usize>>,
}

impl Sample {
    /// Rows of a graph, spread over all of it with the first and the last among them; `None` where rows are not by
    /// themselves, or not many more than are needed.
    pub(crate) fn of(plan: &Plan) -> Option<Sample> {
        let all = plan.nodes.first()?.rows;
        let narrowest = plan.outputs.iter().map(|(_, value)| plan.values[*value].len as u64 / all.max(1)).min()?;
        let count = ROWS.max(ELEMENTS.div_ceil(narrowest.max(1)));
        if count.checked_mul(FEWER)? > all {
            return None;
        }
        let by_row = by_row(plan, all)?;
        let values = plan.values.iter().zip(&by_row);
        let values = values.map(|(value, of)| Value { len: of.map_or(value.len, |n| n * count as usize), ..*value });
        let nodes = plan.nodes.iter().map(|node| smaller(node, count)).collect();
        let plan = Plan::new(values.collect(), plan.inputs.clone(), nodes, plan.outputs.clone(), &[]);
        let mut rng = fastrand::Rng::with_seed(7);
        // One of each of as many equal stretches.
        let stretch = |i: u64| (i * all / count)..((i + 1) * all / count);
        let mut rows: Vec<usize> = (0..count).map(|i| rng.u64(stretch(i)) as usize).collect();
        (rows[0], rows[count as usize - 1]) = (0, all as usize - 1);
        Some(Sample { plan, rows, by_row })
    }

    /// Leaves of a value in double precision what the smaller graph has of it.
    pub(crate) fn gather(&self, value: usize, array: &mut Array) {
        if let (Array::F64(all), Some(_)) = (&*array, self.by_row[value]) {
            // What is there no more has no rows.
            *array = if all.is_empty() { Array::none() } else { Array::F64(self.rows_of(value, all)) };
        }
    }

    /// The rows of a value.
    pub(crate) fn rows_of(&self, value: usize, all: &[f64]) -> Vec<f64> {
        let Some(n) = self.by_row[value] else { return all.to_vec() };
        self.rows.iter().flat_map(|row| &all[row * n..][..n]).copied().collect()
    }

    /// How many times larger the largest of all errors is than that of these rows: as the root of the logarithm of how
    /// many there are, if they are spread as errors of sums are.
    pub(crate) fn grown(&self, all: &Plan, value: usize) -> f64 {
        let log = |plan: &Plan| (plan.values[value].len.max(3) as f64).ln();
        (log(all) / log(&self.plan)).sqrt()
    }
}

fn smaller(node: &Node, rows: u64) -> Node {
    let what = match node.what {
        What::Softmax(mut p) => {
            p.mask = if p.mask > 0 { rows } else { 0 };
            p.rows = rows;
            What::Softmax(p)
        }
        other => other,
    };
    Node { what, rows, ..node.clone() }
}

/// For each value the elements of a row, where it has rows; `None` where a node makes one row of several.
fn by_row(plan: &Plan, rows: u64) -> Option<Vec<Option<usize>>> {
    let (mut has, mut whole) = (vec![false; plan.values.len()], vec![false; plan.values.len()]);
    for node in &plan.nodes {
        let count = match node.what {
            What::Product { .. } | What::Norm { .. } => 1,
            What::Element { .. } => node.reads.len(),
            What::Softmax(p) if p.mask == 0 || (p.mask == rows && p.each == 1) => node.reads.len(),
            _ => return None,
        };
        if node.rows != rows {
            return None;
        }
        node.reads[..count].iter().chain(&node.outputs).for_each(|value| has[*value] = true);
        node.reads[count..].iter().for_each(|value| whole[*value] = true);
    }
    if has.iter().zip(&whole).any(|(has, whole)| *has && *whole) {
        return None;
    }
    Some(has.iter().zip(&plan.values).map(|(has, value)| has.then(|| value.len / rows as usize)).collect())
}
