//! Partitions of a traced graph: nodes and covers come in as plain numbers; the choices worth racing go out. And who is
//! told by other sizes, and the page that draws what was decided.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use warplap::graph::fusion_patterns::{Does, FusionMatch, Launch, LaunchKind, Look, Second, Step};
use warplap::graph::partition::{Cover, Graph, Size};
use warplap::report::graph_page::Page;

use crate::call::failure::bad;

/// A node: those it reads, what it takes by itself, and whether somebody outside reads it.
type Node = (Vec<usize>, f64, bool);

/// A cover: its kind, its nodes, those of them that it gives, and what it takes.
type CoverRow = (usize, Vec<usize>, Vec<usize>, f64);

/// A partition: the kinds it takes, its covers, and what its parts take together.
type Chosen = (Vec<usize>, Vec<usize>, f64);

/// The legal partitions, cheapest first.
#[pyfunction]
pub(crate) fn partitions(nodes: Vec<Node>, covers: Vec<CoverRow>, most: usize) -> PyResult<Vec<Chosen>> {
    let mut graph = Graph::default();
    for (inputs, alone, seen) in nodes {
        if let Some(later) = inputs.iter().find(|i| **i >= graph.len()) {
            let what = format!("nodes: number {} reads {later}, expected one before it", graph.len());
            return Err(bad(what));
        }
        graph.node(&inputs, alone, seen);
    }
    let cover = |(kind, nodes, outputs, seconds): CoverRow| Cover {
        kind,
        nodes: nodes.into_iter().collect(),
        outputs: outputs.into_iter().collect(),
        seconds,
    };
    let covers: Vec<Cover> = covers.into_iter().map(cover).collect();
    let answer = graph.partitions(&covers, most);
    Ok(answer.into_iter().map(|p| (p.kinds, p.covers, p.seconds)).collect())
}

/// A step: what it does, in a word and a number; the values it reads, by their places; numbers that stand for the columns
/// of what it gives and of what it reads first; and the steps that it stands for, too. It gives the value of its place.
type StepRow = (String, f64, Vec<Option<usize>>, u64, u64, Vec<usize>);

/// A match: its name, its steps, those of them that it gives, and its launches.
type MatchRow<'py> = (String, Vec<usize>, Vec<usize>, Vec<Bound<'py, PyDict>>);

/// Everything that may stand in for steps, for each of them what ends with it.
#[pyfunction]
pub(crate) fn fusion_matches<'py>(
    py: Python<'py>,
    steps: Vec<StepRow>,
    outputs: Vec<usize>,
) -> PyResult<Vec<Vec<MatchRow<'py>>>> {
    let step = |(at, (word, number, reads, columns, read_columns, includes)): (usize, StepRow)| {
        let does = Does::named(&word, number);
        let does = does.ok_or_else(|| bad(format!("steps: number {at} is {word:?}")))?;
        Ok(Step { does, reads, outputs: vec![at], columns, read_columns, includes })
    };
    let steps = steps.into_iter().enumerate().map(step).collect::<PyResult<Vec<Step>>>()?;
    let count = steps.len();
    let look = Look::new(steps, outputs);
    let row = |one: FusionMatch| {
        let launches = one.launches.iter().map(|launch| launch_row(py, launch)).collect::<PyResult<Vec<_>>>()?;
        Ok((one.name, one.steps.into_iter().collect(), one.outputs.into_iter().collect(), launches))
    };
    (0..count).map(|at| look.matches(at).into_iter().map(row).collect()).collect()
}

/// A dictionary of these.
macro_rules! dict {
    ($py:expr, $($name:ident: $value:expr),* $(,)?) => {{
        let dict = PyDict::new($py);
        $(dict.set_item(stringify!($name), $value)?;)*
        Ok(dict)
    }};
}

/// What a launch does and reads, by name.
fn launch_row<'py>(py: Python<'py>, launch: &Launch) -> PyResult<Bound<'py, PyDict>> {
    let gives = &launch.gives;
    match &launch.fused {
        LaunchKind::Product(of) => {
            let (second, half) = match of.second {
                None => (None, None),
                Some(Second::Weight(w)) => (Some(w), None),
                Some(Second::Half(half)) => (None, Some(half)),
            };
            let (join, other) = (of.joined.map(|(join, _)| join.name()), of.joined.map(|(_, other)| other));
            let (eps, gain) = (of.front.map(|front| front.eps), of.front.and_then(|front| front.gain));
            dict!(
                py, gives: gives, does: "product", x: of.x, w: of.w, bias: of.bias, act: named(of.act.name()),
                join: join, other: other, second: second, half: half, eps: eps, gain: gain,
            )
        }
        LaunchKind::Element { act, join, a, b } => {
            dict!(py, gives: gives, does: "element", a: a, b: b, act: named(act.name()), join: join.name())
        }
        LaunchKind::Norm(of) => dict!(
            py, gives: gives, does: "norm", x: of.x, residual: of.residual, weight: of.weight, bias: of.bias,
            kind: of.kind.name(), eps: of.eps, before: of.before, dropout: of.dropout, writes_sum: of.writes_sum,
        ),
        LaunchKind::Softmax { x, mask, scale } => {
            dict!(py, gives: gives, does: "softmax", x: x, mask: mask, scale: scale)
        }
        LaunchKind::Attention { qkv, mask, scale } => {
            dict!(py, gives: gives, does: "attention", qkv: qkv, mask: mask, scale: scale)
        }
        LaunchKind::Rope { first, bias } => {
            dict!(py, gives: gives, does: "rope", of: launch.of, first: first, bias: bias)
        }
        LaunchKind::ProjectedLoss { loss, x, w, bias } => {
            dict!(py, gives: gives, does: "projected_loss", loss: loss, x: x, w: w, bias: bias)
        }
    }
}

fn named(word: &str) -> Option<&str> {
    (word != "none").then_some(word)
}

/// The page about decided graphs, which come as JSON.
#[pyfunction]
pub(crate) fn graphs_page(json: &str) -> PyResult<String> {
    let page: Page = serde_json::from_str(json).map_err(|why| bad(format!("graphs: {why}")))?;
    Ok(page.markup())
}

/// Seconds by the names of choices: of their parts, and of all of them.
type Raced = (BTreeMap<String, f64>, BTreeMap<String, f64>);

/// Who is fastest, what everyone will take, how far off that may be, and from how many sizes it is told.
type Guessed = (String, BTreeMap<String, f64>, f64, usize);

/// Who of these choices is fastest by sizes that were raced, where they leave no doubt.
#[pyfunction]
pub(crate) fn guess(sizes: Vec<Raced>, parts: BTreeMap<String, f64>) -> Option<Guessed> {
    let sizes: Vec<Size> = sizes.into_iter().map(|(parts, wholes)| Size { parts, wholes }).collect();
    let answer = warplap::graph::partition::guess(&sizes, &parts)?;
    Some((answer.winner, answer.seconds, answer.off, answer.sizes))
}
