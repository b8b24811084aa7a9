//! Settings: how a tuner behaves. Modes, budgets, and the word to stop.

use std::cell::Cell;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::measure::Policy;
use crate::model::bucket::Bucket;
use crate::model::objective::Objective;

/// What a tuner may do when it does not know a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Neither store nor measuring: the first choice by priority.
    Off,
    /// Answers from the store alone; never measures, never blocks.
    Replay,
    /// As replay, and remembers what was missed, to be tuned later.
    Record,
    /// Races what it does not know.
    #[default]
    Tune,
    /// As tune, but nobody waits: an official library answers while a thread of the process races, one key at a time,
    /// and the winner takes over when it is decided.
    Background,
}

impl Mode {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::Replay => "replay",
            Mode::Record => "record",
            Mode::Tune => "tune",
            Mode::Background => "background",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        [Mode::Off, Mode::Replay, Mode::Record, Mode::Tune, Mode::Background]
            .into_iter()
            .find(|m| m.name() == text)
            .ok_or_else(|| format!("'{text}' is not a mode: expected off, replay, record, tune or background"))
    }
}

/// Which seconds a budget counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counts {
    /// All that pass.
    #[default]
    Wall,
    /// Those of races alone: everyone on a short list shall have a turn, however long its compiler or a worker takes.
    Races,
}

/// When to stop tuning one key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Seconds. What was measured until then is kept.
    pub seconds: f64,
    /// What counts as spent.
    pub counts: Counts,
    /// The share of the seconds that is left to whoever asked, for a last heat.
    pub afterwards: f64,
    /// Candidates tried.
    pub trials: u64,
    /// Share of the roofline that is good enough to stop at once.
    pub good_enough: f64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { seconds: 4.0, counts: Counts::Wall, afterwards: 0.0, trials: 10_000, good_enough: 0.97 }
    }
}

/// The word to stop, shared between whoever says it (Ctrl-C) and whoever listens.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Says it.
    pub fn say(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was said.
    pub fn said(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How a tuner behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What to do about unknown keys.
    pub mode: Mode,
    /// The rounding from problem to key.
    pub bucket: Bucket,
    /// How candidates are measured.
    pub policy: Policy,
    /// What candidates are raced for.
    pub objective: Objective,
    /// When to stop.
    pub budget: Budget,
    /// Differences below this share do not matter.
    pub eps: f64,
    /// The chance of a wrong verdict that is accepted.
    pub delta: f64,
    /// The search's name.
    pub search: String,
    /// The seed of everything random.
    pub seed: u64,
    /// The word to stop.
    pub stop: Stop,
    /// Race again even what is known; the stored winner takes part as the incumbent.
    pub again: bool,
    /// Race the reference and the library at their defaults however low their priority, for reports to compare with.
    pub yardsticks: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            mode: Mode::default(),
            bucket: Bucket::default(),
            policy: Policy::default(),
            objective: Objective::default(),
            budget: Budget::default(),
            eps: 0.01,
            delta: 0.01,
            search: crate::search::NAMES[0].to_string(),
            seed: 0,
            stop: Stop::default(),
            again: false,
            yardsticks: false,
        }
    }
}

/// Share of a budget by which it may be overdrawn by what cannot be interrupted.
const SLACK: f64 = 0.1;

/// Seconds that keeping a record takes: its file is on the disk before anybody is told.
const RECORD: f64 = 0.02;

/// The largest share of a budget that one more proof may take.
const SMALL: f64 = 0.1;

/// A budget that is running.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    started: Instant,
    budget: Budget,
    stop: &'a Stop,
    /// Seconds that do not count.
    free: Cell<f64>,
    /// Seconds that ending properly will take: first samples of those who were proved, the winner's last proof.
    owed: Cell<f64>,
}

impl<'a> Running<'a> {
    pub(crate) fn start(settings: &'a Settings) -> Self {
        let (free, owed) = (Cell::new(0.0), Cell::new(0.0));
        let mut budget = settings.budget;
        budget.seconds *= 1.0 - budget.afterwards.clamp(0.0, 0.5);
        let running = Running { started: Instant::now(), budget, stop: &settings.stop, free, owed };
        running.owe(RECORD);
        running
    }

    /// Does what is no race.
    pub(crate) fn beside<T>(&self, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let done = work();
        if self.budget.counts == Counts::Races {
            self.free.set(self.free.get() + started.elapsed().as_secs_f64());
        }
        done
    }

    /// Wall seconds so far.
    pub(crate) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Seconds that count so far.
    fn spent(&self) -> f64 {
        self.seconds() - self.free.get()
    }

    /// Seconds that are left; none where time is up.
    pub(crate) fn left(&self) -> f64 {
        (self.budget.seconds - self.spent()).max(0.0)
    }

    /// When the last uninterruptible thing has to end; never where only races count.
    pub(crate) fn ends(&self) -> Option<Instant> {
        let whole = Duration::try_from_secs_f64(self.budget.seconds * (1.0 + SLACK)).ok()?;
        (self.budget.counts == Counts::Wall).then(|| self.started.checked_add(whole)).flatten()
    }

    /// So many seconds more will be needed before the end, or fewer where it is negative.
    pub(crate) fn owe(&self, seconds: f64) {
        if self.budget.counts == Counts::Wall {
            self.owed.set((self.owed.get() + seconds).max(0.0));
        }
    }

    /// Whether something may be begun that takes so many seconds and cannot be interrupted.
    pub(crate) fn affords(&self, seconds: f64) -> bool {
        let whole = self.budget.seconds * (1.0 + SLACK);
        self.budget.counts == Counts::Races || self.spent() + self.owed.get() + seconds <= whole
    }

    /// Whether so many seconds are a small part of the budget, and may be spent twice.
    pub(crate) fn is_small(&self, seconds: f64) -> bool {
        self.budget.counts == Counts::Races || (seconds <= SMALL * self.budget.seconds && self.affords(2.0 * seconds))
    }

    /// Whether time is up or somebody said stop. What is owed is paid out of time: the slack is for what takes longer
    /// than it seemed.
    pub(crate) fn over(&self) -> bool {
        self.stop.said() || self.spent() + self.owed.get() >= self.budget.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_ends_a_budget_early_and_what_does_not_fit_is_not_begun() {
        let mut settings = Settings::default();
        settings.budget.seconds = 1000.0;
        let running = Running::start(&settings);
        assert!(!running.over() && running.affords(1000.0) && !running.affords(1200.0));
        assert!(running.is_small(90.0) && !running.is_small(110.0));
        running.owe(90.0);
        assert!(!running.over() && !running.affords(1050.0));
        running.owe(1010.0);
        assert!(running.over() && !running.affords(1.0));
        running.owe(-1100.0);
        assert!(!running.over() && running.left() > 990.0);
        settings.budget.counts = Counts::Races;
        let running = Running::start(&settings);
        running.owe(5000.0);
        assert!(!running.over() && running.affords(5000.0), "only races count");
    }
}
