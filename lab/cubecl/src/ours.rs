//! Ours: a session that knows the same shapes, and stores of many records to be opened.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use warplap::core::device::Device;
use warplap::core::key::Key;
use warplap::core::measure::Policy;
use warplap::core::progress::Silent;
use warplap::core::record::{TuningRun, Record, SCHEMA};
use warplap::core::store::bundle::Bundle;
use warplap::core::store::{Match, Store};
use warplap::core::variant::Kernel;
use warplap::{Bucket, Budget, Cpu, DType, Error, Gemm, GemmProblem, Mode, Op, Session};

use crate::rival::Shape;

/// A session with built kernels.
pub struct Ours {
    session: Session,
    problems: Vec<GemmProblem>,
}

impl Ours {
    pub fn ready(shapes: &[Shape]) -> Result<Self, Error> {
        let session = Session::builder().in_memory().mode(Mode::Off).build();
        let problem = |s: &Shape| GemmProblem::new(s.m as u64, s.n as u64, s.k as u64, DType::F32);
        let problems: Vec<GemmProblem> = shapes.iter().map(problem).collect();
        for problem in &problems {
            session.tuner::<Gemm>().prepare(problem)?;
        }
        Ok(Ours { session, problems })
    }

    /// From problem to built kernel, and one call into it.
    #[inline]
    pub fn hit(&self, i: usize) {
        let problem = black_box(&self.problems[i % self.problems.len()]);
        black_box(self.session.tuner::<Gemm>().with_kernel(problem, |kernel| black_box(kernel.workspace())).is_ok());
    }

    /// A kernel to be kept.
    pub fn prepared(&self) -> Result<Arc<dyn Kernel<Gemm, Cpu>>, Error> {
        self.session.tuner::<Gemm>().prepare(&self.problems[0])
    }

    pub fn chip(&self) -> String {
        self.session.device().fingerprint().hard.get("model").cloned().unwrap_or_default()
    }
}

/// Stores of records as a tuner leaves them: one real edition under many keys.
pub struct Stores {
    device: Arc<Cpu>,
    edition: TuningRun,
}

impl Stores {
    /// Races one small problem for the edition.
    pub fn new() -> Result<Self, Error> {
        let budget = Budget { seconds: 2.0, ..Budget::default() };
        let session = Session::builder().in_memory().budget(budget).build();
        let tuned = session.tuner::<Gemm>().tune(&GemmProblem::new(96, 96, 96, DType::F32), &Silent)?;
        Ok(Stores { device: session.device().clone(), edition: tuned.edition })
    }

    /// Puts `count` records into the store at `root`, unless they are there from an earlier run.
    pub fn fill(&self, root: &Path, count: u64) -> Result<(), Box<dyn std::error::Error>> {
        let store = Store::directory(root)?;
        let device = self.device.fingerprint();
        let there = |i| matches!(store.lookup(&key(i), device), Match::Exact(_));
        if (0..count).step_by(97).all(there) && there(count - 1) {
            return Ok(());
        }
        let record = |i| Record {
            schema: SCHEMA,
            op: Gemm::NAME.into(),
            key: key(i).text,
            problem: Gemm::text(&problem(i)),
            device: device.hard.clone(),
            editions: vec![self.edition.clone()],
        };
        let imported = Bundle::of_records((0..count).map(record)).put_into(&store)?;
        if imported.added + imported.joined + imported.unchanged != count as usize {
            return Err(format!("{}: {imported:?}", root.display()).into());
        }
        Ok(())
    }

    /// Milliseconds from nothing to the first answer, for `times` records spread over the store.
    pub fn open(&self, root: &Path, count: u64, times: u64) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
        let mut all = Vec::new();
        for i in 0..times {
            let key = key(i * (count / times));
            let start = Instant::now();
            let lookup = Store::directory(root)?.lookup(&key, self.device.fingerprint());
            all.push(start.elapsed().as_secs_f64() * 1e3);
            assert!(matches!(lookup, Match::Exact(_)), "{key}: {lookup:?}");
        }
        Ok(all)
    }
}

fn problem(i: u64) -> GemmProblem {
    GemmProblem::new(1 + i % 1_000, 1 + i / 1_000, 64, DType::F32)
}

fn key(i: u64) -> Key {
    Key::of::<Gemm>(&problem(i), &Bucket::Exact, Policy::default())
}
