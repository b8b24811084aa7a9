//! Nodes and tensors of a graph: what a node does, what it reads, and the one launch that does it by itself.

use warplap_core::dtype::DType;
use warplap_ops::attention::AttentionProblem;
use warplap_ops::gated::{self, GatedProblem};
use warplap_ops::gemm::{self, Activation, GemmProblem, Join, Layout};
use warplap_ops::norm::{self, Kind, NormProblem};
use warplap_ops::rope::{self, Positions, RopeProblem};
use warplap_ops::softmax::{self, SoftmaxProblem};

use crate::task::Task;

/// A tensor of a graph that is being built: an input, or what a node gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its place among the tensors of its builder.
    pub(crate) at: usize,
    /// Its builder.
    pub(crate) of: u64,
}

/// Numbers in memory while a graph runs: an input, or what a node gives.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    pub(crate) dtype: DType,
    pub(crate) len: usize,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum What {
    /// x · w (+ bias): w is as `Layout::Col` says for `linear` (n×k in memory), k×n for `matmul`.
    Product { w: Layout, bias: bool },
    /// act(a), joined with b where there is one.
    Element { act: Activation, join: Join },
    /// A norm of rows, with a weight and a bias where there are.
    Norm { kind: Kind, weight: bool, bias: bool, eps: f32 },
    /// A softmax of rows times a factor, plus a mask where its problem has one.
    Softmax(SoftmaxProblem),
    /// Attention of q, k and v.
    Attention(AttentionProblem),
    /// Heads of one tensor or of two, turned by their positions.
    Rope(RopeProblem),
}

impl What {
    /// What decides who may stand in for it, without sizes.
    pub(crate) fn form(&self) -> String {
        match self {
            What::Product { w, bias } => format!("product {w} {bias}"),
            What::Element { act, join } => format!("element {act} {join}"),
            What::Norm { kind, weight, bias, .. } => format!("norm {kind} {weight} {bias}"),
            What::Softmax(p) => format!("softmax {} {}", p.scale() == 1.0, p.mask > 0),
            What::Attention(p) => format!("attention {} {}", p.layout, p.causal),
            What::Rope(p) => {
                let parts = (p.hk > 0, p.plain > 0, p.rot < p.d, p.wide, p.bias);
                format!("rope {} {} {} {parts:?}", p.pairs, p.positions, p.table)
            }
        }
    }
}

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) what: What,
    /// The values it reads, in the order its kind has them.
    pub(crate) reads: Vec<usize>,
    /// The values it gives, in the order its launch writes them.
    pub(crate) outputs: Vec<usize>,
    /// Rows and columns of what it gives.
    pub(crate) rows: u64,
    pub(crate) n: u64,
    /// Columns of the first value it reads.
    pub(crate) k: u64,
    pub(crate) dtype: DType,
}

impl Node {
    /// The first value it gives; most nodes have no other.
    pub(crate) fn first_output(&self) -> usize {
        self.outputs[0]
    }

    /// In a word, for drawings.
    pub(crate) fn word(&self) -> String {
        match self.what {
            What::Product { w: Layout::Col, .. } => "linear".into(),
            What::Product { .. } => "matmul".into(),
            What::Element { act: Activation::None, join } => join.to_string(),
            What::Element { act, join: Join::None } => act.to_string(),
            What::Element { act, join } => format!("{act}_{join}"),
            What::Norm { kind, .. } => format!("{kind}_norm"),
            What::Softmax(_) => "softmax".into(),
            What::Attention(_) => "attention".into(),
            What::Rope(_) => "rope".into(),
        }
    }
}

/// One launch: a task, and for each of its slots the value that is read or written there.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) task: Task,
    pub(crate) slots: Vec<Option<usize>>,
}

impl Call {
    /// A task with values in some of its slots; what a problem does not have is left out by whoever calls.
    pub(crate) fn new(task: Task, bound: &[(usize, usize)]) -> Self {
        let mut slots = vec![None; task.signature().slots().len()];
        bound.iter().for_each(|(slot, value)| slots[*slot] = Some(*value));
        Call { task, slots }
    }

    /// The values that are written, in the order of slots.
    pub(crate) fn writes(&self) -> Vec<usize> {
        let signature = self.task.signature();
        let written = signature.slots().iter().zip(&self.slots).filter(|(slot, _)| slot.is_written());
        written.filter_map(|(_, value)| *value).collect()
    }

    /// The values that are read.
    pub(crate) fn reads(&self) -> Vec<usize> {
        let signature = self.task.signature();
        let read = signature.slots().iter().zip(&self.slots).filter(|(slot, _)| slot.is_read());
        read.filter_map(|(_, value)| *value).collect()
    }
}

/// The product of a node, without anything that is done to it.
pub(crate) fn product(node: &Node, w: Layout, bias: bool) -> GemmProblem {
    let plain = GemmProblem::new(node.rows, node.n, node.k, node.dtype).with_layouts(Layout::Row, w);
    plain.with_epilogue(bias, Activation::None)
}

/// What a node does element by element, of tensors without padding.
pub(crate) fn element(node: &Node, act: Activation, join: Join) -> GatedProblem {
    let (rows, n, dtype) = (node.rows, node.n, node.dtype);
    GatedProblem { rows, n, dtype, act, join, lda: n, ldb: n }
}

/// The norm of a node, without anything before it.
pub(crate) fn norm(node: &Node, kind: Kind, [weight, bias]: [bool; 2], eps: f32) -> NormProblem {
    let mut plain = NormProblem::new(node.rows, node.n, node.dtype);
    (plain.kind, plain.weight, plain.bias) = (kind, weight, bias);
    // The builder has looked at it.
    plain.with_eps(eps).unwrap_or(plain)
}

/// Where weight and bias of a norm lie, behind what is normalised.
pub(crate) fn columns(node: &Node, [weight, bias]: [bool; 2]) -> Vec<(usize, usize)> {
    let has = [(norm::slot::WEIGHT, weight), (norm::slot::BIAS, bias)];
    has.into_iter().filter(|(_, has)| *has).map(|(slot, _)| slot).zip(node.reads[1..].iter().copied()).collect()
}

/// Where a turn's tensors lie, in the order its node reads them: x, k, cosines, sines, positions, bias.
pub(crate) fn turned(node: &Node, problem: &RopeProblem) -> Vec<(usize, usize)> {
    use rope::slot;
    let has = [
        (slot::X, true),
        (slot::K, problem.hk > 0),
        (slot::COS, true),
        (slot::SIN, true),
        (slot::POSITIONS, problem.positions != Positions::Rows),
        (slot::BIAS, problem.bias),
    ];
    let read = has.into_iter().filter(|(_, has)| *has).map(|(slot, _)| slot).zip(node.reads.iter().copied());
    read.chain([slot::Y, slot::YK].into_iter().zip(node.outputs.iter().copied())).collect()
}

/// The launch that does a node by itself.
pub(crate) fn alone(node: &Node) -> Call {
    let (reads, outputs) = (&node.reads, node.first_output());
    match node.what {
        What::Product { w, bias } => {
            let mut bound = vec![(gemm::slot::A, reads[0]), (gemm::slot::B, reads[1]), (gemm::slot::C, outputs)];
            bound.extend(bias.then(|| (gemm::slot::BIAS, reads[2])));
            Call::new(Task::Gemm(product(node, w, bias)), &bound)
        }
        What::Element { act, join } => {
            let mut bound = vec![(gated::slot::A, reads[0]), (gated::slot::Y, outputs)];
            bound.extend((join != Join::None).then(|| (gated::slot::B, reads[1])));
            Call::new(Task::Gated(element(node, act, join)), &bound)
        }
        What::Norm { kind, weight, bias, eps } => {
            let mut bound = vec![(norm::slot::X, reads[0]), (norm::slot::Y, outputs)];
            bound.extend(columns(node, [weight, bias]));
            Call::new(Task::Norm(norm(node, kind, [weight, bias], eps)), &bound)
        }
        What::Softmax(problem) => {
            let mut bound = vec![(softmax::slot::X, reads[0]), (softmax::slot::Y, outputs)];
            bound.extend((problem.mask > 0).then(|| (softmax::slot::MASK, reads[1])));
            Call::new(Task::Softmax(problem), &bound)
        }
        What::Attention(problem) => {
            use warplap_ops::attention::slot;
            let bound = [(slot::Q, reads[0]), (slot::K, reads[1]), (slot::V, reads[2]), (slot::OUT, outputs)];
            Call::new(Task::Attention(problem), &bound)
        }
        What::Rope(problem) => Call::new(Task::Rope(problem), &turned(node, &problem)),
    }
}
