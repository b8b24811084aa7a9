//! The scout: what cannot be interrupted is tried on a smaller problem first. A problem comes in; the seconds that its
//! right answer and a proof of a candidate are likely to take go out.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use crate::candidate::Candidate;
use crate::device::Device;
use crate::model::erased::ErasedProblem;
use crate::prove::case::{Case, Drawing};

/// A problem of less than so many times the smaller one's work is not worth a look ahead.
const WORTH: f64 = 8.0;

/// Operations below which a problem says nothing about a larger one.
const TELLING: f64 = 1e4;

/// Looks of which the shortest counts: the first finds cold caches, and others' work makes each longer, none shorter.
#[derive(Clone, Copy)]
pub(crate) struct Looks {
    /// However long they take: a host that is shared may take a core away for tens of milliseconds.
    least: usize,
    most: usize,
    /// Seconds after which no further look is taken.
    long: f64,
}

/// Where much hangs on it: whether anything is raced at all.
pub(crate) const CAREFUL: Looks = Looks { least: 3, most: 8, long: 2e-2 };

/// Where it is one candidate of many.
pub(crate) const QUICK: Looks = Looks { least: 1, most: 4, long: 5e-3 };

/// A smaller problem of the same kind, where launches are calls that nobody can end.
pub(crate) struct CostProbe<'g, D: Device> {
    small: Box<dyn ErasedProblem<D>>,
    device: &'g D,
    case: RefCell<Case<D>>,
    /// How many times the work of the smaller problem the problem has.
    times: f64,
    /// Seconds of the smaller problem's inputs in memory, and of its right answer.
    draw: f64,
    answer: f64,
}

/// What a candidate is likely to take, in seconds.
#[derive(Clone, Copy)]
pub(crate) struct Likely {
    /// One launch.
    pub(crate) launch: f64,
    /// One proof: a launch, and comparing what it left.
    pub(crate) proof: f64,
}

impl<'g, D: Device> CostProbe<'g, D> {
    /// A scout for a problem; `None` where there is nothing to fear, or no smaller problem.
    pub(crate) fn new(problem: &dyn ErasedProblem<D>, device: &'g D, seed: u64) -> Option<Self> {
        let small = if D::LAUNCH_IS_CALL { problem.smaller()? } else { return None };
        let work = small.work().flops;
        let times = problem.work().flops / work;
        if work < TELLING || times < WORTH {
            return None;
        }
        let mut case = None;
        let (mut draw, mut answer) = (f64::INFINITY, f64::INFINITY);
        CAREFUL.take(|| {
            let started = Instant::now();
            let inputs = Drawing::inputs(&*small, seed).ok()?;
            let drawn = started.elapsed().as_secs_f64();
            let drawing = Arc::new(inputs.answered(&*small).ok()?);
            answer = answer.min(started.elapsed().as_secs_f64() - drawn);
            let started = Instant::now();
            case = Some(Case::of(&*small, device, &drawing).ok()?);
            draw = draw.min(drawn + started.elapsed().as_secs_f64());
            Some(())
        })?;
        Some(CostProbe { small, device, case: RefCell::new(case?), times, draw, answer })
    }

    /// Seconds that are likely to pass before anybody can be proved: inputs to be timed on, inputs to be proved on, and
    /// the right answer to those.
    pub(crate) fn opening(&self) -> f64 {
        (2.0 * self.draw + self.answer) * self.times
    }

    /// What a candidate is likely to take; `None` where it cannot do the smaller problem.
    pub(crate) fn likely(&self, candidate: &Candidate, looks: Looks) -> Option<Likely> {
        let runner = self.small.find(&candidate.variant)?;
        if !runner.fits(self.device) || !runner.space(self.device).contains(&candidate.config) {
            return None;
        }
        let kernel = runner.build(&candidate.config, self.device).ok()?;
        let mut case = self.case.borrow_mut();
        let mut likely = Likely { launch: f64::INFINITY, proof: f64::INFINITY };
        looks.take(|| {
            let started = Instant::now();
            let (left, launch) = case.run(&*kernel, self.device).ok()?;
            case.judge(left, self.device).ok()?;
            likely.proof = likely.proof.min(started.elapsed().as_secs_f64());
            likely.launch = likely.launch.min(launch?);
            Some(())
        })?;
        Some(Likely { launch: likely.launch * self.times, proof: likely.proof * self.times })
    }
}

impl Looks {
    /// Looks some times, fewer where that takes long; nothing where a look fails.
    fn take(self, mut once: impl FnMut() -> Option<()>) -> Option<()> {
        let began = Instant::now();
        for look in 1..=self.most {
            once()?;
            if look >= self.least && began.elapsed().as_secs_f64() > self.long {
                break;
            }
        }
        Some(())
    }
}
