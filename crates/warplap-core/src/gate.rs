//! The gate: a Candidate comes in; a built kernel that was proved right, ready to be timed, goes out, or a Rejection.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crate::candidate::Candidate;
use crate::card::Card;
use crate::case::{Case, Drawing};
use crate::caught::contained;
use crate::device::Device;
use crate::error::Error;
use crate::measure::{CacheState, Lap, Measurement};
use crate::promoted::Promoted;
use crate::prover::{Prover, seed};
use crate::quarantine::{self, PUT_AWAY, Quarantine};
use crate::rejection::Rejection;
use crate::roofline::IMPOSSIBLE_BELOW;
use crate::sandbox::{Passed, SandboxRequest};
use crate::scout::{QUICK, Scout};
use crate::settings::{Running, Settings};
use crate::timing::Timing;
use crate::variant::{Fit, Kernel, Priority};
use crate::verdict::Contender;

/// A candidate whose first launch takes this many times the best seen, and [`SLOW_SECONDS`], is not launched again.
const HOPELESS: f64 = 3.0;
/// Longer than a scheduler keeps a process waiting on a loaded machine (8 to 32 ms were seen): one launch that was put
/// aside must not cost the best its place.
const SLOW_SECONDS: f64 = 50e-3;

/// A candidate that one launch shows this many times behind the best is not launched a second time.
const FAR: f64 = 10.0;

/// Launches in a worker may take this many times the best time known, within these seconds.
const PATIENCE: f64 = 30.0;
const SHORTEST: f64 = 0.5;
const LONGEST: f64 = 10.0;

/// Seconds of a sample of many launches, at the most.
const SHORT_SAMPLE: f64 = 1e-3;

/// Why a candidate is not launched.
pub(crate) enum TooLong {
    /// The budget has no time for its proof.
    NoTime,
    /// It is far behind on a smaller problem.
    FarBehind,
}

/// A candidate that was proved right.
pub(crate) struct Entrant<'g, D: Device> {
    pub(crate) contender: Contender,
    pub(crate) kernel: Arc<dyn Kernel<D>>,
    pub(crate) lap: Box<dyn Lap + 'g>,
    /// Seconds that a sample takes, where a launch of it was timed.
    pub(crate) sample: f64,
}

/// Inputs, answers and buffers that all candidates of one key are proved and timed on.
pub(crate) struct Gate<'g, D: Device> {
    card: &'g dyn Card<D>,
    device: &'g D,
    settings: &'g Settings,
    // What proofs may take; as long as they like where there is none.
    running: Option<&'g Running<'g>>,
    scout: Option<Scout<'g, D>>,
    // Opened when the first candidate is proved here: what passed in a worker is not proved twice.
    prover: RefCell<Option<Prover<D>>>,
    // Drawn when a winner is to be proved again, or before on a thread of its own.
    fresh: OnceCell<Arc<Drawing>>,
    drawing: RefCell<Option<JoinHandle<Result<Drawing, Error>>>>,
    quarantine: Option<Quarantine<'g>>,
    promoted: Option<Promoted<'g>>,
    timed: RefCell<Vec<Case<D>>>,
    /// Where the time goes.
    pub(crate) timing: Timing,
    // Seconds it took to draw what kernels are proved on, until somebody asks.
    opening: Cell<f64>,
    // The shortest time seen so far in seconds: what takes three times as long is not worth a second look.
    best: RefCell<f64>,
}

impl<'g, D: Device> Gate<'g, D> {
    /// Draws as many sets of inputs to be timed on as the policy asks for.
    pub(crate) fn open(card: &'g dyn Card<D>, device: &'g D, settings: &'g Settings) -> Result<Self, Error> {
        let draw = |i: u64| Case::without_answer(card, device, seed(settings.seed, 100 + i));
        let first = draw(0)?;
        let sets = device.sets(settings.policy, first.footprint()).max(1) as u64;
        let others = (1..sets).map(draw);
        let timed = std::iter::once(Ok(first)).chain(others).collect::<Result<Vec<Case<D>>, Error>>()?;
        Ok(Gate { timed: RefCell::new(timed), ..Gate::untimed(card, device, settings) })
    }

    /// A gate where candidates are proved and nothing is timed.
    pub(crate) fn untimed(card: &'g dyn Card<D>, device: &'g D, settings: &'g Settings) -> Self {
        Gate {
            card,
            device,
            settings,
            running: None,
            scout: None,
            prover: RefCell::default(),
            fresh: OnceCell::new(),
            drawing: RefCell::default(),
            quarantine: None,
            promoted: None,
            timed: RefCell::default(),
            timing: Timing::default(),
            opening: Cell::new(0.0),
            best: RefCell::new(f64::INFINITY),
        }
    }

    /// Keeps proofs within a budget; a scout tells what some of them are likely to take.
    pub(crate) fn within(mut self, running: &'g Running<'g>, scout: Option<Scout<'g, D>>) -> Self {
        (self.running, self.scout) = (Some(running), scout);
        self
    }

    /// Remembers who passed in a worker and who must not be tried again.
    pub(crate) fn remembering(mut self, quarantine: Quarantine<'g>, promoted: Promoted<'g>) -> Self {
        (self.quarantine, self.promoted) = (Some(quarantine), Some(promoted));
        self
    }

    /// Draws what the winner will be proved on while others are measured, where that does not disturb the clock.
    pub(crate) fn draw_ahead(&self) {
        if !D::LAUNCH_IS_CALL {
            let (card, seed) = (self.card.boxed(), self.fresh_seed());
            *self.drawing.borrow_mut() = Some(std::thread::spawn(move || drawn(&*card, seed)));
        }
    }

    fn fresh_seed(&self) -> u64 {
        self.settings.seed.wrapping_add(0x5eed_0000)
    }

    /// Builds a candidate, proves it right in a worker or here, and makes it ready to be timed.
    pub(crate) fn prove(&'g self, candidate: &Candidate, incumbent: bool) -> Result<Entrant<'g, D>, Rejection> {
        let unknown = || Rejection::DoesNotBuild { reason: format!("no variant is called {}", candidate.variant) };
        let runner = self.card.find(&candidate.variant).ok_or_else(unknown)?;
        // Where a library is loaded in a process of its own, it may take that down already.
        let build = || {
            let built = self.timing.of("build", || runner.build(&candidate.config, self.device));
            self.judged(candidate, built)
        };
        // Building what is trusted harms nobody, and what does not build needs no worker.
        let early = if runner.is_yardstick() { Some(build()?) } else { None };
        let passed = self.timing.of("sandbox", || self.sandbox(candidate))?;
        if let Some(passed) = &passed {
            self.keeps_up(passed.seconds)?;
        }
        let kernel: Arc<dyn Kernel<D>> = early.map_or_else(build, Ok)?.into();
        let (error, seconds) = match passed {
            Some(passed) => (passed.error, None),
            None => {
                let proved = self.timing.of("verify", || self.prove_right(candidate, &*kernel));
                let (error, seconds) = self.judged(candidate, proved)?;
                if let Some(seconds) = seconds {
                    self.keeps_up(seconds)?;
                    self.seen(seconds);
                }
                (error, seconds)
            }
        };
        let (device, timed, shared) = (self.device, &self.timed, kernel.clone());
        let sets = timed.borrow().len();
        let launch =
            Box::new(move |queue: &D::Queue, set: usize| timed.borrow_mut()[set].launch(&*shared, device, queue));
        let lap = self.timing.of("lap", || contained(|| device.lap(self.settings.policy, sets, launch)));
        let lap = self.judged(candidate, lap)?;
        let priority = match runner.fit(device) {
            Fit::Fits(priority) => priority,
            Fit::Aside(_) => Priority::Low,
        };
        let workspace = contained(|| Ok(kernel.workspace()))?;
        let contender =
            Contender { candidate: candidate.clone(), error, workspace, priority: priority as u8, incumbent };
        // A launch in another process was timed with the way there; where a sample has many it is short.
        let many = lap.batch() > 1 && device.is_walled();
        let sample = seconds.map_or(0.0, |s| if many { SHORT_SAMPLE } else { s * f64::from(lap.batch()) });
        Ok(Entrant { contender, kernel, lap, sample })
    }

    /// Proves a candidate as a race would, in a worker or here, and remembers that it passed or why it did not.
    pub(crate) fn admit(&self, candidate: &Candidate) -> Result<(), Rejection> {
        if let Some(held) = self.quarantine.as_ref().and_then(|q| q.find(candidate)) {
            return Err(held.rejection);
        }
        if self.sandbox(candidate)?.is_some() {
            return Ok(());
        }
        let unknown = || Rejection::DoesNotBuild { reason: format!("no variant is called {}", candidate.variant) };
        let runner = self.card.find(&candidate.variant).ok_or_else(unknown)?;
        let kernel = self.judged(candidate, runner.build(&candidate.config, self.device))?;
        let (error, seconds) =
            self.prove_right(candidate, &*kernel).inspect_err(|why| self.put_away(candidate, why))?;
        if let Some(promoted) = &self.promoted {
            promoted.add(candidate, Passed { error, seconds: seconds.unwrap_or(0.0) });
        }
        Ok(())
    }

    /// What a candidate showed in a worker, now or when its key was raced before; `None` where it is to be proved here.
    fn sandbox(&self, candidate: &Candidate) -> Result<Option<Passed>, Rejection> {
        if let Some(passed) = self.promoted.as_ref().and_then(|p| p.find(candidate)) {
            return Ok(Some(passed));
        }
        let trusted = self.card.is_yardstick(&candidate.variant);
        let (wanted, patience) = self.patience_with(candidate);
        let request = SandboxRequest {
            problem: self.card.text(),
            candidate: candidate.clone(),
            seed: self.settings.seed,
            policy: self.settings.policy,
            patience,
            trusted,
        };
        let outcome = self.card.sandbox(&request, self.device).transpose();
        if patience < wanted && matches!(outcome, Err(Rejection::TimedOut { .. })) {
            // It was the budget that ended it, which says nothing against it.
            return outcome;
        }
        if let Some(promoted) = self.promoted.as_ref().filter(|_| !matches!(outcome, Ok(None))) {
            promoted.tried(candidate);
        }
        match (&outcome, &self.promoted) {
            (Ok(Some(passed)), Some(promoted)) => promoted.add(candidate, *passed),
            (Err(rejection), promoted) => {
                // A library's proposal that cannot be built there never can be; own kernels are passed over by variant.
                let lasts = trusted && matches!(rejection, Rejection::DoesNotBuild { .. });
                if let Some(promoted) = promoted.as_ref().filter(|_| lasts) {
                    promoted.refuse(candidate);
                }
                self.put_away(candidate, rejection);
            }
            _ => {}
        }
        outcome
    }

    /// Seconds after which launches of a candidate count as hung: how many it should have, and how many there are.
    fn patience_with(&self, candidate: &Candidate) -> (f64, f64) {
        let trusted = self.card.is_yardstick(&candidate.variant);
        let wanted = if trusted { LONGEST } else { self.patience() };
        (wanted, wanted.min(self.running.map_or(LONGEST, Running::left).max(SHORTEST)))
    }

    /// Puts a candidate away that failed in a process of its own, unless it was the budget that ended it.
    pub(crate) fn judged<T>(&self, candidate: &Candidate, outcome: Result<T, Rejection>) -> Result<T, Rejection> {
        if let Some(rejection) = outcome.as_ref().err().filter(|_| self.device.is_walled()) {
            let (wanted, patience) = self.patience_with(candidate);
            if patience >= wanted || !matches!(rejection, Rejection::TimedOut { .. }) {
                self.put_away(candidate, rejection);
            }
        }
        outcome
    }

    /// Seconds after which launches count as hung.
    fn patience(&self) -> f64 {
        let cold = self.settings.policy.cache == CacheState::Cold;
        let floor = || self.card.least(&*self.device.ceilings()?, cold);
        let best = *self.best.borrow();
        let expected = if best.is_finite() { best } else { floor().unwrap_or(LONGEST) };
        (PATIENCE * expected).clamp(SHORTEST, LONGEST)
    }

    /// A candidate failed where only those race that passed in a worker: it is not tried again.
    pub(crate) fn put_away(&self, candidate: &Candidate, rejection: &Rejection) {
        if let Some(promoted) = &self.promoted {
            promoted.remove(candidate);
        }
        // Somebody must be left to fall back on.
        let needed = self.is_last_resort(candidate);
        if let Some(quarantine) = self.quarantine.as_ref().filter(|_| quarantine::deserved(rejection) && !needed) {
            quarantine.put(candidate, rejection, &self.card.text());
        }
    }

    /// Whether a candidate is the reference as it is without tuning, which answers when everyone else has failed.
    fn is_last_resort(&self, candidate: &Candidate) -> bool {
        let reference = self.card.reference();
        let usual = || reference.space(self.device).default_config();
        reference.id() == candidate.variant && usual().is_none_or(|config| config == candidate.config)
    }

    /// Whether a candidate passed in a worker.
    pub(crate) fn is_promoted(&self, candidate: &Candidate) -> bool {
        self.promoted.as_ref().is_some_and(|p| p.find(candidate).is_some())
    }

    /// Whether a candidate is a library's.
    pub(crate) fn is_library(&self, candidate: &Candidate) -> bool {
        self.card.find(&candidate.variant).is_some_and(|runner| runner.is_library())
    }

    /// Why a candidate is not tried, if it is in quarantine.
    pub(crate) fn quarantined(&self, candidate: &Candidate) -> Option<String> {
        let found = self.quarantine.as_ref()?.find(candidate)?;
        Some(format!("{PUT_AWAY}: {}", found.rejection))
    }

    /// Why a candidate is not tried, if its key was raced to its end before without it.
    pub(crate) fn passed_over(&self, candidate: &Candidate) -> Option<String> {
        let promoted = self.promoted.as_ref().filter(|_| !self.settings.again)?;
        if promoted.refused(candidate) && self.card.reference().id() != candidate.variant {
            return Some("it could not be built in a worker before".to_string());
        }
        let over = !self.card.is_yardstick(&candidate.variant) && promoted.passed_over(candidate);
        over.then(|| "the key was raced to its end without it before".to_string())
    }

    /// Keeps who passed for the next race of the key.
    pub(crate) fn keep(&self, whole: bool) {
        if let Some(promoted) = &self.promoted {
            promoted.ended(whole);
            promoted.keep();
        }
    }

    /// What takes three times as long as the best is not worth a second look.
    fn keeps_up(&self, seconds: f64) -> Result<(), Rejection> {
        let slow =
            self.settings.objective.is_time() && seconds > HOPELESS * *self.best.borrow() && seconds > SLOW_SECONDS;
        if slow { Err(Rejection::Outpaced { measurement: single(seconds) }) } else { Ok(()) }
    }

    /// Proves a kernel here.
    fn prove_right(&self, candidate: &Candidate, kernel: &dyn Kernel<D>) -> Result<(f64, Option<f64>), Rejection> {
        let mut prover = self.prover.borrow_mut();
        let prover = match &mut *prover {
            Some(prover) => prover,
            closed => {
                let started = Instant::now();
                let small = |seconds: f64| self.running.is_none_or(|r| r.is_small(seconds));
                let opened = Prover::open_while(self.card, self.device, self.settings.seed, 2, &small);
                let opened = opened.map_err(|e| Rejection::LaunchFailed { reason: e.to_string() })?;
                if small(opened.seconds) {
                    // The winner is proved on a drawing of its own at the end.
                    self.running.iter().for_each(|r| r.owe(opened.seconds));
                } else if let Some(last) = opened.last() {
                    let _ = self.fresh.set(last);
                }
                self.opening.set(started.elapsed().as_secs_f64());
                closed.insert(opened)
            }
        };
        let best = *self.best.borrow();
        self.device.set_patience(self.patience_with(candidate).1);
        let far = |seconds: f64| self.settings.objective.is_time() && seconds > FAR * best && seconds > SLOW_SECONDS;
        prover.prove_unless(kernel, self.device, &mut |_| {}, &far)
    }

    /// Seconds it took to draw what kernels are proved on; nothing where nothing was drawn since this was last asked.
    pub(crate) fn opening(&self) -> f64 {
        self.opening.take()
    }

    /// Proves a winner once more after timing, on inputs it has not seen, in memory it was timed on.
    pub(crate) fn prove_again(&self, entrant: &mut Entrant<'g, D>) -> Result<Result<(), Rejection>, Error> {
        let (kernel, device) = (entrant.kernel.clone(), self.device);
        device.set_patience(LONGEST);
        if let Err(rejection) = contained(|| entrant.lap.settle()) {
            return Ok(Err(rejection));
        }
        let drawing = match self.fresh.get() {
            Some(drawing) => drawing,
            None => {
                let ahead = self.drawing.borrow_mut().take().and_then(|thread| thread.join().ok());
                let drawing = ahead.unwrap_or_else(|| drawn(self.card, self.fresh_seed()))?;
                self.fresh.get_or_init(|| Arc::new(drawing))
            }
        };
        let mut timed = self.timed.borrow_mut();
        let case = &mut timed[0];
        if device.is_walled() {
            // On inputs as its timed launches have left them: what it remembers of them is out of date by a few elements.
            let left = case.left_with(device, drawing)?.answered(self.card)?;
            case.refill(device, &Arc::new(left))?;
            if let Err(rejection) = case.verify(&*kernel, device) {
                return Ok(Err(rejection));
            }
        }
        case.refill_asking(self.card, device, drawing)?;
        Ok(case.verify(&*kernel, device).and_then(|_| case.inputs_untouched(device)))
    }

    /// Why a candidate is not worth building: what it can do at best is slower than what was seen.
    pub(crate) fn hopeless(&self, candidate: &Candidate) -> Option<String> {
        if !self.settings.objective.is_time() {
            return None;
        }
        let runner = self.card.find(&candidate.variant)?;
        let floor = runner.floor(&candidate.config, &*self.device.ceilings()?)? * IMPOSSIBLE_BELOW;
        (floor > *self.best.borrow()).then(|| "its own roofline is above the best time seen".to_string())
    }

    /// Why a candidate is not launched, by what it takes on a smaller problem: there is no time for it, or it is far
    /// behind and nobody wants to know by how much.
    pub(crate) fn takes_too_long(&self, candidate: &Candidate) -> Option<TooLong> {
        let best = *self.best.borrow();
        let (scout, running) = (self.scout.as_ref().filter(|_| best.is_finite())?, self.running?);
        let likely = scout.likely(candidate, QUICK)?;
        // Two proofs and a launch to see how many a sample needs.
        if !running.affords(2.0 * likely.proof + likely.launch) {
            return Some(TooLong::NoTime);
        }
        let far = likely.launch > FAR * best && likely.launch > SLOW_SECONDS && self.settings.objective.is_time();
        (far && !self.card.is_yardstick(&candidate.variant)).then_some(TooLong::FarBehind)
    }

    /// The best time seen was no honest one: it is forgotten.
    pub(crate) fn forget(&self) {
        *self.best.borrow_mut() = f64::INFINITY;
    }

    /// A time was seen.
    pub(crate) fn seen(&self, seconds: f64) {
        let mut best = self.best.borrow_mut();
        *best = best.min(seconds);
    }
}

/// Inputs, with the right answer unless it will be asked for on the device.
fn drawn<D: Device>(card: &dyn Card<D>, seed: u64) -> Result<Drawing, Error> {
    if card.oracle().is_some() { Drawing::inputs(card, seed) } else { Drawing::new(card, seed) }
}

/// A measurement of one launch alone.
fn single(seconds: f64) -> Measurement {
    let us = seconds * 1e6;
    let samples_us = vec![us];
    Measurement { median_us: us, ci_us: [us, us], rounds: 1, batch: 1, samples_us, ..Measurement::default() }
}
