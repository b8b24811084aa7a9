//! The card of a race of callables: a list of settings comes in; variants by their code, each with the settings it is
//! listed with, go out.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use warplap::core::candidate::{Candidate, SourceHash};
use warplap::core::erased::ErasedProblem;
use warplap::core::key::Key;
use warplap::core::measure::Policy;
use warplap::core::problem::harmless;
use warplap::core::rejection::Rejection;
use warplap::core::sandbox::{Passed, SandboxRequest};
use warplap::core::space::{Axis, Config, Space, Value};
use warplap::core::store::alphabet::is_variant;
use warplap::core::variant::Kernel;
use warplap::{Bucket, Stop};

use super::kernel::Ready;
use super::{PythonHooks, rejection};
use crate::call::failure::bad;
use crate::foreign::config;
use crate::launch::pool::Pool;
use crate::tensor::kernel_argument::LaunchDevice;

/// Settings with their numbers among the candidates.
type Numbered = Vec<(Config, usize)>;

/// Settings of one code.
struct Group {
    id: String,
    source: SourceHash,
    space: Space,
    /// What each setting's number is among the candidates.
    numbers: BTreeMap<Config, usize>,
}

/// The card of a race of callables. Each brings its own arguments, so there are no slots.
#[derive(Clone)]
pub(super) struct Callables {
    op: String,
    fields: String,
    groups: Arc<Vec<Group>>,
    hooks: Arc<PythonHooks>,
}

impl Callables {
    pub(super) fn new(
        op: &str,
        fields: &str,
        candidates: &[(String, Bound<'_, PyDict>, String)],
        hooks: Arc<PythonHooks>,
    ) -> PyResult<Self> {
        // By code and by what is set: the settings of one variant all name the same.
        let mut lists: Vec<(String, SourceHash, Numbered)> = Vec::new();
        for (number, (id, settings, source)) in candidates.iter().enumerate() {
            let (config, source, id) = (config(settings)?, SourceHash::of(&[source]), &named(id));
            let alike = |c: &Config| c.0.keys().eq(config.0.keys());
            match lists.iter_mut().find(|l| l.0 == *id && l.1 == source && alike(&l.2[0].0)) {
                Some(list) => list.2.push((config, number)),
                None => lists.push((id.clone(), source, vec![(config, number)])),
            }
        }
        let mut groups: Vec<Group> = Vec::new();
        for (id, source, list) in lists {
            let id = if groups.iter().any(|g| g.id == id) { told_apart(&id, &source, &list[0].0) } else { id };
            let space = space(&list).map_err(|e| bad(format!("candidates: {e}")))?;
            let mut numbers = BTreeMap::new();
            for (config, number) in list {
                numbers.entry(config).or_insert(number);
            }
            groups.push(Group { id, source, space, numbers });
        }
        Ok(Callables { op: op.to_string(), fields: harmless(fields), groups: Arc::new(groups), hooks })
    }

    /// How many candidates there are.
    pub(super) fn len(&self) -> usize {
        self.groups.iter().map(|g| g.numbers.len()).sum()
    }

    /// The number of a candidate.
    pub(super) fn number(&self, candidate: &Candidate) -> Option<usize> {
        let group = self.groups.iter().find(|g| g.id == candidate.variant && g.source == candidate.source)?;
        group.numbers.get(&candidate.config).copied()
    }

    pub(super) fn problem(&self) -> String {
        format!("{}:{}", self.op, self.fields)
    }

    pub(super) fn stop(&self) -> &Stop {
        &self.hooks.stop
    }
}

/// The id of a callable that may be called anything: what no record takes stands as `_`.
fn named(name: &str) -> String {
    let plain: String = name.chars().map(|c| if is_variant(c.encode_utf8(&mut [0; 4])) { c } else { '_' }).collect();
    match (is_variant(name), plain.char_indices().nth(64)) {
        (true, _) => name.to_string(),
        (_, cut) => format!("{}_{}", &plain[..cut.map_or(plain.len(), |(at, _)| at)], SourceHash::of(&[name]).0),
    }
}

/// The id of one more code of the same name.
fn told_apart(id: &str, source: &SourceHash, config: &Config) -> String {
    let names: Vec<&str> = config.0.keys().map(String::as_str).collect();
    let SourceHash(text) = SourceHash::of(&[&source.0, &names.join(" ")]);
    format!("{id}_{}", &text[..text.len().min(8)])
}

/// The space of exactly these settings; the first one is the default.
fn space(list: &[(Config, usize)]) -> Result<Space, String> {
    let names: Vec<&String> = list[0].0.0.keys().collect();
    let values = |name: &String| list.iter().filter_map(|(c, _)| c.0.get(name).cloned()).collect::<Vec<Value>>();
    let axes: Vec<Axis> = names.iter().map(|name| Axis::values_of(name, values(name))).collect();
    let point = |(config, _): &(Config, usize)| {
        axes.iter().map(|a| config.0.get(a.name()).and_then(|v| a.number(v))).collect::<Option<Vec<u16>>>()
    };
    let mut points: Vec<Vec<u16>> = list.iter().filter_map(point).collect();
    points.sort_unstable();
    points.dedup();
    Space::of_points(axes, points).map_err(|e| e.to_string())
}

impl<D: LaunchDevice> ErasedProblem<D> for Callables {
    fn op(&self) -> &str {
        &self.op
    }

    fn text(&self) -> String {
        self.problem()
    }

    fn key(&self, _: &Bucket, policy: Policy) -> Key {
        // What a caller keeps a choice by is its own affair: it is not rounded.
        Key::new(&self.op, format!("{};bucket=exact,{policy}", self.problem()))
    }

    fn representative(&self, _: &Bucket) -> Box<dyn ErasedProblem<D>> {
        Box::new(self.clone())
    }

    fn boxed(&self) -> Box<dyn ErasedProblem<D>> {
        Box::new(self.clone())
    }

    fn count(&self) -> usize {
        self.groups.len()
    }

    fn id(&self, at: usize) -> &str {
        &self.groups[at].id
    }

    fn source(&self, at: usize) -> SourceHash {
        self.groups[at].source.clone()
    }

    fn space(&self, at: usize, _: &D) -> Space {
        self.groups[at].space.clone()
    }

    fn build(&self, at: usize, config: &Config, device: &D) -> Result<Box<dyn Kernel<D>>, Rejection> {
        let gone = || Rejection::DoesNotBuild { reason: format!("{config} is not listed") };
        let number = *self.groups[at].numbers.get(config).ok_or_else(gone)?;
        let run = self.hooks.ask(|py| Ok(self.hooks.ready.bind(py).call1((number,))?.unbind()))?;
        Ok(Box::new(Ready { hooks: self.hooks.clone(), number, run, place: device.place(), pool: Pool::new() }))
    }

    fn sandbox(&self, request: &SandboxRequest, _: &D) -> Option<Result<Passed, Rejection>> {
        let (number, trial) = (self.number(&request.candidate)?, self.hooks.trial.as_ref()?);
        let asked = |py: Python<'_>| trial.bind(py).call1((number,))?.extract::<Option<(String, String, f64)>>();
        match self.hooks.ask(asked) {
            Ok(None) => None,
            Ok(Some((word, reason, seconds))) => Some(Err(rejection(&word, reason, seconds))),
            Err(failed) => Some(Err(failed)),
        }
    }

    fn call_worker(&self, _: &D) {}
}
