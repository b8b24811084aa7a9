//! A graph that runs: tensors by their names come in; they go through the partition of choice.

use std::sync::{Arc, OnceLock};

use crate::partition::Size;
use warplap_core::arg::Arg;
use warplap_core::engine::{How, Tuned, Tuner};
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::progress::{Observer, Silent};
use warplap_core::record::TuningRun;
use warplap_core::settings::{Counts, Mode};
use warplap_core::slot::Slot;

use super::explain::Story;
use super::plan::Plan;
use super::predict::{Guessed, wholes};
use super::problem::{GraphProblem, Graphs};
use super::sized::Match;
use super::task::{Ground, Task, Tuners};
use super::variant::{Predicted, catalog};

/// Partitions that race as whole chains, beside the one without covers: sums of parts mislead, but not by much.
const RACING: usize = 4;

/// A graph that runs. It may be run from many threads at once.
pub struct Fused<D: Ground> {
    problem: GraphProblem,
    tuners: Arc<Tuners<D>>,
    tuner: Tuner<Graphs, D>,
    predicted: Arc<OnceLock<Predicted>>,
    /// Who was told by the parts, where nobody had to race.
    guessed: OnceLock<Guessed<D>>,
    /// What its sizes are remembered by.
    choices: String,
    /// Whether a run has looked who is worth a race.
    ready: OnceLock<()>,
    slots: Vec<Slot>,
    inputs: usize,
}

impl<D: Ground> Fused<D> {
    pub(super) fn new(plan: Plan, tuners: Arc<Tuners<D>>) -> Self {
        let predicted = Arc::new(OnceLock::new());
        let catalog = catalog(&plan, &tuners, &predicted);
        let (device, store, mut settings) = (tuners.device.clone(), tuners.store.clone(), tuners.settings.clone());
        // A short list, and right answers that the host finds: everyone shall have a turn, however long these take.
        settings.budget.counts = Counts::Races;
        let inputs = plan.inputs.len();
        let choices = plan.choices();
        let problem = GraphProblem::new(Arc::new(plan));
        let slots = Graphs::signature(&problem).0;
        let tuner = Tuner::new(device, catalog, store, settings);
        let (guessed, ready) = (OnceLock::new(), OnceLock::new());
        Fused { problem, tuners, tuner, predicted, guessed, choices, ready, slots, inputs }
    }

    /// The graph as a problem of its operation: its text names its structure and its sizes.
    pub fn problem(&self) -> &GraphProblem {
        &self.problem
    }

    /// The tuner that chooses between partitions.
    pub fn tuner(&self) -> &Tuner<Graphs, D> {
        &self.tuner
    }

    /// Decides by measured time which partition the graph gets, or answers from the store: what each part takes by
    /// itself says who races, the race of whole chains says who wins.
    pub fn tune(&self, observer: &dyn Observer) -> Result<Tuned, Error> {
        // A decision that is provisional is gone on with, among those who raced before.
        let open = self.edition().is_none_or(|edition| edition.verdict.grade.is_provisional());
        self.get_ready(open, observer);
        let tuned = self.tuner.tune(&self.problem, observer)?;
        self.guessed.get().into_iter().for_each(Guessed::end);
        self.remember(&tuned);
        Ok(tuned)
    }

    /// Runs the graph on the session's own queue, with every input and every output by its name. In [`Mode::Tune`] the
    /// first run decides which partition it gets: by the store, by other sizes of the graph that were raced in the
    /// session where they leave no doubt, or by a race.
    ///
    /// Tensors are row-major and without padding; on a GPU their addresses are multiples of 64 bytes. What is captured
    /// there shares memory with later runs, and is to be replayed on the session's queue too.
    pub fn run<'a, 'n>(
        &self,
        inputs: impl IntoIterator<Item = (&'n str, D::View<'a>)>,
        outputs: impl IntoIterator<Item = (&'n str, D::ViewMut<'a>)>,
    ) -> Result<(), Error> {
        let mut args: Vec<Arg<'a, D>> = self.slots.iter().map(|_| Arg::Absent).collect();
        for (name, view) in inputs {
            let at = self.place(name, "input", &args)?;
            args[at] = Arg::Read(view);
        }
        for (name, view) in outputs {
            let at = self.place(name, "output", &args)?;
            args[at] = Arg::Write(view);
        }
        if let Some((slot, _)) = self.slots.iter().zip(&args).find(|(_, arg)| matches!(arg, Arg::Absent)) {
            let reason = format!("is missing, expected {} elements of {}: give it by its name", slot.len(), slot.dtype);
            return Err(Error::Argument { argument: slot.name.to_string(), reason });
        }
        let queue = self.tuners.device.queue();
        if self.ready.get().is_none() && self.tuners.device.busy(queue).is_none() {
            match self.tuners.settings.mode {
                Mode::Tune => {
                    self.get_ready(false, &Silent);
                    self.decide();
                }
                Mode::Background => self.get_ready_beside(),
                _ => {}
            }
            let _ = self.ready.set(());
        }
        match self.guessed.get().filter(|guessed| guessed.holds()) {
            Some(guessed) => guessed.launch(&self.problem, &mut args, queue),
            None => self.tuner.launch(&self.problem, &mut args, queue),
        }
    }

    /// Where an argument of a name goes.
    fn place(&self, name: &str, role: &str, args: &[Arg<'_, D>]) -> Result<usize, Error> {
        let wrong = |reason: String| Error::Argument { argument: name.to_string(), reason };
        let of = if role == "input" { 0..self.inputs } else { self.inputs..self.slots.len() };
        let Some(at) = of.clone().find(|at| self.slots[*at].name == name) else {
            let known = self.slots[of].iter().map(|slot| &*slot.name).collect::<Vec<_>>().join(", ");
            return Err(wrong(format!("is no {role} of this graph, expected one of {known}")));
        };
        match &args[at] {
            Arg::Absent => Ok(at),
            _ => Err(wrong(format!("is given twice, expected each {role} once: leave one of them out"))),
        }
    }

    /// Times the parts, unless the store knows the winner and the question is not open.
    fn get_ready(&self, open: bool, observer: &dyn Observer) {
        let known = !open && self.is_stored() && !self.tuners.settings.again;
        if self.predicted.get().is_none() && !known {
            self.predict(self.by_parts(observer));
        }
    }

    /// Takes who is told by the parts, or races.
    fn decide(&self) {
        let Some(parts) = self.predicted.get().map(Predicted::parts).filter(|_| self.guessed.get().is_none()) else {
            return;
        };
        let known = !self.tuners.settings.again && !self.is_stored();
        let guess = if known { self.tuners.known.guess(&self.choices, &parts) } else { None };
        if let Some(guessed) = guess.and_then(|guess| Guessed::proved(guess, &self.tuner, &self.problem)) {
            // Another thread may have been faster.
            let _ = self.guessed.set(guessed);
        } else if let Ok(tuned) = self.tuner.ensure(&self.problem, &Silent) {
            // Whoever cannot be raced says so when it is launched.
            self.remember(&tuned);
        }
    }

    /// Lets other sizes know what a race said.
    fn remember(&self, tuned: &Tuned) {
        let parts = self.predicted.get().map(Predicted::parts).filter(|_| !tuned.from_store);
        // Where the parts were not timed there is nothing to learn.
        if let Some(parts) = parts.filter(|parts| parts.values().all(|seconds| seconds.is_finite())) {
            self.tuners.known.remember(&self.choices, Size { parts, wholes: wholes(&tuned.edition) });
        }
    }

    /// Sends the parts to the background ahead of the graph, whose chains are then raced with their winners.
    fn get_ready_beside(&self) {
        if self.predicted.get().is_none() && !self.is_stored() {
            let plan = &self.problem.plan;
            for call in plan.alone.iter().chain(plan.covers.iter().flat_map(|cover| &cover.calls)) {
                // Whoever cannot be chosen says so when it is launched.
                let _ = D::part(&call.task, &self.tuners).choose();
            }
            self.predict(Vec::new());
        }
    }

    fn is_stored(&self) -> bool {
        matches!(self.tuner.lookup(&self.problem), Some((_, How::Stored)))
    }

    /// Says who races, by what all partitions take; where nobody knows that, those who cover most.
    fn predict(&self, mut all: Vec<(String, f64)>) {
        let (plan, apart) = (&self.problem.plan, self.problem.plan.unfused().id);
        if all.is_empty() {
            all = plan.partitions.iter().map(|partition| (partition.id.clone(), f64::NAN)).collect();
        }
        let (own, mut all): (Vec<_>, Vec<_>) = all.into_iter().partition(|(id, _)| *id == apart);
        // A cover that nobody does right takes for ever.
        let count = all.iter().take(RACING).take_while(|(_, seconds)| *seconds != f64::INFINITY).count();
        let others = all.split_off(count);
        all.extend(own);
        // Another thread may have been faster.
        let _ = self.predicted.set(Predicted { racing: all, others });
    }

    /// What all partitions take by the sums of their parts, cheapest first; nothing where a part cannot be timed.
    pub(super) fn by_parts(&self, observer: &dyn Observer) -> Vec<(String, f64)> {
        let plan = &self.problem.plan;
        let seconds = |task: &Task| {
            let warn = |error: &Error| tracing::warn!("{}: {error}", task.text());
            D::part(task, &self.tuners).seconds(observer).inspect_err(warn)
        };
        let alone: Result<Vec<f64>, Error> = plan.alone.iter().map(|call| seconds(&call.task)).collect();
        let Ok(alone) = alone else { return Vec::new() };
        let whole = |cover: &Match| cover.tasks().map(|task| seconds(task).unwrap_or(f64::INFINITY)).sum();
        let covers: Vec<f64> = plan.covers.iter().map(whole).collect();
        plan.cheapest(&alone, &covers)
    }

    /// What was decided: the graph with its boundaries, what every alternative took, and who did not race. Measures
    /// nothing.
    pub fn explain(&self) -> String {
        self.story().to_string()
    }

    /// The same as a page of HTML that loads nothing, with the graph drawn.
    pub fn report(&self) -> String {
        self.story().page().markup()
    }

    fn story(&self) -> Story<'_> {
        let (plan, key, mode) = (&*self.problem.plan, Graphs::text(&self.problem), self.tuners.settings.mode);
        if let Some(guessed) = self.guessed.get().filter(|guessed| guessed.holds()) {
            let (how, winner) = (guessed.how(), guessed.guess.winner.clone());
            return Story { plan, key, how, winner, edition: None, guess: Some(&guessed.guess) };
        }
        let decided = !matches!(mode, Mode::Tune | Mode::Background) || self.tuner.knows_key(&self.problem);
        let chosen = decided.then(|| self.tuner.choose(&self.problem)).transpose().ok().flatten();
        let (winner, how) = match chosen {
            Some(chosen) => (chosen.candidate.variant, how_text(&chosen.how)),
            None => (plan.unfused().id, "not decided yet: tune() or the first run decides".into()),
        };
        let edition = if decided && mode != Mode::Off { self.edition() } else { None };
        Story { plan, key, how, winner, edition, guess: None }
    }

    /// What the store holds about the graph.
    fn edition(&self) -> Option<TuningRun> {
        let record = self.tuner.record(&self.problem)?;
        record.current(self.tuners.device.fingerprint(), self.tuners.store.id()).cloned()
    }
}

fn how_text(how: &How) -> String {
    match how {
        How::Raced => "raced".into(),
        How::Stored => "from the store".into(),
        How::Stale => "from the store, of other code or other libraries".into(),
        How::Foreign(device) => format!("from the store of {device}"),
        How::Default(why) => why.clone(),
    }
}
