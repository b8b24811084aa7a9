//! The tuner: the corridor from request to dispatch. It calls the rooms in order and has no arithmetic of its own.

mod donors;
mod tuning;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::candidate::{Candidate, Trial};
use crate::catalog::{Catalog, Listed};
use crate::device::Device;
use crate::dispatch::Dispatch;
use crate::error::Error;
use crate::key::Key;
use crate::op::Op;
use crate::progress::Silent;
use crate::record::{Edition, Record};
use crate::rejection::Rejection;
use crate::settings::{Mode, Settings};
use crate::store::{Match, Store};
use crate::timing::Stages;
use crate::variant::{Fit, Kernel};
use crate::verify::Case;

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

/// A candidate chosen for a problem, and its kernel.
pub struct Chosen<O: Op, D: Device> {
    /// Who.
    pub candidate: Candidate,
    /// How it was chosen.
    pub how: How,
    /// Built for exactly the problem asked for.
    pub kernel: Arc<dyn Kernel<O, D>>,
}

/// What is known about a key after tuning it.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The key.
    pub key: Key,
    /// The problem that was raced for it.
    pub problem: String,
    /// Verdict and trials.
    pub edition: Edition,
    /// Whether the store answered and nothing was measured.
    pub from_store: bool,
    /// What could not be kept, if anything: the answer holds, the record is lost.
    pub warning: Option<String>,
    /// Where the seconds went.
    pub stages: Stages,
}

/// Races the variants of one operation on one device and remembers the winners.
pub struct Tuner<O: Op, D: Device> {
    device: Arc<D>,
    catalog: Catalog<O, D>,
    store: Arc<dyn Store>,
    settings: Settings,
    ready: Dispatch<O::Problem, dyn Kernel<O, D>>,
    // Winners by key text: a new problem of a known key needs no disk.
    known: Mutex<HashMap<String, (Candidate, How)>>,
    // Editions by key text that the store could not keep: they answer for as long as this process lives.
    unkept: Mutex<HashMap<String, Edition>>,
}

/// What was decided about a key.
struct Decided {
    candidate: Candidate,
    how: How,
    /// Whether it still holds the next time: what was decided because the device was busy does not.
    lasts: bool,
}

impl<O: Op, D: Device> Tuner<O, D> {
    /// A tuner over a catalog and a store.
    pub fn new(device: Arc<D>, catalog: Catalog<O, D>, store: Arc<dyn Store>, settings: Settings) -> Self {
        Tuner {
            device,
            catalog,
            store,
            settings,
            ready: Dispatch::new(),
            known: Mutex::default(),
            unkept: Mutex::default(),
        }
    }

    /// The device.
    pub fn device(&self) -> &Arc<D> {
        &self.device
    }

    /// Who may race.
    pub fn catalog(&self) -> &Catalog<O, D> {
        &self.catalog
    }

    /// How it behaves.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The key of a problem.
    pub fn key(&self, problem: &O::Problem) -> Key {
        Key::of::<O>(problem, &self.settings.bucket, self.settings.policy)
    }

    /// Does the operation with the kernel of choice. A known problem costs one hash and one call.
    #[inline]
    pub fn launch(&self, problem: &O::Problem, args: O::Args<'_, D>, queue: &D::Queue) -> Result<(), Error> {
        let outcome = match self.ready.with(problem, |kernel| kernel.launch(args, queue)) {
            Ok(outcome) => outcome,
            Err(call) => self.with_chosen(problem, queue, call)?,
        };
        outcome.map_err(|rejection| self.failed(problem, rejection))
    }

    /// Hands the kernel of a known problem to `f`, or gives `f` back where nobody has chosen one yet: then a caller may
    /// let others go on while it chooses.
    #[inline]
    pub fn with_known<R, F: FnOnce(&(dyn Kernel<O, D> + 'static)) -> R>(
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
        f: impl FnOnce(&(dyn Kernel<O, D> + 'static)) -> R,
    ) -> Result<R, Error> {
        let go = || Ok(f(&*self.chosen(problem, queue)?.kernel));
        match self.device.busy(queue) {
            // A library may load its kernel when it is first launched.
            Some(_) => self.device.beside_capture(go),
            None => go(),
        }
    }

    /// Hands the kernel of choice to `f`; a known problem costs one hash. For callers that launch it themselves.
    #[inline]
    pub fn with_kernel<R>(
        &self,
        problem: &O::Problem,
        f: impl FnOnce(&(dyn Kernel<O, D> + 'static)) -> R,
    ) -> Result<R, Error> {
        match self.ready.with(problem, f) {
            Ok(result) => Ok(result),
            Err(f) => Ok(f(&*self.choose(problem)?.kernel)),
        }
    }

    /// The kernel of choice, to be kept by the caller: launching it does no lookup at all.
    pub fn prepare(&self, problem: &O::Problem) -> Result<Arc<dyn Kernel<O, D>>, Error> {
        Ok(self.choose(problem)?.kernel)
    }

    /// Chooses by mode: the store's winner, a race, or the first choice by priority.
    pub fn choose(&self, problem: &O::Problem) -> Result<Chosen<O, D>, Error> {
        self.choose_on(problem, self.device.queue())
    }

    /// As [`Tuner::choose`], for somebody who will launch on this queue: while it is being captured nothing is raced.
    pub fn choose_on(&self, problem: &O::Problem, queue: &D::Queue) -> Result<Chosen<O, D>, Error> {
        match self.device.busy(queue) {
            // Even asking who fits may open a library, which a capture would take for a part of itself.
            Some(_) => self.device.beside_capture(|| self.chosen(problem, queue)),
            None => self.chosen(problem, queue),
        }
    }

    fn chosen(&self, problem: &O::Problem, queue: &D::Queue) -> Result<Chosen<O, D>, Error> {
        let key = self.key(problem);
        let known = locked(&self.known).get(&key.text).cloned();
        let decided = match known {
            Some((candidate, how)) => Decided { candidate, how, lasts: true },
            None => self.decide(&key, problem, queue)?,
        };
        let Decided { candidate, how, lasts } = decided;
        let chosen = self.build(&key, problem, &candidate, how.clone())?;
        if lasts {
            locked(&self.known).entry(key.text).or_insert((candidate, how));
            self.ready.put(problem.clone(), chosen.kernel.clone());
        }
        Ok(chosen)
    }

    fn decide(&self, key: &Key, problem: &O::Problem, queue: &D::Queue) -> Result<Decided, Error> {
        if self.settings.mode == Mode::Off {
            let (candidate, how) = self.first_choice(problem, "the mode is off");
            return Ok(Decided { candidate, how, lasts: true });
        }
        if self.settings.mode == Mode::Tune && self.device.busy(queue).is_none() {
            match self.tune(problem, &Silent) {
                Ok(tuned) => {
                    let how = if tuned.from_store { How::Stored } else { How::Raced };
                    return Ok(Decided { candidate: tuned.edition.verdict.winner, how, lasts: true });
                }
                // The device may have become busy meanwhile.
                Err(Error::Device(_)) if self.device.busy(queue).is_some() => {}
                Err(error @ (Error::NothingRight { .. } | Error::Device(_))) => {
                    return self.last_resort(problem, &error);
                }
                Err(other) => return Err(other),
            }
        }
        let tunes = self.settings.mode == Mode::Tune;
        let found = self.lookup(key);
        if !matches!(found, Some((_, How::Stored))) && (self.settings.mode == Mode::Record || tunes) {
            self.store.miss(key, self.device.fingerprint(), &O::text(problem));
        }
        let (candidate, how) = found.filter(|(c, _)| self.usable(c, problem)).unwrap_or_else(|| {
            let mode = || format!("the mode is {} and the store does not know the key", self.settings.mode);
            self.first_choice(problem, &self.device.busy(queue).filter(|_| tunes).unwrap_or_else(mode))
        });
        let lasts = !tunes || how == How::Stored;
        Ok(Decided { candidate, how, lasts })
    }

    /// Nobody could be raced: the reference answers all the same, once it has shown that it is right.
    fn last_resort(&self, problem: &O::Problem, error: &Error) -> Result<Decided, Error> {
        let text = O::text(problem);
        tracing::warn!("{text}: {error}; the reference answers");
        let candidate = self.reference(problem);
        let nothing = |rejection| Error::NothingRight { problem: text.clone(), rejection };
        let kernel = self.catalog.reference().build(problem, &candidate.config, &self.device).map_err(nothing)?;
        // Where there is no memory for a proof, the reference's own tests must do.
        if let Ok(mut case) = Case::<O, D>::new(problem, &self.device, self.settings.seed.wrapping_add(1)) {
            case.verify(&*kernel, &self.device).map_err(nothing)?;
        }
        Ok(Decided { candidate, how: How::Default(error.to_string()), lasts: true })
    }

    /// The reference at its default config.
    fn reference(&self, problem: &O::Problem) -> Candidate {
        let variant = self.catalog.reference();
        let config = variant.space(problem, &self.device).default_config().unwrap_or_default();
        Candidate { variant: variant.id().into(), config, source: variant.source() }
    }

    /// What the store knows of a key, without measuring anything.
    pub fn lookup(&self, key: &Key) -> Option<(Candidate, How)> {
        let soft = self.device.fingerprint().soft_id();
        let winner = |edition: &Edition| edition.verdict.winner.clone();
        match self.store.lookup(key, self.device.fingerprint()) {
            Match::Exact(record) => {
                let edition = record.current(&soft, self.store.id())?;
                let how = if self.is_current(&edition.verdict.winner) { How::Stored } else { How::Stale };
                Some((winner(edition), how))
            }
            Match::Near(record) => Some((winner(record.stale(&soft, self.store.id())?), How::Stale)),
            Match::Foreign(record, slug) => Some((winner(record.editions.last()?), How::Foreign(slug))),
            Match::Miss => None,
        }
    }

    /// Whether the code behind a candidate is the code there is now.
    fn is_current(&self, candidate: &Candidate) -> bool {
        self.catalog.find(&candidate.variant).is_some_and(|v| v.source() == candidate.source)
    }

    /// Whether a stored candidate may be built for a problem: records are data, and buckets hold other shapes.
    fn usable(&self, candidate: &Candidate, problem: &O::Problem) -> bool {
        self.catalog.find(&candidate.variant).is_some_and(|variant| {
            matches!(variant.fit(problem, &self.device), Fit::Fits(_))
                && variant.space(problem, &self.device).contains(&candidate.config)
        })
    }

    /// The first choice by priority, at its default config. Nobody has tried it: where candidates must pass in a worker
    /// first it is the library's, or the reference.
    fn first_choice(&self, problem: &O::Problem, why: &str) -> (Candidate, How) {
        let (mut listed, _) = self.catalog.list(problem, &self.device);
        listed.retain(|l| !self.device.sandboxes() || self.catalog.is_yardstick(l.variant.id()));
        let at_default = |l: Listed<O, D>| {
            let config = l.variant.space(problem, &self.device).default_config()?;
            Some(Candidate { variant: l.variant.id().into(), config, source: l.variant.source() })
        };
        let candidate = listed.into_iter().find_map(at_default).unwrap_or_else(|| self.reference(problem));
        (candidate, How::Default(why.into()))
    }

    /// Builds a candidate for a problem. Where that fails (a bucket holds other shapes too): the next best that was
    /// right for its key, where nothing is known of the key the first choice, and at last the reference.
    fn build(&self, key: &Key, problem: &O::Problem, candidate: &Candidate, how: How) -> Result<Chosen<O, D>, Error> {
        let attempt = |candidate: &Candidate, how: How| {
            let variant = self.catalog.find(&candidate.variant).filter(|_| self.usable(candidate, problem))?;
            let kernel = variant.build(problem, &candidate.config, &self.device).ok()?;
            Some(Chosen { candidate: candidate.clone(), how, kernel: kernel.into() })
        };
        if let Some(chosen) = attempt(candidate, how) {
            return Ok(chosen);
        }
        let how = How::Default(format!("{candidate} cannot be built for this problem"));
        let edition = if self.settings.mode == Mode::Off { None } else { self.current(key) };
        let others = match edition {
            Some(edition) => self.right_ones(edition),
            None => vec![self.first_choice(problem, "").0],
        };
        if let Some(chosen) = others.iter().find_map(|other| attempt(other, how.clone())) {
            return Ok(chosen);
        }
        let candidate = self.reference(problem);
        let nothing = |rejection| Error::NothingRight { problem: O::text(problem), rejection };
        let kernel = self.catalog.reference().build(problem, &candidate.config, &self.device).map_err(nothing)?;
        Ok(Chosen { candidate, how, kernel: kernel.into() })
    }

    /// Those of an edition that were right and are what they were, fastest first.
    fn right_ones(&self, edition: Edition) -> Vec<Candidate> {
        let right = |t: Trial| Some((t.cost()?, t.candidate));
        let mut right: Vec<(f64, Candidate)> = edition.trials.into_iter().filter_map(right).collect();
        right.retain(|(_, candidate)| self.is_current(candidate));
        right.sort_by(|a, b| a.0.total_cmp(&b.0));
        right.into_iter().map(|(_, candidate)| candidate).collect()
    }

    /// A launch failed: the next one of this problem goes to the reference.
    #[cold]
    fn failed(&self, problem: &O::Problem, rejection: Rejection) -> Error {
        let text = O::text(problem);
        tracing::warn!("{text}: {rejection}; the next launch goes to the reference");
        let config = self.reference(problem).config;
        if let Ok(kernel) = self.catalog.reference().build(problem, &config, &self.device) {
            self.ready.put(problem.clone(), kernel.into());
        }
        Error::Launch { problem: text, rejection }
    }

    /// Everything the store holds about a problem's key on this device.
    pub fn record(&self, problem: &O::Problem) -> Option<Record> {
        self.store.read(&self.key(problem), &self.device.fingerprint().slug())
    }
}

/// A lock whose holder's panic harms nobody: what it guards is whole at any time.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
