//! A Variant: one explicit way to do an Op on a Device; a Kernel: a built Candidate.

use std::fmt;

use crate::candidate::SourceHash;
use crate::device::Device;
use crate::model::arg::Arg;
use crate::model::op::Op;
use crate::model::roofline::Ceilings;
use crate::rejection::Rejection;
use crate::resources::Resources;
use crate::space::{Config, Space};

/// How eagerly a variant should be raced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Raced only when nothing above was good enough.
    Low,
    /// Raced when no High candidate came near the roofline.
    Medium,
    /// Always raced.
    High,
}

impl Priority {
    /// One word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Priority::Low => "low",
            Priority::Medium => "medium",
            Priority::High => "high",
        }
    }
}

/// A variant's answer to a problem on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It can do this, and how eagerly it should be raced.
    Fits(Priority),
    /// It stands aside, and why.
    Aside(String),
}

impl Fit {
    /// Shorthand: always raced.
    pub const HIGH: Fit = Fit::Fits(Priority::High);
    /// Shorthand: raced when no High candidate came near the roofline.
    pub const MEDIUM: Fit = Fit::Fits(Priority::Medium);
    /// Shorthand: raced only when nothing above was good enough.
    pub const LOW: Fit = Fit::Fits(Priority::Low);

    /// It stands aside for a reason.
    pub fn aside(reason: impl fmt::Display) -> Fit {
        Fit::Aside(reason.to_string())
    }
}

/// What a candidate takes of the device's limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Threads.
    pub threads: u64,
    /// Bytes of workspace.
    pub workspace: u64,
    /// Bytes of shared memory of one block.
    pub shared_memory: u64,
    /// Registers of one thread.
    pub registers: u64,
}

/// One explicit way to do an operation on a device. Object-safe: a catalog is an ordered list of these.
pub trait Variant<O: Op, D: Device>: Send + Sync {
    /// Its id: file stem and kernel entry name. Records name it.
    fn id(&self) -> &str;

    /// Identity of the code behind it.
    fn source(&self) -> SourceHash;

    /// Whether it can do a problem on a device, and how eagerly it should be raced.
    fn fit(&self, problem: &O::Problem, device: &D) -> Fit;

    /// Its tunables for a problem.
    fn space(&self, problem: &O::Problem, device: &D) -> Space;

    /// What a setting takes of the device's limits.
    fn needs(&self, _problem: &O::Problem, _config: &Config) -> Needs {
        Needs::default()
    }

    /// The least seconds a setting can take (one thread of two has half the ceiling); a setting whose floor is above
    /// the best time seen is not built.
    fn floor(&self, _problem: &O::Problem, _config: &Config, _ceilings: &Ceilings) -> Option<f64> {
        None
    }

    /// The part of building that can run ahead of a candidate's turn, on another thread: compiling, so that `build`
    /// finds the compiled bytes. Nothing is loaded or run.
    fn compile(&self, _problem: &O::Problem, _config: &Config, _device: &D) -> Result<(), Rejection> {
        Ok(())
    }

    /// Builds a kernel for exactly this problem and setting.
    fn build(&self, problem: &O::Problem, config: &Config, device: &D) -> Result<Box<dyn Kernel<D>>, Rejection>;

    /// Whether this is an official library's implementation, for the comparison column of reports.
    fn is_library(&self) -> bool {
        false
    }

    /// Whether this is the very call that the host program would make without us: it answers while nothing is decided.
    fn is_usual(&self) -> bool {
        false
    }
}

/// What a kernel that gave the right answer showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proof {
    /// The largest share of the allowed error.
    pub error: f64,
    /// Seconds the first launch took, on devices where a launch is a call. Not a measurement: caches were cold.
    pub seconds: Option<f64>,
}

/// A built Candidate. It may be launched from many threads at once.
pub trait Kernel<D: Device>: Send + Sync {
    /// Queues one run on the arguments of the problem it was built for, one a slot: whoever got it from a catalog need
    /// not check that they fit, its kernels refuse all others. On the CPU it has ended when this returns.
    fn launch(&self, args: &mut [Arg<'_, D>], queue: &D::Queue) -> Result<(), Rejection>;

    /// For a kernel that brings its own arguments (a callable on a caller's objects): runs it once on them, poisoned
    /// where it is to write, and judges what it left. `None`: it is proved on the memory it is launched on.
    fn prove(&self) -> Option<Result<Proof, Rejection>> {
        None
    }

    /// Whether a timed launch writes its outputs: one that gives its callers new ones leaves those of the race alone.
    fn writes(&self) -> bool {
        true
    }

    /// Bytes of workspace one launch takes.
    fn workspace(&self) -> u64 {
        0
    }

    /// What it takes of a multiprocessor, where its device tells.
    fn resources(&self) -> Option<Resources> {
        None
    }
}
