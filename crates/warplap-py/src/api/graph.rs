//! Partitions of a traced graph: nodes and covers come in as plain numbers; the choices worth racing go out. And who is
//! told by other sizes, and the page that draws what was decided.

use std::collections::BTreeMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use warplap::graph::partition::{Cover, Graph, Size};
use warplap::report::graph_page::Page;

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
            return Err(PyValueError::new_err(what));
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

/// The page about decided graphs, which come as JSON.
#[pyfunction]
pub(crate) fn graphs_page(json: &str) -> PyResult<String> {
    let page: Page = serde_json::from_str(json).map_err(|why| PyValueError::new_err(format!("graphs: {why}")))?;
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
