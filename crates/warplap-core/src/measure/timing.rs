//! Timing: where the seconds of one tuning went, by stage of the road. Work comes in and is run; its seconds are kept.

use std::cell::RefCell;
use std::time::Instant;

/// A stage of the road and the wall seconds it took, in the order in which stages were first reached.
pub type Stages = Vec<(&'static str, f64)>;

/// Adds up seconds by stage.
#[derive(Debug, Default)]
pub(crate) struct Timing(RefCell<Stages>);

impl Timing {
    /// Runs work as part of a stage.
    pub(crate) fn of<R>(&self, stage: &'static str, work: impl FnOnce() -> R) -> R {
        let started = Instant::now();
        let result = work();
        self.add(stage, started.elapsed().as_secs_f64());
        result
    }

    /// Adds seconds to a stage.
    pub(crate) fn add(&self, stage: &'static str, seconds: f64) {
        let mut stages = self.0.borrow_mut();
        match stages.iter_mut().find(|(name, _)| *name == stage) {
            Some((_, sum)) => *sum += seconds,
            None => stages.push((stage, seconds)),
        }
    }

    /// Adds what was timed elsewhere.
    pub(crate) fn merge(&self, stages: Stages) {
        stages.into_iter().for_each(|(stage, seconds)| self.add(stage, seconds));
    }

    /// What was added so far; nothing is left.
    pub(crate) fn take(&self) -> Stages {
        self.0.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_of_one_stage_add_up_and_stages_keep_their_order() {
        let timing = Timing::default();
        timing.add("build", 1.0);
        timing.add("race", 2.0);
        timing.add("build", 0.5);
        assert_eq!(timing.of("race", || 7), 7);
        let stages = timing.take();
        assert_eq!(stages[0], ("build", 1.5));
        assert!(stages[1].0 == "race" && stages[1].1 >= 2.0 && stages.len() == 2);
        assert!(timing.take().is_empty());
    }
}
