//! Building a graph: inputs, nodes and outputs come in, each checked where it is said; a graph that runs goes out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use warplap_core::dtype::DType;
use warplap_core::error::Error;

use crate::fused::Fused;
use crate::node::{Node, Tensor, Value, What, alone};
use crate::plan::Plan;
use crate::sized::{Template, fused};
use crate::task::{Ground, Tuners};

/// A graph that is being built. Its nodes are functions of it; what they give are [`Tensor`]s, row-major and without
/// padding.
pub struct Builder<D: Ground> {
    id: u64,
    tuners: Arc<Tuners<D>>,
    templates: Vec<Template>,
    tensors: Vec<Facts>,
    values: Vec<Value>,
    inputs: Vec<(String, usize)>,
    nodes: Vec<Node>,
    outputs: Vec<(String, Tensor)>,
}

/// What is known of a tensor.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) value: usize,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<u64>,
}

impl Facts {
    /// Its last size: the length of one row.
    pub(crate) fn n(&self) -> u64 {
        self.shape.last().copied().unwrap_or(1)
    }

    /// As it is named in messages.
    pub(crate) fn describe(&self) -> String {
        format!("{}{:?}", self.dtype, self.shape)
    }
}

/// What is wrong with one thing that a node reads.
pub(crate) fn wrong(node: &str, field: &str, reason: String) -> Error {
    Error::Argument { argument: format!("{node}, {field}"), reason }
}

/// Checks a shape.
pub(crate) fn same(node: &str, field: &str, result: &Facts, shape: &[u64], why: &str) -> Result<(), Error> {
    match result.shape == shape {
        true => Ok(()),
        false => Err(wrong(node, field, format!("is {}, expected {shape:?}, {why}", result.describe()))),
    }
}

impl<D: Ground> Builder<D> {
    /// A graph without nodes; its operations are tuned by these tuners.
    pub fn new(tuners: Tuners<D>) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Builder {
            id: COUNT.fetch_add(1, Ordering::Relaxed),
            tuners: Arc::new(tuners),
            templates: vec![fused],
            tensors: Vec::new(),
            values: Vec::new(),
            inputs: Vec::new(),
            nodes: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// An input of a name, which calls find it by.
    pub fn input(&mut self, name: &str, dtype: DType, shape: &[u64]) -> Tensor {
        let value = self.value(dtype, shape);
        self.inputs.push((name.to_string(), value));
        self.tensor(value, dtype, shape.to_vec())
    }

    /// Lets calls have what a node gives, by a name. What nobody asks for, directly or not, is not computed.
    pub fn output(&mut self, name: &str, tensor: Tensor) -> &mut Self {
        self.outputs.push((name.to_string(), tensor));
        self
    }

    /// The graph, ready to run. Nothing is measured yet.
    pub fn build(&mut self) -> Result<Fused<D>, Error> {
        self.check_names()?;
        let mut outputs = Vec::new();
        for (name, tensor) in &self.outputs {
            let value = self.facts(name, "tensor", *tensor)?.value;
            if !self.nodes.iter().any(|node| node.outputs.contains(&value)) {
                let reason = "is an input, expected what a node gives: leave it out, the caller has it";
                return Err(wrong(name, "tensor", reason.into()));
            }
            if let Some((other, _)) = outputs.iter().find(|(_, known)| *known == value) {
                return Err(wrong(name, "tensor", format!("is the output '{other}' already: leave one of them out")));
            }
            outputs.push((name.clone(), value));
        }
        if outputs.is_empty() {
            return Err(wrong("the graph", "outputs", "there are none, expected one: say output(name, tensor)".into()));
        }
        // From the last node back: who is needed.
        let mut needed: BTreeSet<usize> = outputs.iter().map(|(_, value)| *value).collect();
        for node in self.nodes.iter().rev() {
            if node.outputs.iter().any(|value| needed.contains(value)) {
                needed.extend(&node.reads);
            }
        }
        let is_needed = |node: &&Node| node.outputs.iter().any(|value| needed.contains(value));
        let nodes: Vec<Node> = self.nodes.iter().filter(is_needed).cloned().collect();
        if let Some((name, _)) = self.inputs.iter().find(|(_, value)| !needed.contains(value)) {
            return Err(wrong(name, "input", "no output needs it: leave it out, or say the output that does".into()));
        }
        let plan = Plan::new(self.values.clone(), self.inputs.clone(), nodes, outputs, &self.templates);
        Ok(Fused::new(plan, self.tuners.clone()))
    }

    fn check_names(&self) -> Result<(), Error> {
        let mut seen = BTreeSet::new();
        let names = self.inputs.iter().map(|(name, _)| name).chain(self.outputs.iter().map(|(name, _)| name));
        for name in names {
            if name.is_empty() || !seen.insert(name) {
                let reason = "is there twice or empty, expected a name of its own: inputs and outputs are found by it";
                return Err(wrong(name, "name", reason.into()));
            }
        }
        let of = |(name, value): &(String, usize)| (self.values[*value].len == 0).then(|| name.clone());
        match self.inputs.iter().find_map(of) {
            Some(name) => Err(wrong(&name, "shape", "holds no element, expected sizes of at least 1".into())),
            None => Ok(()),
        }
    }

    /// What is known of a tensor that a node reads.
    pub(crate) fn facts(&self, node: &str, field: &str, tensor: Tensor) -> Result<Facts, Error> {
        let own = self.tensors.get(tensor.at).filter(|_| tensor.of == self.id).cloned();
        own.ok_or_else(|| wrong(node, field, "is of another graph, expected a tensor of this builder".into()))
    }

    /// A name for a node that is about to be added.
    pub(crate) fn name(&self, word: &str) -> String {
        let taken = |name: &str| self.nodes.iter().any(|node| node.name == name);
        let mut all = std::iter::once(word.to_string()).chain((1..).map(|i| format!("{word}_{i}")));
        all.find(|name| !taken(name)).unwrap_or_default()
    }

    /// Adds a node that reads tensors of one type, and gives one of that type.
    pub(crate) fn node(
        &mut self,
        name: String,
        what: What,
        reads: &[(&str, &Facts)],
        shape: Vec<u64>,
    ) -> Result<Tensor, Error> {
        let first = reads[0].1;
        if let Some((field, other)) = reads.iter().find(|(_, facts)| facts.dtype != first.dtype) {
            let (field_0, dtype, result) = (reads[0].0, first.dtype, other.describe());
            let reason =
                format!("is {result}, expected {dtype} as {field_0} is: a node has one type, convert one of them");
            return Err(wrong(&name, field, reason));
        }
        let reads: Vec<&Facts> = reads.iter().map(|(_, facts)| *facts).collect();
        Ok(self.push(name, what, &reads, &[shape])?.remove(0))
    }

    /// Adds a node that gives tensors of the type of the first one it reads.
    pub(crate) fn push(
        &mut self,
        name: String,
        what: What,
        reads: &[&Facts],
        shapes: &[Vec<u64>],
    ) -> Result<Vec<Tensor>, Error> {
        let (dtype, k) = (reads[0].dtype, reads[0].n());
        let outputs: Vec<usize> = shapes.iter().map(|shape| self.value(dtype, shape)).collect();
        let (rows, n) = (shapes[0].iter().rev().skip(1).product(), shapes[0].last().copied().unwrap_or(1));
        let reads = reads.iter().map(|facts| facts.value).collect();
        let node = Node { name, what, reads, outputs: outputs.clone(), rows, n, k, dtype };
        // Its operation says what it does not take.
        let refused = |e: Error| Error::Argument { argument: node.name.clone(), reason: e.to_string() };
        alone(&node).task.checked().map_err(refused)?;
        self.nodes.push(node);
        Ok(outputs.into_iter().zip(shapes).map(|(value, shape)| self.tensor(value, dtype, shape.clone())).collect())
    }

    /// The same numbers under another shape.
    pub(crate) fn tensor(&mut self, value: usize, dtype: DType, shape: Vec<u64>) -> Tensor {
        self.tensors.push(Facts { value, dtype, shape });
        Tensor { at: self.tensors.len() - 1, of: self.id }
    }

    fn value(&mut self, dtype: DType, shape: &[u64]) -> usize {
        let len = shape.iter().try_fold(1u64, |all, n| all.checked_mul(*n)).unwrap_or(u64::MAX) as usize;
        self.values.push(Value { dtype, len });
        self.values.len() - 1
    }

    /// Whether a node reads a tensor.
    #[cfg(test)]
    pub(crate) fn is_read(&self, tensor: Tensor) -> bool {
        let value = self.tensors[tensor.at].value;
        self.nodes.iter().any(|node| node.reads.contains(&value))
    }

    /// Other covers than the usual ones.
    #[cfg(test)]
    pub(crate) fn with_templates(mut self, templates: &[Template]) -> Self {
        self.templates = templates.to_vec();
        self
    }
}
