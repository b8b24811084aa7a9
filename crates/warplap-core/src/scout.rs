//! The scout: what cannot be interrupted is tried on a smaller problem first. A card comes in; the seconds that its
//! right answer and a launch of a candidate are likely to take go out.

use std::cell::RefCell;
use std::time::Instant;

use crate::candidate::Candidate;
use crate::card::Card;
use crate::case::{Case, Drawing};
use crate::device::Device;

/// A problem of less than so many times the smaller one's work is not worth a look ahead.
const WORTH: f64 = 4.0;

/// Looks of which the shortest counts: the first finds cold caches, and others' work makes each longer and none shorter.
const LOOKS: usize = 4;

/// Seconds after which no further look is taken.
const LONG: f64 = 5e-3;

/// A smaller problem of the same kind, where launches are calls that nobody can end.
pub(crate) struct Scout<'g, D: Device> {
    small: Box<dyn Card<D>>,
    device: &'g D,
    case: RefCell<Case<D>>,
    /// How many times the work of the smaller problem the problem has.
    times: f64,
    /// Seconds of the smaller problem's drawing and its right answer.
    answer: f64,
}

impl<'g, D: Device> Scout<'g, D> {
    /// A scout for a card; `None` where there is nothing to fear, or no smaller problem.
    pub(crate) fn new(card: &dyn Card<D>, device: &'g D, seed: u64) -> Option<Self> {
        let small = if D::LAUNCH_IS_CALL { card.smaller()? } else { return None };
        let times = card.work().flops / small.work().flops.max(1.0);
        if times < WORTH {
            return None;
        }
        let mut drawing = None;
        let answer = shortest(|| {
            drawing = Drawing::new(&*small, seed).ok();
            drawing.is_some()
        })?;
        let drawing = drawing?;
        let case = Case::of(&*small, device, &drawing.into()).ok()?;
        Some(Scout { small, device, case: RefCell::new(case), times, answer })
    }

    /// Seconds that one drawing with its right answer is likely to take.
    pub(crate) fn answer(&self) -> f64 {
        self.answer * self.times
    }

    /// Seconds that one launch of a candidate is likely to take; `None` where it cannot do the smaller problem.
    pub(crate) fn launch(&self, candidate: &Candidate) -> Option<f64> {
        let runner = self.small.find(&candidate.variant)?;
        if !runner.fits(self.device) || !runner.space(self.device).contains(&candidate.config) {
            return None;
        }
        let kernel = runner.build(&candidate.config, self.device).ok()?;
        let mut case = self.case.borrow_mut();
        let seconds = shortest(|| case.launch(&*kernel, self.device, self.device.queue()).is_ok())?;
        Some(seconds * self.times)
    }
}

/// The shortest of some looks, in seconds; nothing where one fails.
fn shortest(mut look: impl FnMut() -> bool) -> Option<f64> {
    let (began, mut best) = (Instant::now(), f64::INFINITY);
    for _ in 0..LOOKS {
        let started = Instant::now();
        if !look() {
            return None;
        }
        best = best.min(started.elapsed().as_secs_f64());
        if began.elapsed().as_secs_f64() > LONG {
            break;
        }
    }
    Some(best)
}
