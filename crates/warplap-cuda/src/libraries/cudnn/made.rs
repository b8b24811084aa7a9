//! From a graph to the library's descriptors: tensors, nodes, the heuristics' proposals, the plan of one of them.

use warplap_core::dtype::DType;

use super::descriptor::*;
use super::graph::{DnnGraph, DnnNode, DnnPlace, DnnTensor, DnnTensorSpec, code};
use super::library::{Dnn, DnnOpaque};
use crate::error::CudaError;

// Attributes that are descriptors, numbers of `cudnnBackendAttributeName_t`.
const CONFIG: i32 = 401;
const HEURISTICS_GRAPH: i32 = 201;
const HEURISTICS_CHIP: i32 = 204;
const PROPOSALS: i32 = 202;
const GRAPH_NODES: i32 = 801;
const POINTWISE: i32 = 750;
/// Of x, b and t.
const POINTWISE_FROM: [i32; 3] = [751, 752, 758];
const POINTWISE_Y: i32 = 753;
const MATMUL: i32 = 1523;
/// Of a, b and c.
const MATMUL_OF: [i32; 3] = [1520, 1521, 1522];
const REDUCTION: i32 = 1612;
const REDUCTION_X: i32 = 1610;
const REDUCTION_Y: i32 = 1611;

/// The heuristics' mode that looks closest (`CUDNN_HEUR_MODE_A`).
const CLOSE: i32 = 3;

/// Proposals that are asked for.
const ASKED: usize = 16;

/// A plan and what it was made of. Fields drop in order: who refers to another goes before it.
pub(super) struct Made {
    pub(super) plan: Descriptor,
    _parts: Vec<Descriptor>,
}

/// Where a plan is to run.
pub(super) enum Target {
    /// Where this handle is.
    Handle(DnnOpaque),
    /// On a chip that is only described: for tests without a GPU.
    Chip(Descriptor),
}

impl Made {
    /// A tensor's number for the library.
    pub(super) fn id(at: usize) -> i64 {
        at as i64 + 1
    }

    /// The plan of the heuristics' `choice`-th proposal; `None` where they have fewer.
    pub(super) fn choose(
        dnn: &'static Dnn,
        graph: &DnnGraph,
        choice: usize,
        target: &Target,
    ) -> Result<Option<Made>, CudaError> {
        let mut parts = Parts { dnn, tensors: Vec::new(), others: Vec::new() };
        for (at, tensor) in graph.tensors().iter().enumerate() {
            parts.tensors.push(described(dnn, at, tensor)?);
        }
        let nodes = graph.nodes().iter().map(|node| parts.node(node)).collect::<Result<Vec<_>, _>>()?;
        let mut whole = Descriptor::new(dnn, Kind::Graph)?.refer(GRAPH_NODES, &nodes)?;
        if let Target::Handle(handle) = target {
            whole = whole.with(&GRAPH_HANDLE, &[*handle])?;
        }
        let whole = whole.finalized()?;
        let mut asked = Descriptor::new(dnn, Kind::Heuristics)?.refer(HEURISTICS_GRAPH, [&whole])?;
        if let Target::Chip(chip) = target {
            asked = asked.refer(HEURISTICS_CHIP, [chip])?;
        }
        let asked = asked.with(&HEURISTICS_MODE, &[CLOSE])?.finalized()?;
        let places = (0..ASKED).map(|_| Descriptor::new(dnn, Kind::Config)).collect::<Result<Vec<_>, _>>()?;
        let mut proposals = asked.fill(PROPOSALS, places)?;
        if choice >= proposals.len() {
            return Ok(None);
        }
        let config = proposals.swap_remove(choice);
        let mut plan = Descriptor::new(dnn, Kind::Plan)?.refer(CONFIG, [&config])?;
        if let Target::Handle(handle) = target {
            plan = plan.with(&PLAN_HANDLE, &[*handle])?;
        }
        let (plan, Parts { tensors, others, .. }) = (plan.finalized()?, parts);
        let used = [config, asked, whole].into_iter().chain(nodes).chain(others).chain(tensors);
        Ok(Some(Made { plan, _parts: used.collect() }))
    }

    /// A plan from its text.
    pub(super) fn from_text(dnn: &'static Dnn, text: &[u8], handle: DnnOpaque) -> Result<Made, CudaError> {
        let plan = Descriptor::new(dnn, Kind::Plan)?.with(&PLAN_TEXT, text)?.with(&PLAN_HANDLE, &[handle])?;
        Ok(Made { plan: plan.finalized()?, _parts: Vec::new() })
    }

    /// Everything that the plan is, as text.
    pub(super) fn text(&self) -> Result<Vec<u8>, CudaError> {
        let len = self.plan.read(&PLAN_TEXT, &mut [])?;
        let mut text = vec![0; len];
        let written = self.plan.read(&PLAN_TEXT, &mut text)?;
        text.truncate(written);
        // Some versions count the zero that ends it.
        while text.pop_if(|last| *last == 0).is_some() {}
        Ok(text)
    }

    /// Bytes of workspace.
    pub(super) fn workspace(&self) -> Result<u64, CudaError> {
        let mut bytes = [0];
        self.plan.read(&PLAN_WORKSPACE, &mut bytes)?;
        Ok(bytes[0].max(0) as u64)
    }
}

struct Parts {
    dnn: &'static Dnn,
    tensors: Vec<Descriptor>,
    // What nodes refer to besides.
    others: Vec<Descriptor>,
}

impl Parts {
    fn at(&self, tensor: DnnTensor) -> &Descriptor {
        &self.tensors[tensor.0]
    }

    fn node(&mut self, node: &DnnNode) -> Result<Descriptor, CudaError> {
        let new = |kind| Descriptor::new(self.dnn, kind);
        let single = [known(DType::F32)?];
        let (what, made) = match node {
            DnnNode::Matmul(of) => {
                let what = new(Kind::Matmul)?.with(&MATMUL_TYPE, &single)?.finalized()?;
                let mut made = new(Kind::MatmulNode)?.refer(MATMUL, [&what])?;
                for (name, tensor) in MATMUL_OF.into_iter().zip(of) {
                    made = made.refer(name, [self.at(*tensor)])?;
                }
                (what, made)
            }
            DnnNode::Pointwise { mode, from, y, within, axis } => {
                let what = new(Kind::Pointwise)?.with(&POINTWISE_MODE, &[*mode as i32])?;
                let mut what = what.with(&POINTWISE_TYPE, &[known(*within)?])?;
                if let Some(axis) = axis {
                    what = what.with(&POINTWISE_AXIS, &[*axis as i64])?;
                }
                let what = what.finalized()?;
                let mut made = new(Kind::PointwiseNode)?.refer(POINTWISE, [&what])?;
                for (name, tensor) in POINTWISE_FROM.into_iter().zip(from) {
                    if let Some(tensor) = tensor {
                        made = made.refer(name, [self.at(*tensor)])?;
                    }
                }
                (what, made.refer(POINTWISE_Y, [self.at(*y)])?)
            }
            DnnNode::Reduce { mode, x, y } => {
                let what = new(Kind::Reduction)?.with(&REDUCTION_TYPE, &single)?;
                let what = what.with(&REDUCTION_MODE, &[*mode as i32])?.finalized()?;
                let made = new(Kind::ReductionNode)?.refer(REDUCTION, [&what])?;
                (what, made.refer(REDUCTION_X, [self.at(*x)])?.refer(REDUCTION_Y, [self.at(*y)])?)
            }
        };
        self.others.push(what);
        made.finalized()
    }
}

fn known(dtype: DType) -> Result<i32, CudaError> {
    code(dtype).ok_or_else(|| CudaError::NoLibrary(format!("graph of {dtype} in cuDNN")))
}

/// The alignment of what lies in nobody's memory.
const USUAL: u64 = 16;

fn described(dnn: &'static Dnn, at: usize, tensor: &DnnTensorSpec) -> Result<Descriptor, CudaError> {
    let [dims, strides] = [tensor.dims, tensor.strides].map(|sizes| sizes.map(|size| size as i64));
    let align = if let DnnPlace::Memory(align) = tensor.place { align } else { USUAL };
    let [inner, value] = [tensor.place == DnnPlace::Inner, matches!(tensor.place, DnnPlace::Value(_))];
    Descriptor::new(dnn, Kind::Tensor)?
        .with(&TENSOR_TYPE, &[known(tensor.dtype)?])?
        .with(&TENSOR_DIMS, &dims)?
        .with(&TENSOR_STRIDES, &strides)?
        .with(&TENSOR_ID, &[Made::id(at)])?
        .with(&TENSOR_ALIGN, &[align as i64])?
        .with(&TENSOR_IS_INNER, &[inner])?
        .with(&TENSOR_IS_VALUE, &[value])?
        .finalized()
}
