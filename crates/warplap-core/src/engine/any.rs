//! A tuner of some operation, for programs that learn at run time what they are asked for. Problem texts come in; what
//! the tuner says goes out.

use crate::candidate::Candidate;
use crate::device::Device;
use crate::engine::compare::bench::Benched;
use crate::engine::compare::regret::Regret;
use crate::engine::progress::Observer;
use crate::engine::{How, Proved, Provisional, StoredAnswer, Tuned, Tuner, VariantStatus};
use crate::error::Error;
use crate::key::Key;
use crate::model::op::Op;
use crate::model::problem::ProblemError;
use crate::record::Record;
use crate::rejection::Rejection;
use crate::space::{Config, Space};
use crate::split::{Gathered, GpuContest, Part};

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
    /// As [`AnyTuner::tune`], but what is known answers at once, provisional or not.
    fn ensure(&self, problem: &str, observer: &dyn Observer) -> Result<Tuned, Error>;
    /// Races a part of a problem's space on this device, which is called `card`; records nothing.
    fn race_part(&self, problem: &str, erased: &str, part: &Part, observer: &dyn Observer)
    -> Result<GpuContest, Error>;
    /// Records what several devices of this one's class gathered, once the winner has passed here.
    fn keep_gathered(&self, problem: &str, all: Gathered, observer: &dyn Observer) -> Result<Tuned, Error>;
    /// The provisional keys of the tuner's settings, the oldest first: [`AnyTuner::tune`] of their problems goes on.
    fn provisional(&self) -> Vec<Provisional>;
    /// Proves the winner of a record and its ties here; `None` where there is nothing to prove ([`Tuner::prove`]).
    fn prove(&self, record: &Record) -> Option<Proved>;
    /// Chooses by the tuner's mode.
    fn choose(&self, problem: &str) -> Result<(Candidate, How), Error>;
    /// What the store knows; measures nothing.
    fn find(&self, problem: &str) -> Result<StoredAnswer, Error>;
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
    fn variants(&self, problem: Option<&str>) -> Result<Vec<VariantStatus>, Error>;
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

    fn ensure(&self, problem: &str, observer: &dyn Observer) -> Result<Tuned, Error> {
        Tuner::ensure(self, &O::parse(problem)?, observer)
    }

    fn race_part(
        &self,
        problem: &str,
        erased: &str,
        part: &Part,
        observer: &dyn Observer,
    ) -> Result<GpuContest, Error> {
        Tuner::race_part(self, &O::parse(problem)?, erased, part, observer)
    }

    fn keep_gathered(&self, problem: &str, all: Gathered, observer: &dyn Observer) -> Result<Tuned, Error> {
        Tuner::keep_gathered(self, &O::parse(problem)?, all, observer)
    }

    fn provisional(&self) -> Vec<Provisional> {
        Tuner::provisional(self)
    }

    fn prove(&self, record: &Record) -> Option<Proved> {
        Tuner::prove(self, record)
    }

    fn choose(&self, problem: &str) -> Result<(Candidate, How), Error> {
        let chosen = Tuner::choose(self, &O::parse(problem)?)?;
        Ok((chosen.candidate, chosen.how))
    }

    fn find(&self, problem: &str) -> Result<StoredAnswer, Error> {
        Ok(self.engine.find(&self.erased(&O::parse(problem)?)))
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
        self.engine.compile(&self.erased(&O::parse(problem)?), variant, config)
    }

    fn space(&self, problem: &str, variant: &str) -> Result<Space, Error> {
        self.engine.space(&self.erased(&O::parse(problem)?), variant)
    }

    fn regret(&self, problem: &str, observer: &dyn Observer) -> Result<Regret, Error> {
        Tuner::regret(self, &O::parse(problem)?, observer)
    }

    fn variants(&self, problem: Option<&str>) -> Result<Vec<VariantStatus>, Error> {
        if let Some(text) = problem {
            return Ok(self.engine.standings(&self.erased(&O::parse(text)?)));
        }
        let stand = |(at, v): (usize, &std::sync::Arc<dyn crate::candidates::variant::Variant<O, D>>)| VariantStatus {
            id: v.id().to_string(),
            source: v.source(),
            reference: at == 0,
            library: v.is_library(),
            fit: None,
            configs: 0,
            axes: Vec::new(),
        };
        Ok(self.catalog().variants().iter().enumerate().map(stand).collect())
    }
}
