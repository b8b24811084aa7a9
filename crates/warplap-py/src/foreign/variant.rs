//! A callable as a variant of an operation: a problem comes in as text; what the callable says of it goes out.

use std::marker::PhantomData;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use warplap::core::candidate::SourceHash;
use warplap::core::op::Op;
use warplap::core::rejection::Rejection;
use warplap::core::space::{Axis, Config, Space};
use warplap::core::variant::{Fit, Kernel, Variant};

use super::kernel::ForeignKernel;
use super::{Choice, Foreigner, settings};
use crate::tensor::kernel_argument::LaunchDevice;

/// A foreign callable as a variant of an operation.
pub(crate) struct Foreign<O> {
    face: Arc<Foreigner>,
    op: PhantomData<fn() -> O>,
}

impl<O> Foreign<O> {
    pub(crate) fn new(face: Arc<Foreigner>) -> Self {
        Foreign { face, op: PhantomData }
    }
}

impl<O: Op, D: LaunchDevice> Variant<O, D> for Foreign<O> {
    fn id(&self) -> &str {
        &self.face.id
    }

    fn source(&self) -> SourceHash {
        self.face.source.clone()
    }

    fn fit(&self, problem: &O::Problem, _: &D) -> Fit {
        let Some(fit) = &self.face.fit else { return Fit::HIGH };
        Python::attach(|py| match fit.bind(py).call1((O::text(problem),)).and_then(|a| a.extract::<Option<String>>()) {
            Ok(None) => Fit::HIGH,
            Ok(Some(reason)) => Fit::Aside(reason),
            Err(error) => Fit::Aside(format!("asking whether it fits failed: {error}")),
        })
    }

    fn space(&self, problem: &O::Problem, _: &D) -> Space {
        let Some(space) = &self.face.space else { return Space::single() };
        type Axes = Vec<(String, Vec<i64>)>;
        let asked = |py: Python<'_>| -> PyResult<Axes> {
            space
                .bind(py)
                .call1((O::text(problem),))?
                .cast_into::<PyDict>()?
                .iter()
                .map(|(n, v)| Ok((n.extract()?, v.extract()?)))
                .collect()
        };
        let axes = Python::attach(asked).unwrap_or_else(|error| {
            tracing::warn!("variant {}: its space failed: {error}", self.face.id);
            vec![("failed".into(), Vec::new())]
        });
        axes.into_iter().fold(Space::single(), |space, (name, values)| space.axis(Axis::ints(&name, values)))
    }

    fn compile(&self, problem: &O::Problem, config: &Config, _: &D) -> Result<(), Rejection> {
        let Some(prepare) = &self.face.prepare else { return Ok(()) };
        let asked = |py: Python<'_>| -> PyResult<()> {
            prepare.bind(py).call((O::text(problem),), Some(&settings(py, config)?)).map(drop)
        };
        Python::attach(asked).map_err(|e| Rejection::DoesNotBuild { reason: e.to_string() })
    }

    fn build(&self, problem: &O::Problem, config: &Config, device: &D) -> Result<Box<dyn Kernel<D>>, Rejection> {
        let (text, signature) = (O::text(problem), O::signature(problem));
        let choice = Python::attach(|py| Choice::new(py, self.face.clone(), &text, &signature, config));
        let choice = choice.map_err(|e| Rejection::DoesNotBuild { reason: e.to_string() })?;
        Ok(Box::new(ForeignKernel::new(choice, signature, device.place())))
    }

    fn is_library(&self) -> bool {
        self.face.is_library()
    }

    fn is_usual(&self) -> bool {
        self.face.is_library() // of torch's: what its users would call
    }
}
