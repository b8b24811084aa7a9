//! A graph as an operation of its own: so that proving, racing, storing, budgets and modes are those of every operation.
//! Its problem is the whole graph; its key is the graph's structure and the keys of its nodes, each rounded as its own
//! operation rounds.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use fastrand::Rng;
use warplap_core::array::Array;
use warplap_core::bucket::Bucket;
use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op};
use warplap_core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap_core::roofline::Work;
use warplap_core::slot::{Signature, Slot};
use warplap_ops::rope::{self, RopeProblem};

use super::host;
use super::node::{Node, What, turned};
use super::plan::Plan;
use super::task::Task;

/// The operation that graphs are problems of.
pub struct Graphs;

/// One graph in its sizes.
#[derive(Clone)]
pub struct GraphProblem {
    pub(super) plan: Arc<Plan>,
    structure: Arc<str>,
    sizes: Arc<str>,
    /// What every lookup hashes.
    short: u64,
}

type Opened = Mutex<HashMap<String, Weak<Plan>>>;

/// Graphs that are there in this process: a problem's text names one of them.
fn opened() -> &'static Opened {
    static OPEN: OnceLock<Opened> = OnceLock::new();
    OPEN.get_or_init(Opened::default)
}

impl GraphProblem {
    pub(super) fn new(plan: Arc<Plan>) -> Self {
        let problem = GraphProblem::of(plan);
        let mut open = opened().lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, known| known.strong_count() > 0);
        open.insert(problem.sizes.to_string(), Arc::downgrade(&problem.plan));
        problem
    }

    fn of(plan: Arc<Plan>) -> Self {
        let structure = plan.structure();
        let texts: Vec<String> = plan.alone.iter().map(|call| call.task.text()).collect();
        let sizes = SourceHash::of(&[&structure, &texts.join(";")]).0;
        let short = u64::from_str_radix(&sizes, 16).unwrap_or(0);
        GraphProblem { plan, structure: structure.into(), sizes: sizes.into(), short }
    }

    /// Nodes and the first type, for whoever reads keys.
    fn with_facts(&self, fields: Fields, rows: u64) -> Fields {
        fields.with("nodes", self.plan.nodes.len()).with("rows", rows).with("dtype", self.dtype())
    }

    fn rows(&self) -> u64 {
        self.plan.nodes.first().map_or(0, |node| node.rows)
    }
}

impl fmt::Debug for GraphProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Graphs::text(self))
    }
}
impl PartialEq for GraphProblem {
    fn eq(&self, other: &Self) -> bool {
        self.sizes == other.sizes
    }
}
impl Eq for GraphProblem {}
impl Hash for GraphProblem {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.short);
    }
}

impl Problem for GraphProblem {
    type Op = Graphs;

    const FIELDS: &'static [&'static str] = &["structure", "sizes", "nodes", "rows", "dtype"];

    fn fields(&self) -> Fields {
        let fields = Fields::new().with("structure", &self.structure).with("sizes", &self.sizes);
        self.with_facts(fields, self.rows())
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        let expected = "the sizes of a graph that is built in this program";
        let sizes: String = fields.word_or("sizes", expected, String::new())?;
        let open = opened().lock().unwrap_or_else(PoisonError::into_inner).get(&sizes).and_then(Weak::upgrade);
        let problem = GraphProblem::of(open.ok_or_else(|| ProblemError::value("sizes", &sizes, expected))?);
        for (field, own) in problem.fields().0.into_iter().filter(|(field, _)| *field != "sizes") {
            let expected = format!("{own}, as the graph of these sizes has it");
            let result: String = fields.word_or(field, &expected, own.clone())?;
            if result != own {
                return Err(ProblemError::value(field, result, expected));
            }
        }
        Ok(problem)
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        let keys: Vec<String> = self.plan.alone.iter().map(|call| call.task.key(bucket)).collect();
        let sizes = SourceHash::of(&[&keys.join(";")]).0;
        let fields = Fields::new().with("structure", &self.structure).with("sizes", sizes);
        self.with_facts(fields, bucket.round_changing("rows", self.rows()))
    }

    /// What was asked for is raced: what a layer's input may grow to is known to nobody here.
    fn representative(&self, _: &Bucket) -> Self {
        self.clone()
    }

    /// The arithmetic of products, and inputs and outputs once: no partition does with less.
    fn work(&self) -> Work {
        let products = self.plan.alone.iter().filter(|call| matches!(call.task, Task::Gemm(_) | Task::Attention(_)));
        let flops = products.map(|call| call.task.work().flops).sum();
        Work { flops, bytes: Graphs::signature(self).bytes() as f64 }
    }

    fn dtype(&self) -> DType {
        self.plan.nodes.first().map_or(DType::F32, |node| node.dtype)
    }
}

impl Op for Graphs {
    const NAME: &'static str = "graph";
    // A chain is made of kernels that have each passed by themselves.
    const AT_HOME: bool = true;

    type Problem = GraphProblem;

    fn signature(problem: &GraphProblem) -> Signature {
        let plan = &problem.plan;
        let slot = |make: fn(String, DType, &[u64]) -> Slot| {
            move |(name, value): &(String, usize)| {
                let of = &plan.values[*value];
                make(name.clone(), of.dtype, &[of.len as u64]).aligned(ALIGN)
            }
        };
        let inputs = plan.inputs.iter().map(slot(Slot::input));
        let outputs = plan.outputs.iter().map(slot(Slot::output));
        Signature(inputs.chain(outputs).collect())
    }

    fn draw(problem: &GraphProblem, rng: &mut Rng) -> Vec<Array> {
        let plan = &problem.plan;
        let input = |(_, value): &(String, usize)| {
            let of = &plan.values[*value];
            match drawn(plan, *value) {
                Drawn::Within(by) => Array::drawn(of.dtype, of.len, rng, move |_, rng| (2.0 * rng.f64() - 1.0) * by),
                Drawn::Below(n) => Array::drawn(of.dtype, of.len, rng, move |_, rng| rng.u64(0..n) as f64),
            }
        };
        let mut arrays: Vec<Array> = plan.inputs.iter().map(input).collect();
        arrays.resize(plan.inputs.len() + plan.outputs.len(), Array::none());
        arrays
    }

    fn answer(problem: &GraphProblem, inputs: &[Array]) -> Vec<Answer> {
        host::answers(&problem.plan, inputs)
    }
}

/// Bytes that every tensor's address is a multiple of, as problems of products have it.
const ALIGN: u64 = 64;

/// What an input is drawn from.
enum Drawn {
    /// As far on either side of zero.
    Within(f64),
    /// Whole numbers from zero on.
    Below(u64),
}

/// The value that a turn finds its positions in.
fn positions(node: &Node, problem: &RopeProblem) -> Option<usize> {
    let bound = turned(node, problem).into_iter().find(|(slot, _)| *slot == rope::slot::POSITIONS);
    bound.map(|(_, value)| value)
}

/// What an input is drawn from. The weights of a product keep its numbers as large as those of its x, so that
/// activations bend where they bend however long a chain is; queries are not all alike, and what a softmax scales is
/// not drowned by it. Positions are rows of their table.
fn drawn(plan: &Plan, value: usize) -> Drawn {
    let of = |node: &Node| match node.what {
        What::Product { .. } if node.reads[1] == value => {
            Some(Drawn::Within((3.0 / node.k as f64).sqrt().log2().round().exp2()))
        }
        What::Attention(_) if node.reads[0] == value => Some(Drawn::Within(4.0)),
        What::Softmax(p) if node.reads[0] == value && p.scale() != 1.0 => {
            Some(Drawn::Within(f64::from(p.scale().abs().clamp(1e-3, 1e3)).recip().log2().round().exp2()))
        }
        What::Rope(p) if positions(node, &p) == Some(value) => Some(Drawn::Below(p.n)),
        _ => None,
    };
    plan.nodes.iter().find_map(of).unwrap_or(Drawn::Within(1.0))
}
