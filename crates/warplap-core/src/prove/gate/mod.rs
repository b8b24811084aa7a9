//! The gate: a Candidate comes in; a built kernel that was proved right, ready to be timed, goes out, or a Rejection.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crate::candidate::Candidate;
use crate::candidates::variant::{Fit, Kernel, Priority};
use crate::contest::verdict::Contender;
use crate::device::Device;
use crate::engine::settings::{Running, Settings};
use crate::error::Error;
use crate::measure::Lap;
use crate::measure::timing::Timing;
use crate::model::erased::ErasedProblem;
use crate::prove::case::{Case, Drawing};
use crate::prove::check_kernel::{KernelChecker, seed};
use crate::prove::cost_probe::CostProbe;
use crate::prove::panics::contained;
use crate::prove::proof_cache::ProofCache;
use crate::prove::quarantine::Quarantine;
use crate::rejection::Rejection;

mod apart;
mod pace;

pub(crate) use pace::{HOPELESS_BY_ROOFLINE, TooLong};

/// Longer than a scheduler keeps a process waiting on a loaded machine (8 to 32 ms were seen): one launch that was put
/// aside must not cost the best its place.
const SLOW_SECONDS: f64 = 50e-3;

/// A candidate that one launch shows this many times behind the best is not launched a second time.
const FAR: f64 = 10.0;

/// Seconds after which the longest launch counts as hung.
const LONGEST: f64 = 10.0;

/// Seconds of a sample of many launches, at the most.
const SHORT_SAMPLE: f64 = 1e-3;

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
    problem: &'g dyn ErasedProblem<D>,
    device: &'g D,
    settings: &'g Settings,
    // What proofs may take; as long as they like where there is none.
    running: Option<&'g Running<'g>>,
    probe: Option<CostProbe<'g, D>>,
    // Opened when the first candidate is proved here: what passed in a worker is not proved twice.
    prover: RefCell<Option<KernelChecker<D>>>,
    // Drawn when a winner is to be proved again, or before on a thread of its own.
    fresh: OnceCell<Arc<Drawing>>,
    drawing: RefCell<Option<JoinHandle<Result<Drawing, Error>>>>,
    quarantine: Option<Quarantine<'g>>,
    proofs: Option<ProofCache<'g>>,
    timed: RefCell<Vec<Case<D>>>,
    /// Where the time goes.
    pub(crate) timing: Timing,
    // Seconds it took to draw what kernels are proved on, until somebody asks.
    opening: Cell<f64>,
    // The shortest time seen so far in seconds: what takes three times as long is not worth a second look.
    best: RefCell<f64>,
    /// Whether somebody right was faster than the measured ceilings allow.
    ceilings_are_too_low: Cell<bool>,
}

impl<'g, D: Device> Gate<'g, D> {
    /// Draws as many sets of inputs to be timed on as the policy asks for.
    pub(crate) fn open(
        problem: &'g dyn ErasedProblem<D>,
        device: &'g D,
        settings: &'g Settings,
    ) -> Result<Self, Error> {
        let draw = |i: u64| Case::without_answer(problem, device, seed(settings.seed, 100 + i));
        let first = draw(0)?;
        let sets = device.sets(settings.policy, first.footprint()).max(1) as u64;
        let others = (1..sets).map(draw);
        let timed = std::iter::once(Ok(first)).chain(others).collect::<Result<Vec<Case<D>>, Error>>()?;
        Ok(Gate { timed: RefCell::new(timed), ..Gate::untimed(problem, device, settings) })
    }

    /// A gate where candidates are proved and nothing is timed.
    pub(crate) fn untimed(problem: &'g dyn ErasedProblem<D>, device: &'g D, settings: &'g Settings) -> Self {
        Gate {
            problem,
            device,
            settings,
            running: None,
            probe: None,
            prover: RefCell::default(),
            fresh: OnceCell::new(),
            drawing: RefCell::default(),
            quarantine: None,
            proofs: None,
            timed: RefCell::default(),
            timing: Timing::default(),
            opening: Cell::new(0.0),
            best: RefCell::new(f64::INFINITY),
            ceilings_are_too_low: Cell::new(false),
        }
    }

    /// Keeps proofs within a budget; a scout tells what some of them are likely to take.
    pub(crate) fn within(mut self, running: &'g Running<'g>, probe: Option<CostProbe<'g, D>>) -> Self {
        (self.running, self.probe) = (Some(running), probe);
        self
    }

    /// Remembers who passed in a worker and who must not be tried again.
    pub(crate) fn remembering(mut self, quarantine: Quarantine<'g>, proofs: ProofCache<'g>) -> Self {
        (self.quarantine, self.proofs) = (Some(quarantine), Some(proofs));
        self
    }

    /// Draws what the winner will be proved on while others are measured, where that does not disturb the clock.
    pub(crate) fn draw_ahead(&self) {
        if !D::LAUNCH_IS_CALL {
            let (problem, seed) = (self.problem.boxed(), self.fresh_seed());
            *self.drawing.borrow_mut() = Some(std::thread::spawn(move || drawn(&*problem, seed)));
        }
    }

    fn fresh_seed(&self) -> u64 {
        self.settings.seed.wrapping_add(0x5eed_0000)
    }

    /// Builds a candidate, proves it right in a worker or here, and makes it ready to be timed.
    pub(crate) fn prove(&'g self, candidate: &Candidate, incumbent: bool) -> Result<Entrant<'g, D>, Rejection> {
        let unknown = || Rejection::DoesNotBuild { reason: format!("no variant is called {}", candidate.variant) };
        let runner = self.problem.find(&candidate.variant).ok_or_else(unknown)?;
        // Where a library is loaded in a process of its own, it may take that down already.
        let build = || {
            let built = self.timing.of("build", || runner.build(&candidate.config, self.device));
            self.judged(candidate, built)
        };
        // Building what is trusted harms nobody, and what does not build needs no worker.
        let early = if runner.is_baseline() { Some(build()?) } else { None };
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
        let sets: Vec<_> = timed.borrow().iter().map(|case| case.spots(&*kernel, device)).collect();
        let launch =
            Box::new(move |queue: &D::Queue, set: usize| timed.borrow_mut()[set].launch(&*shared, device, queue));
        let lap = self.timing.of("lap", || contained(|| device.lap(self.settings.policy, &sets, launch)));
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

    /// Proves a kernel here.
    fn prove_right(&self, candidate: &Candidate, kernel: &dyn Kernel<D>) -> Result<(f64, Option<f64>), Rejection> {
        let mut prover = self.prover.borrow_mut();
        let prover = match &mut *prover {
            Some(prover) => prover,
            closed => {
                let started = Instant::now();
                let small = |seconds: f64| self.running.is_none_or(|r| r.is_small(seconds));
                let opened = KernelChecker::open_while(self.problem, self.device, self.settings.seed, 2, &small);
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
        let drawing = match self.fresh.get() {
            Some(drawing) => drawing,
            None => {
                let ahead = self.drawing.borrow_mut().take().and_then(|thread| thread.join().ok());
                let drawing = ahead.unwrap_or_else(|| drawn(self.problem, self.fresh_seed()))?;
                self.fresh.get_or_init(|| Arc::new(drawing))
            }
        };
        let stirs = device.is_walled() || !self.timed.borrow()[0].spots(&*kernel, device).is_empty();
        for _ in 0..if stirs { 2 } else { 1 } {
            if entrant.lap.leaves_answers() {
                // What others have made of the inputs in the race is nothing to judge it by.
                self.timed.borrow_mut()[0].refill(device, drawing)?;
            }
            if let Err(rejection) = contained(|| entrant.lap.settle()) {
                return Ok(Err(rejection));
            }
            if !stirs {
                continue;
            }
            // On inputs as its timed launches have left them: what it remembers of them is out of date by a few elements,
            // unless it had to look again at the very last launch. So twice.
            let case = &mut self.timed.borrow_mut()[0];
            case.ask_again(self.problem, device, drawing)?;
            if entrant.lap.leaves_answers() {
                let left = match case.changes_in_place() {
                    false => case.verify_as_left(device),
                    true => match contained(|| entrant.lap.repeat()) {
                        Ok(launches) => case.verify_repeated(self.problem, device, launches)?,
                        Err(rejection) => Err(rejection),
                    },
                };
                if left.is_err() {
                    return Ok(left);
                }
            }
            if let Err(rejection) = case.verify(&*kernel, device) {
                return Ok(Err(rejection));
            }
        }
        let mut timed = self.timed.borrow_mut();
        let case = &mut timed[0];
        case.refill_asking(self.problem, device, drawing)?;
        Ok(case.verify(&*kernel, device).and_then(|_| case.inputs_untouched(device)))
    }
}

/// Inputs, with the right answer unless it will be asked for on the device.
fn drawn<D: Device>(problem: &dyn ErasedProblem<D>, seed: u64) -> Result<Drawing, Error> {
    if problem.oracle().is_some() { Drawing::inputs(problem, seed) } else { Drawing::new(problem, seed) }
}
