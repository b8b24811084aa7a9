//! The tuner: the corridor from request to dispatch. It calls the rooms in order and has no arithmetic of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::candidate::{Candidate, Trial};
use crate::catalog::Catalog;
use crate::contest::Contest;
use crate::device::Device;
use crate::dispatch::Dispatch;
use crate::error::Error;
use crate::gate::Gate;
use crate::key::Key;
use crate::measure::CacheState;
use crate::op::Op;
use crate::problem::Problem;
use crate::progress::{Event, Observer, Silent};
use crate::prune::prune;
use crate::record::{Edition, Record};
use crate::search;
use crate::settings::{Mode, Running, Settings};
use crate::store::{Match, Store};
use crate::variant::{Fit, Kernel};
use crate::yardstick;

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
}

impl<O: Op, D: Device> Tuner<O, D> {
    /// A tuner over a catalog and a store.
    pub fn new(device: Arc<D>, catalog: Catalog<O, D>, store: Arc<dyn Store>, settings: Settings) -> Self {
        Tuner { device, catalog, store, settings, ready: Dispatch::new(), known: Mutex::default() }
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
            Err(call) => call(&*self.choose(problem)?.kernel),
        };
        outcome.map_err(|rejection| self.failed(problem, rejection))
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
        let key = self.key(problem);
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key.text).cloned();
        let (candidate, how) = match known {
            Some(known) => known,
            None => {
                let found = self.decide(&key, problem)?;
                self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(key.text.clone(), found.clone());
                found
            }
        };
        let chosen = self.build(problem, &candidate, how)?;
        self.ready.put(problem.clone(), chosen.kernel.clone());
        Ok(chosen)
    }

    fn decide(&self, key: &Key, problem: &O::Problem) -> Result<(Candidate, How), Error> {
        if self.settings.mode == Mode::Off {
            return Ok(self.first_choice(problem, "the mode is off"));
        }
        let busy = self.device.busy();
        if self.settings.mode == Mode::Tune && busy.is_none() {
            let tuned = self.tune(problem, &Silent)?;
            let how = if tuned.from_store { How::Stored } else { How::Raced };
            return Ok((tuned.edition.verdict.winner, how));
        }
        let found = self.lookup(key);
        if !matches!(found, Some((_, How::Stored))) && (self.settings.mode == Mode::Record || busy.is_some()) {
            self.store.miss(key, self.device.fingerprint(), &O::text(problem));
        }
        let usable = found.filter(|(candidate, _)| self.usable(candidate, problem));
        Ok(usable.unwrap_or_else(|| {
            let why = busy
                .unwrap_or_else(|| format!("the mode is {} and the store does not know the key", self.settings.mode));
            self.first_choice(problem, &why)
        }))
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

    /// The first choice by priority, at its default config.
    fn first_choice(&self, problem: &O::Problem, why: &str) -> (Candidate, How) {
        let (listed, _) = self.catalog.list(problem, &self.device);
        let reference = || (self.catalog.reference().clone(), Default::default());
        let (variant, config) = listed
            .into_iter()
            .find_map(|l| l.variant.space(problem, &self.device).default_config().map(|c| (l.variant, c)))
            .unwrap_or_else(reference);
        let candidate = Candidate { variant: variant.id().into(), config, source: variant.source() };
        (candidate, How::Default(why.into()))
    }

    /// Builds a candidate for a problem; where that fails, the first choice, and at last the reference.
    fn build(&self, problem: &O::Problem, candidate: &Candidate, how: How) -> Result<Chosen<O, D>, Error> {
        let attempt = |candidate: &Candidate, how: How| {
            let variant = self.catalog.find(&candidate.variant).filter(|_| self.usable(candidate, problem))?;
            let kernel = variant.build(problem, &candidate.config, &self.device).ok()?;
            Some(Chosen { candidate: candidate.clone(), how, kernel: kernel.into() })
        };
        if let Some(chosen) = attempt(candidate, how) {
            return Ok(chosen);
        }
        let (first, how) = self.first_choice(problem, &format!("{candidate} cannot be built for this problem"));
        if let Some(chosen) = attempt(&first, how.clone()) {
            return Ok(chosen);
        }
        let reference = self.catalog.reference();
        let config = reference.space(problem, &self.device).default_config().unwrap_or_default();
        let nothing = |rejection| Error::NothingRight { problem: O::text(problem), rejection };
        let kernel = reference.build(problem, &config, &self.device).map_err(nothing)?.into();
        let candidate = Candidate { variant: reference.id().into(), config, source: reference.source() };
        Ok(Chosen { candidate, how, kernel })
    }

    /// A launch failed: the next one of this problem goes to the reference.
    #[cold]
    fn failed(&self, problem: &O::Problem, rejection: crate::rejection::Rejection) -> Error {
        let text = O::text(problem);
        tracing::warn!("{text}: {rejection}; the next launch goes to the reference");
        let reference = self.catalog.reference();
        let config = reference.space(problem, &self.device).default_config().unwrap_or_default();
        if let Ok(kernel) = reference.build(problem, &config, &self.device) {
            self.ready.put(problem.clone(), kernel.into());
        }
        Error::Launch { problem: text, rejection }
    }

    /// Tunes the key of a problem, or answers from the store: one tuner per key, over threads and processes. What is
    /// new in the catalog since races against the stored winner alone.
    pub fn tune(&self, problem: &O::Problem, observer: &dyn Observer) -> Result<Tuned, Error> {
        let key = self.key(problem);
        let problem = problem.representative(&self.settings.bucket);
        if !self.settings.again
            && let Some(edition) = self.settled(&key, &problem)
        {
            return Ok(self.answer(key, &problem, edition, true, None));
        }
        let _flight = self.store.lock(&key, self.device.fingerprint());
        // Whoever held the lock may have tuned the key meanwhile.
        if !self.settings.again
            && let Some(edition) = self.settled(&key, &problem)
        {
            return Ok(self.answer(key, &problem, edition, true, None));
        }
        self.device.get_ready(&*self.store);
        let edition = self.race(&key, &problem, observer)?;
        let kept = self.store.put(&key, self.device.fingerprint(), edition.clone(), &O::text(&problem));
        let warning = kept.err().map(|e| format!("the record of {key} was not kept: {e}"));
        if let Some(warning) = &warning {
            tracing::warn!("{warning}");
        }
        Ok(self.answer(key, &problem, edition, false, warning))
    }

    fn answer(
        &self,
        key: Key,
        problem: &O::Problem,
        edition: Edition,
        from_store: bool,
        warning: Option<String>,
    ) -> Tuned {
        let how = if from_store { How::Stored } else { How::Raced };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(key.text.clone(), (edition.verdict.winner.clone(), how));
        Tuned { key, problem: O::text(problem), edition, from_store, warning }
    }

    /// The edition measured under this soft fingerprint, if there is one.
    fn current(&self, key: &Key) -> Option<Edition> {
        match self.store.lookup(key, self.device.fingerprint()) {
            Match::Exact(record) => record.current(&self.device.fingerprint().soft_id(), self.store.id()).cloned(),
            _ => None,
        }
    }

    /// The edition that answers for a key as things are: its winner is there, and nobody new wants to race.
    fn settled(&self, key: &Key, problem: &O::Problem) -> Option<Edition> {
        let edition = self.current(key)?;
        let winner = &edition.verdict.winner;
        let whole =
            self.is_current(winner) && self.usable(winner, problem) && self.newcomers(&edition, problem).is_empty();
        whole.then_some(edition)
    }

    /// Variants that an edition does not know in their present form.
    fn newcomers(&self, edition: &Edition, problem: &O::Problem) -> Vec<String> {
        let (listed, _) = self.catalog.list(problem, &self.device);
        let met = |id: &str, source| {
            edition.trials.iter().any(|t| t.candidate.variant == id && t.candidate.source == source)
                || edition.skipped.iter().any(|s| s.variant == id && s.source == source)
        };
        listed.iter().map(|l| &l.variant).filter(|v| !met(v.id(), v.source())).map(|v| v.id().to_string()).collect()
    }

    /// Listing, pruning, search, gate, race, verdict.
    fn race(&self, key: &Key, problem: &O::Problem, observer: &dyn Observer) -> Result<Edition, Error> {
        let running = Running::start(&self.settings);
        let cold = self.settings.policy.cache == CacheState::Cold;
        let work = problem.work();
        let floor = self.device.ceilings().and_then(|c| c.floor(work, problem.dtype(), cold));
        let (listed, aside) = self.catalog.list(problem, &self.device);
        let mut pruned = prune(&listed, problem, &self.device);

        let earlier = self.current(key).filter(|e| self.is_current(&e.verdict.winner));
        let incumbent = earlier
            .as_ref()
            .map(|e| e.verdict.winner.clone())
            .or_else(|| self.lookup(key).map(|(c, _)| c).and_then(|c| self.renewed(c)))
            .filter(|c| self.usable(c, problem));
        let mut old: Vec<Trial> = Vec::new();
        if let Some(edition) = earlier.filter(|_| !self.settings.again && incumbent.is_some()) {
            let new = self.newcomers(&edition, problem);
            pruned.arms.retain(|arm| new.contains(&arm.variant));
            old = edition.trials;
        }
        if self.settings.yardsticks {
            yardstick::lift(&mut pruned.arms, |id| self.catalog.is_yardstick(id));
        }
        let candidates = pruned.arms.iter().map(|a| a.configs.len()).sum();
        let text = O::text(problem);
        observer.event(&Event::Started { problem: &text, candidates });

        let name = &self.settings.search;
        let floor_us = floor.map(|f| f * 1e6);
        let mut search = search::named(name, pruned.arms, self.settings.seed, floor_us).ok_or_else(|| {
            Error::Unknown(format!("there is no search '{name}': expected one of {}", search::NAMES.join(", ")))
        })?;
        let gate = Gate::open(problem, &*self.device, &self.catalog, &self.settings)?;
        let outcomes = Contest::new(&gate, &*self.device, &self.settings, &running, observer)
            .with_floor(floor)
            .with_incumbent(incumbent)
            .run(&mut *search, problem)?;
        old.retain(|t| !outcomes.trials.iter().any(|n| n.candidate == t.candidate));
        Ok(Edition {
            soft: self.device.fingerprint().soft.clone(),
            origin: self.store.id().to_string(),
            tuned_at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            program: env!("CARGO_PKG_VERSION").to_string(),
            verdict: outcomes.verdict,
            trials: outcomes.trials.into_iter().chain(old).collect(),
            skipped: aside.into_iter().chain(pruned.skipped).chain(outcomes.skipped).collect(),
            work,
            floor_us,
            seconds: running.seconds(),
        })
    }

    /// A stored candidate with the code there is now.
    fn renewed(&self, candidate: Candidate) -> Option<Candidate> {
        let source = self.catalog.find(&candidate.variant)?.source();
        Some(Candidate { source, ..candidate })
    }

    /// Everything the store holds about a problem's key on this device.
    pub fn record(&self, problem: &O::Problem) -> Option<Record> {
        self.store.read(&self.key(problem), &self.device.fingerprint().slug())
    }
}
