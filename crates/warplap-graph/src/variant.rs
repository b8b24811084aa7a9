//! Each partition of a graph as a variant: the one without covers is the reference. Which of them race is said by what
//! their parts take, once that is known.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use warplap_core::candidate::SourceHash;
use warplap_core::catalog::Catalog;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};

use super::chain::Chain;
use super::on_device::Right;
use super::plan::{APART, NamedPartition, Plan};
use super::problem::{GraphProblem, Graphs};
use super::task::{Ground, Tuners};

/// What the parts of partitions take together, in seconds: those that race, cheapest first.
#[derive(Default)]
pub(super) struct Predicted {
    pub(super) racing: Vec<(String, f64)>,
    pub(super) others: Vec<(String, f64)>,
}

impl Predicted {
    /// Those that race, by what their parts take; nothing where that is not known.
    pub(super) fn parts(&self) -> BTreeMap<String, f64> {
        self.racing.iter().cloned().collect()
    }

    fn of(&self, id: &str) -> Option<f64> {
        self.racing.iter().chain(&self.others).find(|(known, _)| known == id).map(|(_, seconds)| *seconds)
    }
}

struct Partitioned<D: Ground> {
    partition: NamedPartition,
    source: SourceHash,
    tuners: Arc<Tuners<D>>,
    predicted: Arc<OnceLock<Predicted>>,
}

/// The catalog of a graph.
pub(super) fn catalog<D: Ground>(
    plan: &Plan,
    tuners: &Arc<Tuners<D>>,
    predicted: &Arc<OnceLock<Predicted>>,
) -> Catalog<Graphs, D> {
    let variant = |partition: &NamedPartition| {
        // A chain is its kernels: where one of them is other code, it was never raced.
        let parts = plan.calls(partition).into_iter().map(|call| D::part(&call.task, tuners).sources());
        let sources = parts.collect::<Vec<_>>().join(";");
        let source = SourceHash::of(&[&partition.id, &sources]);
        let (partition, tuners, predicted) = (partition.clone(), tuners.clone(), predicted.clone());
        Arc::new(Partitioned { partition, source, tuners, predicted })
    };
    let (first, rest) = plan.partitions.split_at(1);
    let reference = first.first().map_or_else(|| variant(&plan.unfused()), variant);
    let catalog = rest.iter().map(variant).fold(Catalog::new(reference), |catalog, one| catalog.with(one));
    match Right::of(plan, tuners) {
        Some(right) => catalog.with_oracle(Arc::new(right)),
        None => catalog,
    }
}

impl<D: Ground> Variant<Graphs, D> for Partitioned<D> {
    fn id(&self) -> &str {
        &self.partition.id
    }

    fn source(&self) -> SourceHash {
        self.source.clone()
    }

    fn fit(&self, _: &GraphProblem, _: &D) -> Fit {
        let id = &self.partition.id;
        match self.predicted.get() {
            Some(predicted) if id != APART && !predicted.racing.iter().any(|(racing, _)| racing == id) => {
                match predicted.of(id).filter(|seconds| seconds.is_finite()) {
                    Some(seconds) => Fit::aside(format!("{:.1} µs", seconds * 1e6)),
                    None => Fit::aside("a part of it has no time"),
                }
            }
            _ => Fit::HIGH,
        }
    }

    fn space(&self, _: &GraphProblem, _: &D) -> Space {
        Space::single()
    }

    fn build(&self, problem: &GraphProblem, _: &Config, _: &D) -> Result<Box<dyn Kernel<D>>, Rejection> {
        let chain = Chain::new(problem, &self.partition, &self.tuners);
        Ok(Box::new(chain.map_err(|e| Rejection::DoesNotBuild { reason: e.to_string() })?))
    }
}
