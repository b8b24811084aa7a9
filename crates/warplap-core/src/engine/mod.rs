//! The tuner: the corridor from request to dispatch. It calls the rooms in order and has no arithmetic of its own.

mod admit;
mod any;
pub mod background;
mod build;
pub(crate) mod compare;
mod contest_key;
pub(crate) mod known;
mod log;
pub mod progress;
mod prove_imported;
mod run;
pub mod settings;
mod shard_search;
mod tuning_engine;
mod wait_for_lock;

use std::fmt;
use std::sync::Arc;

use crate::candidate::Candidate;
use crate::candidates::catalog::Catalog;
use crate::candidates::variant::Kernel;
use crate::device::Device;
use crate::dispatch::Dispatch;
use crate::engine::compare::bench::Benched;
use crate::engine::compare::regret::Regret;
use crate::engine::progress::{Observer, Silent};
use crate::engine::settings::Settings;
use crate::error::Error;
use crate::key::Key;
use crate::measure::timing::Stages;
use crate::model::arg::Arg;
use crate::model::erased::{ErasedProblem, TypedProblem};
use crate::model::op::Op;
use crate::record::{Record, TuningRun};
use crate::rejection::Rejection;
use crate::space::Config;
use crate::store::Store;

pub use any::AnyTuner;
pub use compare::end_to_end::Rival;
pub use known::provisional::Provisional;
pub(crate) use known::status::named;
pub use known::status::{StoredAnswer, VariantStatus};
pub use prove_imported::Proved;
pub use tuning_engine::TuningEngine;

/// How a candidate was chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum How {
    /// It was raced just now.
    Raced,
    /// The store knew the key.
    Stored,
    /// The store knew the key under other driver or library versions, or for other code of the winner.
    Stale,
    /// Another device's record knew the key.
    Foreign(String),
    /// Nobody knew: the first choice by priority, and why nothing was raced.
    Default(String),
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            How::Raced => f.write_str("it was raced just now"),
            How::Stored => f.write_str("the store knew it"),
            How::Stale => f.write_str("the store knew it from other versions"),
            How::Foreign(slug) => write!(f, "the store knew it from another device, {slug}"),
            How::Default(why) => f.write_str(why),
        }
    }
}

/// A candidate chosen for a problem, and its kernel.
pub struct Chosen<D: Device> {
    /// Who.
    pub candidate: Candidate,
    /// How it was chosen.
    pub how: How,
    /// Built for exactly the problem asked for.
    pub kernel: Arc<dyn Kernel<D>>,
}

/// What is known about a key after tuning it.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The key.
    pub key: Key,
    /// The problem that was asked for.
    pub problem: String,
    /// The size that was measured, where that is another one of the key: times in the edition are of that one.
    pub measured_at: Option<String>,
    /// Verdict and trials.
    pub edition: TuningRun,
    /// Whether the store answered and nothing was measured.
    pub from_store: bool,
    /// What became of a provisional record that was there, in one sentence.
    pub note: Option<String>,
    /// What could not be kept, if anything: the answer holds, the record is lost.
    pub warning: Option<String>,
    /// Where the seconds went.
    pub stages: Stages,
    /// Whether kernels of a former winner of the key may be ready for problems of it.
    pub(crate) replaced: bool,
}

/// Races the variants of one operation on one device and remembers the winners.
pub struct Tuner<O: Op, D: Device> {
    catalog: Catalog<O, D>,
    engine: TuningEngine<D>,
    ready: Arc<Dispatch<O::Problem, dyn Kernel<D>>>,
}

impl<O: Op, D: Device> Tuner<O, D> {
    /// A tuner over a catalog and a store.
    pub fn new(device: Arc<D>, catalog: Catalog<O, D>, store: Store, settings: Settings) -> Self {
        let tuner = Tuner { catalog, engine: TuningEngine::new(device, store, settings), ready: Arc::default() };
        let renewal = tuner.renewal();
        tuner.when_replaced(renewal);
        tuner
    }

    /// Chooses anew for all problems that kernels are ready for: to be called by the thread that raced, so that no
    /// caller waits for a kernel to be built, or for the store.
    fn renewal(&self) -> impl Fn() + Send + Sync + 'static {
        let (catalog, ready, known) = (self.catalog.clone(), self.ready.clone(), Arc::downgrade(&self.engine.known));
        let TuningEngine { device, store, settings, .. } = &self.engine;
        let (device, store, settings) = (device.clone(), store.clone(), settings.clone());
        move || {
            let Some(known) = known.upgrade() else { return };
            let engine = TuningEngine { known, ..TuningEngine::new(device.clone(), store.clone(), settings.clone()) };
            for problem in ready.problems() {
                let erased = TypedProblem::<O, D>::new(&problem, &catalog);
                let choose = || engine.choose(&erased, device.queue(), &Silent);
                match device.beside_capture(choose) {
                    Ok((chosen, true)) => ready.put(problem, chosen.kernel),
                    _ => return ready.clear(),
                }
            }
        }
    }

    /// Lets somebody hear when a winner takes over from whoever answered while it was raced in the background: kernels
    /// that were chosen before are out of date.
    pub fn when_replaced(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.engine.known.listen(Box::new(listener));
    }

    /// Whether a candidate is what answers for a problem's key now.
    pub fn answers(&self, problem: &O::Problem, candidate: &Candidate) -> bool {
        self.engine.answers(&self.key(problem), candidate)
    }

    /// The device.
    pub fn device(&self) -> &Arc<D> {
        &self.engine.device
    }

    /// Who may race.
    pub fn catalog(&self) -> &Catalog<O, D> {
        &self.catalog
    }

    /// How it behaves.
    pub fn settings(&self) -> &Settings {
        &self.engine.settings
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.engine.store
    }

    /// A problem with who may race for it.
    pub fn erased(&self, problem: &O::Problem) -> TypedProblem<O, D> {
        TypedProblem::new(problem, &self.catalog)
    }

    /// The key of a problem.
    pub fn key(&self, problem: &O::Problem) -> Key {
        self.engine.key(&self.erased(problem))
    }

    /// Does the operation with the kernel of choice, on one argument a slot of its signature. A known problem costs one
    /// hash and one call. Arguments that do not fit the signature are refused by the name of the first one.
    #[inline]
    pub fn launch(&self, problem: &O::Problem, args: &mut [Arg<'_, D>], queue: &D::Queue) -> Result<(), Error> {
        let outcome = match self.ready.with(problem, |kernel| kernel.launch(args, queue)) {
            Ok(outcome) => outcome,
            Err(_) => {
                O::signature(problem).check(args)?;
                self.with_chosen(problem, queue, |kernel| kernel.launch(args, queue))?
            }
        };
        outcome.map_err(|rejection| self.failed(problem, args, rejection))
    }

    /// Whether the winner of a problem's key is known to this process: then choosing races nothing and reads no store.
    pub fn knows_key(&self, problem: &O::Problem) -> bool {
        self.engine.knows(&self.key(problem))
    }

    /// Hands the kernel of a known problem to `f`, or gives `f` back where nobody has chosen one yet: then a caller may
    /// let others go on while it chooses.
    #[inline]
    pub fn with_known<R, F: FnOnce(&(dyn Kernel<D> + 'static)) -> R>(
        &self,
        problem: &O::Problem,
        f: F,
    ) -> Result<R, F> {
        self.ready.with(problem, f)
    }

    /// Chooses a kernel for somebody who launches on this queue and hands it to `f`. While the queue is being captured
    /// nothing is raced, and neither building the kernel nor its first launch harms the capture.
    pub fn with_chosen<R>(
        &self,
        problem: &O::Problem,
        queue: &D::Queue,
        f: impl FnOnce(&(dyn Kernel<D> + 'static)) -> R,
    ) -> Result<R, Error> {
        let go = || Ok(f(&*self.chosen(problem, queue, &Silent)?.kernel));
        match self.device().busy(queue) {
            // A library may load its kernel when it is first launched.
            Some(_) => self.device().beside_capture(go),
            None => go(),
        }
    }

    /// Hands the kernel of choice to `f`; a known problem costs one hash. For callers that launch it themselves.
    #[inline]
    pub fn with_kernel<R>(
        &self,
        problem: &O::Problem,
        f: impl FnOnce(&(dyn Kernel<D> + 'static)) -> R,
    ) -> Result<R, Error> {
        match self.ready.with(problem, f) {
            Ok(result) => Ok(result),
            Err(f) => Ok(f(&*self.choose(problem)?.kernel)),
        }
    }

    /// The kernel of choice, to be kept by the caller: launching it does no lookup at all.
    pub fn prepare(&self, problem: &O::Problem) -> Result<Arc<dyn Kernel<D>>, Error> {
        Ok(self.choose(problem)?.kernel)
    }

    /// Chooses by mode: the store's winner, a race, or the first choice by priority.
    pub fn choose(&self, problem: &O::Problem) -> Result<Chosen<D>, Error> {
        self.choose_on(problem, self.device().queue())
    }

    /// As [`Tuner::choose`], for somebody who will launch on this queue: while it is being captured nothing is raced.
    pub fn choose_on(&self, problem: &O::Problem, queue: &D::Queue) -> Result<Chosen<D>, Error> {
        self.choose_watched(problem, queue, &Silent)
    }

    /// As [`Tuner::choose_on`], where somebody hears of a race.
    pub fn choose_watched(
        &self,
        problem: &O::Problem,
        queue: &D::Queue,
        observer: &dyn Observer,
    ) -> Result<Chosen<D>, Error> {
        match self.device().busy(queue) {
            // Even asking who fits may open a library, which a capture would take for a part of itself.
            Some(_) => self.device().beside_capture(|| self.chosen(problem, queue, observer)),
            None => self.chosen(problem, queue, observer),
        }
    }

    fn chosen(&self, problem: &O::Problem, queue: &D::Queue, observer: &dyn Observer) -> Result<Chosen<D>, Error> {
        let (chosen, lasts) = self.engine.choose(&self.erased(problem), queue, observer)?;
        if lasts {
            self.ready.put(problem.clone(), chosen.kernel.clone());
            if matches!(chosen.how, How::Default(_)) && !self.answers(problem, &chosen.candidate) {
                // The winner took over meanwhile.
                self.ready.clear();
            }
        }
        Ok(chosen)
    }

    /// Tunes the key of a problem, or answers from the store: one tuner per key, over threads and processes. What is
    /// new in the catalog since races against the stored winner alone, and a provisional record is gone on with.
    pub fn tune(&self, problem: &O::Problem, observer: &dyn Observer) -> Result<Tuned, Error> {
        Ok(self.renewed(self.engine.tune(&self.erased(problem), observer)?))
    }

    /// As [`Tuner::tune`], but what is known answers at once, provisional or not: for the first launch of a problem.
    pub fn ensure(&self, problem: &O::Problem, observer: &dyn Observer) -> Result<Tuned, Error> {
        Ok(self.renewed(self.engine.ensure(&self.erased(problem), observer)?))
    }

    fn renewed(&self, tuned: Tuned) -> Tuned {
        if tuned.replaced {
            // Kernels of the former winner are ready for some problems of this key.
            self.ready.clear();
        }
        tuned
    }

    /// Verifies one variant at one config on exactly this problem, then takes `samples` samples on the device's clock.
    /// Axes that `config` leaves out are at their defaults. A candidate that fails is a Rejection; an unknown name is
    /// an Error.
    pub fn bench(
        &self,
        problem: &O::Problem,
        variant: &str,
        config: Option<&Config>,
        samples: u32,
    ) -> Result<Result<Benched, Rejection>, Error> {
        self.engine.bench(&self.erased(problem), variant, config, samples)
    }

    /// What the settings' bucket costs a problem: its bucket's winner raced against the exact shape's own.
    pub fn regret(&self, problem: &O::Problem, observer: &dyn Observer) -> Result<Regret, Error> {
        self.engine.regret(&self.erased(problem), observer)
    }

    /// What the store knows of a problem's key, without measuring anything.
    pub fn lookup(&self, problem: &O::Problem) -> Option<(Candidate, How)> {
        let erased: &dyn ErasedProblem<D> = &self.erased(problem);
        self.engine.lookup(erased, &self.engine.key(erased))
    }

    /// A launch failed: the next one of this problem goes to the reference, unless the arguments were at fault.
    #[cold]
    fn failed(&self, problem: &O::Problem, args: &[Arg<'_, D>], rejection: Rejection) -> Error {
        // A kernel that was launched has taken what it writes: then the arguments were refused by nobody.
        let taken =
            |(arg, slot): (&Arg<'_, D>, &crate::model::slot::Slot)| slot.is_written() && matches!(arg, Arg::Absent);
        let signature = O::signature(problem);
        if !args.iter().zip(signature.slots()).any(taken)
            && let Err(error) = signature.check(args)
        {
            return error;
        }
        let text = O::text(problem);
        tracing::warn!("{text}: {rejection}; the next launch goes to the reference");
        let erased: &dyn ErasedProblem<D> = &self.erased(problem);
        let config = self.engine.reference(erased).config;
        if let Ok(kernel) = erased.reference().build(&config, self.device()) {
            self.ready.put(problem.clone(), kernel.into());
        }
        Error::Launch { problem: text, rejection }
    }

    /// Everything the store holds about a problem's key on this device.
    pub fn record(&self, problem: &O::Problem) -> Option<Record> {
        self.store().read(&self.key(problem), &self.device().fingerprint().slug())
    }
}
