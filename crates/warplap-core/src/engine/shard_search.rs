//! Parting: one part of a key's space comes in, raced for others and not for the store; what this device saw of it goes
//! out. And what several devices gathered comes in; once its winner has passed here, it is kept as one edition.

use crate::device::Device;
use crate::engine::contest_key::{Contested, KnownBefore};
use crate::engine::progress::Observer;
use crate::engine::run::{CEILINGS_SHARE, now};
use crate::engine::settings::Running;
use crate::engine::tuning_engine::{TuningEngine, is_current};
use crate::engine::{Tuned, Tuner};
use crate::error::Error;
use crate::measure::timing::Timing;
use crate::model::erased::ErasedProblem;
use crate::model::op::Op;
use crate::model::roofline::Work;
use crate::record::TuningRun;
use crate::rejection::Rejection;
use crate::split::{Gathered, GpuContest, Part};

impl<D: Device> TuningEngine<D> {
    /// Races a part of a problem's space. Nothing is kept but the notes of who passed: a part is no answer. Samples stay
    /// here, what was made of them is told.
    fn race_part(
        &self,
        card: &dyn ErasedProblem<D>,
        (name, part): (&str, &Part),
        observer: &dyn Observer,
    ) -> Result<GpuContest, Error> {
        let card = &*card.representative(&self.settings.bucket);
        if let Some(why) = self.device.busy(self.device.queue()) {
            return Err(Error::Device(format!("nothing may be measured now: {why}")));
        }
        let (timing, running) = (Timing::default(), Running::start(&self.settings));
        if card.work() != Work::default() {
            self.device.get_ready(&self.store, self.settings.budget.seconds * CEILINGS_SHARE);
        }
        let known = KnownBefore { part: Some(part), ..KnownBefore::default() };
        let Contested { mut outcomes, skipped } = self.contest(card, observer, known, (&timing, &running))?;
        let nothing = |rejection| Error::NothingRight { problem: card.text(), rejection };
        outcomes.trials.iter_mut().for_each(|trial| trial.forget_samples());
        Ok(GpuContest {
            card: name.to_string(),
            verdict: outcomes.verdict.map_err(nothing)?,
            trials: outcomes.trials,
            skipped,
            work: card.work(),
            floor_us: outcomes.floor.map(|f| f * 1e6),
            seconds: running.seconds(),
        })
    }

    /// Keeps what several devices of this one's class gathered, once the winner has passed here.
    fn keep_gathered(
        &self,
        card: &dyn ErasedProblem<D>,
        all: Gathered,
        observer: &dyn Observer,
    ) -> Result<Tuned, Error> {
        let (key, timing) = (self.key(card), Timing::default());
        let card = &*card.representative(&self.settings.bucket);
        if let Some(other) = all.trials.iter().map(|t| &t.candidate).find(|c| !is_current(card, c)) {
            let rejection =
                Rejection::DoesNotBuild { reason: format!("{other} was raced with other code than is here") };
            return Err(Error::Launch { problem: card.text(), rejection });
        }
        let turn = timing.of("wait", || self.turn(&key, observer));
        timing.of("admit", || self.admit(&key, card, &all.verdict.winner))?;
        let edition = TuningRun {
            soft: self.device.fingerprint().versions(),
            origin: self.store.id().to_string(),
            tuned_at: now(),
            program: env!("CARGO_PKG_VERSION").to_string(),
            artifacts: self.artifacts_of(card, &all.verdict),
            verdict: all.verdict,
            trials: all.trials,
            skipped: all.skipped,
            work: all.work,
            floor_us: all.floor_us,
            seconds: all.seconds,
            end_to_end_race: None,
            sizes: Vec::new(),
            vouched: Default::default(),
        };
        let warning = self.keep(&key, card, &edition, &timing);
        let stages = timing.take();
        Ok(Tuned { stages, note: turn.note, ..self.answer(key, card, edition, false, warning) })
    }
}

impl<O: Op, D: Device> Tuner<O, D> {
    /// Races a part of a problem's space on this device, which is called `card`. Nothing is recorded: several cards'
    /// heats make a record together ([`Gathered::of`]).
    pub fn race_part(
        &self,
        problem: &O::Problem,
        card: &str,
        part: &Part,
        observer: &dyn Observer,
    ) -> Result<GpuContest, Error> {
        self.engine.race_part(&self.erased(problem), (card, part), observer)
    }

    /// Records what several devices of this one's class gathered for a problem, once its winner has passed here.
    pub fn keep_gathered(&self, problem: &O::Problem, all: Gathered, observer: &dyn Observer) -> Result<Tuned, Error> {
        Ok(self.renewed(self.engine.keep_gathered(&self.erased(problem), all, observer)?))
    }
}
