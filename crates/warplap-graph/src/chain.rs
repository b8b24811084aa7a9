//! A chain: the launches of one partition, one after another, as one kernel. What lies between them is memory of its
//! own, made once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use warplap_core::arg::Arg;
use warplap_core::array::Array;
use warplap_core::device::Device;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::rejection::Rejection;
use warplap_core::slot::Outline;
use warplap_core::variant::Kernel;

use super::node::{Call, Value};
use super::plan::{NamedPartition, Plan};
use super::problem::{GraphProblem, Graphs};
use super::task::{Ground, Part, Tuners};

/// Where a slot's memory is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ChainPlace {
    /// An argument of the graph.
    Arg(usize),
    /// So many elements of memory of the chain.
    Kept(usize, usize),
}

struct ChainStep<D: Device> {
    part: Arc<dyn Part<D>>,
    /// For each slot where its memory is, and whether it is written.
    slots: Vec<Option<(ChainPlace, bool)>>,
}

/// The launches of one partition.
pub(super) struct Chain<D: Device> {
    device: Arc<D>,
    steps: Vec<ChainStep<D>>,
    /// What lies between launches.
    kept: Vec<Value>,
    /// Sets of memory that nobody uses now. Launches that follow each other on one queue may share a set; whoever is
    /// still queueing has one of its own.
    free: Mutex<Vec<Vec<D::Buffer>>>,
    outline: Outline,
}

impl<D: Ground> Chain<D> {
    /// The chain of a partition, with kernels chosen and memory made.
    pub(super) fn new(problem: &GraphProblem, partition: &NamedPartition, tuners: &Tuners<D>) -> Result<Self, Error> {
        let plan = &problem.plan;
        let calls = plan.calls(partition);
        let ends = || plan.inputs.iter().chain(&plan.outputs).map(|(_, value)| *value);
        let (kept, between) = laid(plan, &calls);
        let place = |value: usize| match ends().position(|end| end == value) {
            Some(at) => Some(ChainPlace::Arg(at)),
            None => between.get(&value).map(|at| ChainPlace::Kept(*at, plan.values[value].len)),
        };
        let mut steps = Vec::new();
        for call in calls {
            let part = D::part(&call.task, tuners);
            part.choose()?;
            let signature = call.task.signature();
            let bound = signature.slots().iter().zip(&call.slots);
            let slots = bound.map(|(slot, value)| Some((place((*value)?)?, slot.is_written()))).collect();
            steps.push(ChainStep { part, slots });
        }
        let outline = Graphs::signature(problem).outline();
        let chain = Chain { device: tuners.device.clone(), steps, kept, free: Mutex::default(), outline };
        // Nothing is made while a launch is captured or timed.
        chain.give_back(chain.made()?);
        Ok(chain)
    }

    /// Bytes that lie between launches.
    pub(super) fn bytes(&self) -> u64 {
        self.kept.iter().map(|value| (value.len * value.dtype.bytes()) as u64).sum()
    }

    fn made(&self) -> Result<Vec<D::Buffer>, Error> {
        let one = |value: &Value| self.device.upload(&Array::filled(value.dtype, value.len, 0.0));
        self.kept.iter().map(one).collect()
    }

    fn take(&self) -> Result<Vec<D::Buffer>, Error> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.map_or_else(|| self.made(), Ok)
    }

    fn give_back(&self, set: Vec<D::Buffer>) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(set);
    }

    fn go(&self, args: &mut [Arg<'_, D>], set: &mut [D::Buffer], queue: &D::Queue) -> Result<(), Error> {
        for step in &self.steps {
            let mut bound: Vec<Arg<'_, D>> = step.slots.iter().map(|_| Arg::Absent).collect();
            for (at, arg) in args.iter_mut().enumerate() {
                let (writes, reads) = step.at(at);
                match (arg, writes) {
                    (Arg::Write(view), Some(slot)) => bound[slot] = Arg::Write(D::rewrite(view)),
                    (Arg::Write(view), None) => reads.for_each(|slot| bound[slot] = Arg::Read(D::written(view))),
                    (Arg::Read(view), _) => reads.for_each(|slot| bound[slot] = Arg::Read(D::reread(view))),
                    _ => {}
                }
            }
            for (at, buffer) in set.iter_mut().enumerate() {
                match step.kept(at) {
                    (Some((slot, len)), _) => bound[slot] = Arg::Write(self.device.view_mut(buffer, 0..len)),
                    (None, reads) => {
                        reads.for_each(|(slot, len)| bound[slot] = Arg::Read(self.device.view(buffer, 0..len)));
                    }
                }
            }
            step.part.launch(&mut bound, queue)?;
        }
        Ok(())
    }
}

impl<D: Device> ChainStep<D> {
    /// The slots that read an argument of the graph, and the one that writes it.
    fn at(&self, arg: usize) -> (Option<usize>, impl Iterator<Item = usize>) {
        let of = move |written: bool| {
            let bound = self.slots.iter().enumerate();
            bound.filter(move |(_, bound)| **bound == Some((ChainPlace::Arg(arg), written))).map(|(slot, _)| slot)
        };
        (of(true).next(), of(false))
    }

    /// The slots that read memory of the chain and the one that writes it, each with its elements.
    fn kept(&self, buffer: usize) -> (Option<(usize, usize)>, impl Iterator<Item = (usize, usize)>) {
        let of = move |wanted: bool| {
            self.slots.iter().enumerate().filter_map(move |(slot, bound)| match bound {
                Some((ChainPlace::Kept(at, len), written)) if *at == buffer && *written == wanted => Some((slot, *len)),
                _ => None,
            })
        };
        (of(true).next(), of(false))
    }
}

/// Memory for what lies between launches, and which of it each value has: who is read no more makes room for the next of
/// its type and length, which is then still near.
fn laid(plan: &Plan, calls: &[&Call]) -> (Vec<Value>, HashMap<usize, usize>) {
    let is_end = |value: &usize| plan.inputs.iter().chain(&plan.outputs).any(|(_, end)| end == value);
    let (mut kept, mut until, mut places) = (Vec::new(), Vec::new(), HashMap::new());
    for (now, call) in calls.iter().enumerate() {
        for value in call.writes().into_iter().filter(|value| !is_end(value)) {
            let own = &plan.values[value];
            let last = calls.iter().rposition(|call| call.reads().contains(&value)).unwrap_or(now);
            let free = (0..kept.len()).find(|at| until[*at] < now && kept[*at] == *own);
            let at = free.unwrap_or_else(|| {
                kept.push(own.clone());
                until.push(last);
                kept.len() - 1
            });
            until[at] = last;
            places.insert(value, at);
        }
    }
    (kept, places)
}

impl<D: Ground> Kernel<D> for Chain<D> {
    fn launch(&self, args: &mut [Arg<'_, D>], queue: &D::Queue) -> Result<(), Rejection> {
        let failed = |e: Error| Rejection::LaunchFailed { reason: e.to_string() };
        if !self.outline.fits(args) {
            return Err(Rejection::LaunchFailed { reason: "the arguments are not those of the graph".into() });
        }
        let mut set = self.take().map_err(failed)?;
        let done = self.go(args, &mut set, queue);
        self.give_back(set);
        done.map_err(failed)
    }

    fn workspace(&self) -> u64 {
        self.bytes()
    }
}
