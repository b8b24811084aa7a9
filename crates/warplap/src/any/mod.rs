//! The type-erased door: an operation by its name, for programs that learn at run time what they are asked for. Problem
//! texts come in; what the tuner says goes out.
//!
//! [`OPERATIONS`] is the one ordered list: adding an operation to every program behind this door is one line there.

mod device;

pub use device::{AnyDevice, Wanted};

use std::sync::Arc;

use warplap_core::bench::Benched;
use warplap_core::candidate::{Candidate, SourceHash};
use warplap_core::device::Device;
use warplap_core::error::Error;
use warplap_core::key::Key;
use warplap_core::op::Op;
use warplap_core::problem::{Problem, ProblemError};
use warplap_core::progress::Observer;
use warplap_core::prune::prune;
use warplap_core::record::{Edition, Record};
use warplap_core::regret::Regret;
use warplap_core::rejection::Rejection;
use warplap_core::settings::Settings;
use warplap_core::space::{Config, Space};
use warplap_core::store::{Match, Store};
use warplap_core::tuner::{How, Tuned, Tuner};
use warplap_core::variant::{Fit, Variant};
use warplap_cpu::Cpu;
use warplap_cuda::{Cuda, Ground};
use warplap_ops::attention::Attention;
use warplap_ops::bsr::Bsr;
use warplap_ops::gemm::Gemm;
use warplap_ops::sampled::Sampled;

use crate::races::Races;

type Open = fn(&AnyDevice, Arc<dyn Store>, Settings) -> Box<dyn AnyTuner>;

/// An operation by name.
pub struct Operation {
    /// Its name in problem texts.
    pub name: &'static str,
    /// Other names that are understood.
    pub aliases: &'static [&'static str],
    /// A problem to begin with.
    pub example: &'static str,
    read: fn(&str) -> Result<String, ProblemError>,
    open: Open,
    ground: fn() -> Ground,
}

/// The operations there are, in the order they are shown.
pub const OPERATIONS: &[Operation] = &[
    known::<Gemm>(&["matmul"], "gemm:m=1024,n=1024,k=1024,dtype=f32"),
    known::<Attention>(&["sdpa"], "attention:b=1,h=8,sq=512,sk=512,d=64,dtype=f32,causal=false"),
    known::<Bsr>(&["bsr_matmul"], "bsr:m=4096,k=4096,n=512,bs=64,density=0.125,dtype=f32"),
    known::<Sampled>(&["sddmm"], "sampled:m=4096,k=4096,n=512,bs=64,density=0.125,dtype=f32"),
];

const fn known<O: Op>(aliases: &'static [&'static str], example: &'static str) -> Operation
where
    Cpu: Races<O>,
    Cuda: Races<O>,
{
    Operation { name: O::NAME, aliases, example, read: read::<O>, open: open::<O>, ground: ground::<O> }
}

fn read<O: Op>(fields: &str) -> Result<String, ProblemError> {
    O::parse(fields).map(|problem| O::text(&problem))
}

fn open<O: Op>(device: &AnyDevice, store: Arc<dyn Store>, settings: Settings) -> Box<dyn AnyTuner>
where
    Cpu: Races<O>,
    Cuda: Races<O>,
{
    match device {
        AnyDevice::Cpu(cpu) => Box::new(Tuner::new(cpu.clone(), Cpu::catalog(), store, settings)),
        AnyDevice::Cuda(cuda) => Box::new(Tuner::new(cuda.clone(), Cuda::catalog(), store, settings)),
    }
}

fn ground<O: Op>() -> Ground
where
    Cuda: Races<O>,
{
    Ground::of(<Cuda as Races<O>>::catalog)
}

impl Operation {
    /// What a worker process proves candidates of it on.
    pub(crate) fn ground(&self) -> Ground {
        (self.ground)()
    }

    /// A tuner for it on a device.
    pub fn open(&self, device: &AnyDevice, store: Arc<dyn Store>, settings: Settings) -> Box<dyn AnyTuner> {
        (self.open)(device, store, settings)
    }

    /// Reads a problem's fields, without the operation's name, and gives the problem in its one text form.
    pub fn read(&self, fields: &str) -> Result<String, ProblemError> {
        (self.read)(fields)
    }
}

/// The operation of this name or alias.
pub fn operation(name: &str) -> Result<&'static Operation, ProblemError> {
    let name = name.trim();
    OPERATIONS.iter().find(|op| op.name == name || op.aliases.contains(&name)).ok_or_else(|| {
        let known = OPERATIONS.iter().map(|op| op.name).collect::<Vec<_>>().join(", ");
        ProblemError::UnknownOp { name: name.into(), known }
    })
}

/// Reads `op:field=value,…`, or fields alone where the operation is known, and gives the operation and the problem in
/// its one text form.
pub fn problem(text: &str, usual: Option<&'static Operation>) -> Result<(&'static Operation, String), ProblemError> {
    let (op, fields) = match (text.split_once(':'), usual) {
        (Some((name, fields)), _) => (operation(name)?, fields),
        (None, Some(op)) => (op, text),
        (None, None) => return Err(ProblemError::Form { text: text.into() }),
    };
    Ok((op, op.read(fields)?))
}

/// A variant as it stands to a problem.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Its id.
    pub id: String,
    /// The code behind it.
    pub source: SourceHash,
    /// Whether it is the reference.
    pub reference: bool,
    /// Whether it is an official library's implementation.
    pub library: bool,
    /// Its answer to the problem, where one was given.
    pub fit: Option<Fit>,
    /// Legal configs within the device's limits.
    pub configs: usize,
    /// Its axes and their values.
    pub axes: Vec<(String, Vec<String>)>,
}

/// What the store knows of a problem.
#[derive(Clone, Debug)]
pub struct Found {
    /// The key it was looked up by.
    pub key: Key,
    /// How the winner would be used; `None` on a miss.
    pub how: Option<How>,
    /// How the lookup matched, in one sentence.
    pub matched: String,
    /// The edition that answers.
    pub edition: Option<Edition>,
    /// Everything the store holds about the key.
    pub record: Option<Record>,
    /// Variants that fit and that the edition has not met in their present form.
    pub newcomers: Vec<String>,
}

/// A tuner of some operation. Problems are texts; every method reads them again.
pub trait AnyTuner: Send + Sync {
    /// The operation's name.
    fn op(&self) -> &'static str;
    /// The folder name of the device.
    fn device_slug(&self) -> String;
    /// The key of a problem.
    fn key(&self, problem: &str) -> Result<Key, ProblemError>;
    /// Tunes, or answers from the store.
    fn tune(&self, problem: &str, observer: &dyn Observer) -> Result<Tuned, Error>;
    /// Chooses by the tuner's mode.
    fn choose(&self, problem: &str) -> Result<(Candidate, How), Error>;
    /// What the store knows; measures nothing.
    fn find(&self, problem: &str) -> Result<Found, Error>;
    /// Verifies and times one variant alone.
    fn bench(
        &self,
        problem: &str,
        variant: &str,
        config: Option<&Config>,
        samples: u32,
    ) -> Result<Result<Benched, Rejection>, Error>;
    /// Threads that may compile at once; 0 where nothing is compiled.
    fn builders(&self) -> usize;
    /// Compiles one config, so that [`AnyTuner::bench`] finds it done.
    fn compile(&self, problem: &str, variant: &str, config: &Config) -> Result<Result<(), Rejection>, Error>;
    /// A variant's space for a problem.
    fn space(&self, problem: &str, variant: &str) -> Result<Space, Error>;
    /// What the tuner's bucket costs a problem.
    fn regret(&self, problem: &str, observer: &dyn Observer) -> Result<Regret, Error>;
    /// The variants in their order, as they stand to a problem where one is given.
    fn variants(&self, problem: Option<&str>) -> Result<Vec<Standing>, Error>;
}

impl<O: Op, D: Device> AnyTuner for Tuner<O, D> {
    fn op(&self) -> &'static str {
        O::NAME
    }

    fn device_slug(&self) -> String {
        self.device().fingerprint().slug()
    }

    fn key(&self, problem: &str) -> Result<Key, ProblemError> {
        Ok(Tuner::key(self, &O::parse(problem)?))
    }

    fn tune(&self, problem: &str, observer: &dyn Observer) -> Result<Tuned, Error> {
        Tuner::tune(self, &O::parse(problem)?, observer)
    }

    fn choose(&self, problem: &str) -> Result<(Candidate, How), Error> {
        let chosen = Tuner::choose(self, &O::parse(problem)?)?;
        Ok((chosen.candidate, chosen.how))
    }

    fn find(&self, problem: &str) -> Result<Found, Error> {
        let problem = O::parse(problem)?;
        let key = Tuner::key(self, &problem);
        let (soft, local) = (self.device().fingerprint().soft_id(), self.store().id());
        let how = self.lookup(&key).map(|(_, how)| how);
        let (matched, edition, record) = match self.store().lookup(&key, self.device().fingerprint()) {
            Match::Exact(record) => {
                let edition = record.current(&soft, local).cloned();
                let here = edition.as_ref().is_some_and(|e| e.origin == local);
                let matched = match (how == Some(How::Stale), here) {
                    (true, _) => "exact, but the winner's code has changed since: the next tune races it again",
                    (false, true) => "exact: measured on this device under its present versions",
                    (false, false) => "exact: imported from another store for this very kind of device",
                };
                (matched.to_string(), edition, Some(*record))
            }
            Match::Near(record) => {
                let matched = "near: this device, but measured under other library versions (stale)".to_string();
                (matched, record.stale(&soft, local).cloned(), Some(*record))
            }
            Match::Foreign(record, slug) => {
                (format!("foreign: measured on another device, {slug}"), record.editions.last().cloned(), Some(*record))
            }
            Match::Miss => ("miss: the store does not know the key".to_string(), None, None),
        };
        let raced = problem.representative(&self.settings().bucket);
        let (listed, _) = self.catalog().list(&raced, self.device());
        let met = |id: &str, source: &SourceHash, e: &Edition| {
            e.trials.iter().any(|t| t.candidate.variant == id && t.candidate.source == *source)
                || e.skipped.iter().any(|s| s.variant == id && s.source == *source)
        };
        let new = |e: &Edition| {
            let all = listed.iter().map(|l| &l.variant);
            all.filter(|v| !met(v.id(), &v.source(), e)).map(|v| v.id().to_string()).collect()
        };
        let newcomers = edition.as_ref().map(new).unwrap_or_default();
        Ok(Found { key, how, matched, edition, record, newcomers })
    }

    fn bench(
        &self,
        problem: &str,
        variant: &str,
        config: Option<&Config>,
        samples: u32,
    ) -> Result<Result<Benched, Rejection>, Error> {
        Tuner::bench(self, &O::parse(problem)?, variant, config, samples)
    }

    fn builders(&self) -> usize {
        self.device().builders()
    }

    fn compile(&self, problem: &str, variant: &str, config: &Config) -> Result<Result<(), Rejection>, Error> {
        Ok(named(self, variant)?.compile(&O::parse(problem)?, config, self.device()))
    }

    fn space(&self, problem: &str, variant: &str) -> Result<Space, Error> {
        Ok(named(self, variant)?.space(&O::parse(problem)?, self.device()))
    }

    fn regret(&self, problem: &str, observer: &dyn Observer) -> Result<Regret, Error> {
        Tuner::regret(self, &O::parse(problem)?, observer)
    }

    fn variants(&self, problem: Option<&str>) -> Result<Vec<Standing>, Error> {
        let problem = problem.map(O::parse).transpose()?;
        let catalog = self.catalog();
        let pruned = problem.as_ref().map(|p| prune(&catalog.list(p, self.device()).0, p, &**self.device()));
        let stand = |v: &Arc<dyn Variant<O, D>>| {
            let arm = pruned.as_ref().and_then(|p| p.arms.iter().find(|a| a.variant == v.id()));
            let values = |a: &warplap_core::space::Axis| a.values().iter().map(ToString::to_string).collect();
            let axes = |s: &Space| s.axes().iter().map(|a| (a.name().to_string(), values(a))).collect();
            Standing {
                id: v.id().to_string(),
                source: v.source(),
                reference: v.id() == catalog.reference().id(),
                library: v.is_library(),
                fit: problem.as_ref().map(|p| v.fit(p, self.device())),
                configs: arm.map_or(0, |a| usize::try_from(a.len()).unwrap_or(usize::MAX)),
                axes: arm.map(|a| axes(&a.space)).unwrap_or_default(),
            }
        };
        Ok(catalog.variants().iter().map(stand).collect())
    }
}

/// The variant of this id.
fn named<'t, O: Op, D: Device>(tuner: &'t Tuner<O, D>, id: &str) -> Result<&'t Arc<dyn Variant<O, D>>, Error> {
    tuner.catalog().find(id).ok_or_else(|| {
        let known = tuner.catalog().variants().iter().map(|v| v.id()).collect::<Vec<_>>().join(", ");
        Error::Unknown(format!("unknown variant '{id}': expected one of {known}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_reads_its_own_example_and_has_a_name_of_its_own() {
        let mut names = std::collections::HashSet::new();
        for op in OPERATIONS {
            assert_eq!(problem(op.example, None).unwrap().1, op.example);
            assert!(names.insert(op.name) && op.aliases.iter().all(|a| names.insert(a)), "{}", op.name);
        }
    }

    #[test]
    fn an_unknown_operation_is_answered_with_those_there_are() {
        let error = problem("gem:m=1", None).err().unwrap().to_string();
        assert!(error.contains("'gem'") && error.contains("gemm"), "{error}");
        assert!(problem("m=1", None).is_err());
        assert_eq!(problem("m=1,n=2,k=3", operation("matmul").ok()).unwrap().1, "gemm:m=1,n=2,k=3,dtype=f32");
    }
}
