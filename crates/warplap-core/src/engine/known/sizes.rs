//! Sizes that share a key: a problem whose key was raced at another size comes in; who answers at this one goes out.
//!
//! The winner of one size is not believed at another. Where sizes around it agree, what they agree on answers; else a
//! few race at once: the winners known, the best of other variants, and the library's own call, so that nobody gets
//! less than that. What is seen is kept beside the key's race, and the next size has a neighbour more.

use std::sync::Arc;

use crate::candidate::Candidate;
use crate::contest::verdict::WonBy;
use crate::device::Device;
use crate::engine::How;
use crate::engine::background;
use crate::engine::contest_key::{Contested, KnownBefore};
use crate::engine::progress::{Observer, Silent};
use crate::engine::settings::{Budget, Mode, Running, Settings};
use crate::engine::tuning_engine::{TuningEngine, is_current, locked};
use crate::error::Error;
use crate::key::Key;
use crate::measure::timing::Timing;
use crate::model::bucket::Bucket;
use crate::model::erased::ErasedProblem;
use crate::record::AtSize;
use crate::rejection::Rejection;
use crate::split::Part;

mod near;

use near::OfSize;

/// The share of a key's budget that a race of a few may take.
const SHARE: f64 = 0.1;

/// Differences below this share, and this chance of a wrong verdict, are good enough for one size.
const ROUGH: f64 = 0.03;

/// Sizes of a key that are raced; what comes later goes by its neighbours.
const MOST: usize = 64;

/// Variants whose best takes part, beside the winners.
const VARIANTS: usize = 4;

/// Who won in the form a program calls it is outdone only by one that is this much ahead as a kernel.
const CALL: f64 = 0.1;

/// What is known of a key, size by size: the race of the key, and races of a few.
#[derive(Clone)]
pub(crate) struct Sizes {
    /// The problem that was raced for the key.
    raced: String,
    winner: Candidate,
    /// Whether it won in the form a program calls it.
    by_call: bool,
    /// Everyone who was timed there, the winner first, and how far behind.
    ranked: Vec<(Candidate, f64)>,
    /// The other sizes.
    others: Vec<AtSize>,
}

impl Sizes {
    /// What was seen, size by size, the race of the key first.
    fn seen(&self) -> Vec<OfSize<'_>> {
        fn of<'s>(problem: &'s str, winner: &'s Candidate, ranked: &'s [(Candidate, f64)]) -> OfSize<'s> {
            OfSize { problem, winner, ranked }
        }
        let others = self.others.iter().map(|size| of(&size.problem, &size.winner, &size.behind));
        std::iter::once(of(&self.raced, &self.winner, &self.ranked)).chain(others).collect()
    }

    fn at(&self, problem: &str) -> Option<&AtSize> {
        self.others.iter().find(|size| size.problem == problem)
    }

    /// Wall seconds that the other sizes took.
    fn seconds(&self) -> f64 {
        self.others.iter().map(|size| size.seconds).sum()
    }
}

/// What differs in the problem that was raced for a key, where it is another one than was asked for.
pub(crate) fn other_size(asked: &str, raced: &str) -> Option<String> {
    (asked != raced).then(|| near::differences(asked, raced).unwrap_or_else(|| raced.to_string()))
}

impl<D: Device> TuningEngine<D> {
    /// Who answers for a problem whose key was decided, perhaps at another size; and whether that still holds the next
    /// time: where the device is busy a race has to wait, and the library answers.
    pub(crate) fn at_size(
        &self,
        key: &Key,
        erased: &dyn ErasedProblem<D>,
        queue: &D::Queue,
        observer: &dyn Observer,
        decided: (Candidate, How),
    ) -> (Candidate, How, bool) {
        let (candidate, how) = decided;
        if !matches!(self.settings.bucket, Bucket::Changing) || !matches!(how, How::Raced | How::Stored) {
            return (candidate, how, true);
        }
        let erased = &*erased.representative(&self.settings.bucket);
        let text = erased.text();
        let Some(sizes) = self.sizes(key, erased).filter(|sizes| sizes.raced != text) else {
            return (candidate, how, true);
        };
        if let Some(known) = self.believed(erased, &sizes) {
            return (known, How::Stored, true);
        }
        let may = sizes.others.len() < MOST && sizes.seconds() < self.settings.budget.seconds;
        let busy = self.device.busy(queue);
        if let (Some(busy), Mode::Tune) = (&busy, self.settings.mode) {
            let (candidate, how) = self.library_choice(erased, busy);
            return (candidate, how, false);
        }
        let free = busy.is_none();
        if may && free && self.settings.mode == Mode::Background {
            self.race_few_beside(key, erased, candidate.clone());
        }
        if may && self.settings.mode == Mode::Tune {
            match self.race_few(key, erased, &candidate, observer) {
                Ok(winner) => return (winner, How::Stored, true),
                Err(error) => tracing::debug!("{text}: the winner of {} answers: {error}", sizes.raced),
            }
        }
        match near::nearest(&sizes.seen(), &text).filter(|c| self.is_of_use(c, erased)) {
            Some(nearest) => (nearest, How::Stored, true),
            None => (candidate, how, true),
        }
    }

    /// What is said of a size that was not the one that was raced for its key.
    pub(crate) fn tell_of_size(&self, key: &Key, erased: &dyn ErasedProblem<D>) -> Option<String> {
        if !matches!(self.settings.bucket, Bucket::Changing) {
            return None;
        }
        let erased = &*erased.representative(&self.settings.bucket);
        let sizes = self.sizes(key, erased).filter(|sizes| sizes.raced != erased.text())?;
        let what = near::differences(&erased.text(), &sizes.raced)?;
        Some(match (sizes.at(&erased.text()), self.believed(erased, &sizes)) {
            (Some(size), _) => {
                let n = size.behind.len();
                format!("the race was at {what}; at this size {} won a short race of {n}", size.winner)
            }
            (None, Some(winner)) => format!("the race was at {what}; sizes around this one agree on {winner}"),
            (None, None) => {
                format!("the race was at {what}; this size was not measured yet, its first call races a few")
            }
        })
    }

    /// Who is known to be ahead at this size: it was raced, or those around it agree.
    fn believed(&self, erased: &dyn ErasedProblem<D>, sizes: &Sizes) -> Option<Candidate> {
        let exact = sizes.at(&erased.text()).map(|size| size.winner.clone());
        let result = exact.or_else(|| near::agreed(&sizes.seen(), &erased.text()))?;
        self.is_of_use(&result, erased).then_some(result)
    }

    fn is_of_use(&self, candidate: &Candidate, erased: &dyn ErasedProblem<D>) -> bool {
        is_current(erased, candidate) && self.usable(candidate, erased)
    }

    /// What is known of a key's sizes: as this process saw it last, else as the store has it.
    fn sizes(&self, key: &Key, erased: &dyn ErasedProblem<D>) -> Option<Arc<Sizes>> {
        if let Some(sizes) = locked(&self.known.sizes).get(&key.text) {
            return Some(sizes.clone());
        }
        self.read_sizes(key, erased)
    }

    fn read_sizes(&self, key: &Key, erased: &dyn ErasedProblem<D>) -> Option<Arc<Sizes>> {
        let (raced, edition) = (self.raced_for(key)?, self.current(key, erased)?);
        let sizes = Arc::new(Sizes {
            raced,
            winner: edition.verdict.winner.clone(),
            by_call: edition.verdict.won_by == WonBy::Call,
            ranked: edition.ranked().iter().map(|r| (r.trial.candidate.clone(), r.behind)).collect(),
            // What others saw of their sizes was never proved here: it is raced again.
            others: if edition.origin == self.store.id() { edition.sizes } else { Vec::new() },
        });
        locked(&self.known.sizes).insert(key.text.clone(), sizes.clone());
        Some(sizes)
    }

    /// Races a few at this size and keeps what is seen.
    fn race_few(
        &self,
        key: &Key,
        erased: &dyn ErasedProblem<D>,
        usual: &Candidate,
        observer: &dyn Observer,
    ) -> Result<Candidate, Error> {
        let _turn = self.turn(key, observer);
        let gone = || Error::Unknown(format!("{key}: its record is gone"));
        let sizes = self.read_sizes(key, erased).ok_or_else(gone)?;
        // Whoever held the lock may have raced it meanwhile.
        if let Some(known) = self.believed(erased, &sizes) {
            return Ok(known);
        }
        let few = self.few(erased, &sizes);
        let seconds = self.settings.budget.seconds * SHARE;
        let budget = Budget { seconds, afterwards: 0.0, ..self.settings.budget };
        let (eps, delta) = (self.settings.eps.max(ROUGH), self.settings.delta.max(ROUGH));
        let settings = Settings { budget, eps, delta, again: false, ..self.settings.clone() };
        let engine = TuningEngine::new(self.device.clone(), self.store.clone(), settings);
        let (timing, running) = (Timing::default(), Running::start(&engine.settings));
        let part = Part::Finals(few.clone());
        let incumbent = few.iter().find(|c| *c == usual);
        let known = KnownBefore { incumbent, part: Some(&part), ..KnownBefore::default() };
        let Contested { outcomes, .. } = engine.contest(erased, observer, known, (&timing, &running))?;
        let nothing = |why: &Rejection| Error::NothingRight { problem: erased.text(), rejection: why.clone() };
        let verdict = outcomes.verdict.as_ref().map_err(nothing)?;
        let by = |c: &Candidate| if *c == verdict.winner { Some(0.0) } else { Some(outcomes.behind.get(c)?.by) };
        let right = outcomes.trials.iter().filter(|t| t.is_right());
        let behind: Vec<_> = right.filter_map(|t| Some((t.candidate.clone(), by(&t.candidate)?))).collect();
        // Where there was no time for the winner that is known, nobody has beaten it.
        if incumbent.is_some_and(|c| behind.iter().all(|(other, _)| other != c) && !outcomes.lost(c)) {
            return Err(Error::NoTime { problem: erased.text(), needed: seconds, budget: seconds });
        }
        let holds = |(c, by): &&(Candidate, f64)| sizes.by_call && *c == sizes.winner && *by < CALL;
        let winner = behind.iter().find(holds).map_or(&verdict.winner, |(c, _)| c).clone();
        tracing::debug!("{}: {winner} of {} in {:.3} s", erased.text(), few.len(), running.seconds());
        self.keep_size(
            key,
            erased,
            AtSize { problem: erased.text(), winner: winner.clone(), behind, seconds: running.seconds() },
        );
        Ok(winner)
    }

    /// Who races at an unseen size: the winners known, the best of other variants, and the library's own call.
    fn few(&self, erased: &dyn ErasedProblem<D>, sizes: &Sizes) -> Vec<Candidate> {
        let mut few = vec![sizes.winner.clone()];
        few.extend(near::nearest(&sizes.seen(), &erased.text()));
        let mut variants: Vec<&str> = Vec::new();
        for (candidate, _) in &sizes.ranked {
            if variants.len() < VARIANTS && !variants.contains(&candidate.variant.as_str()) {
                variants.push(&candidate.variant);
                few.push(candidate.clone());
            }
        }
        few.extend(sizes.ranked.get(1).map(|(c, _)| c.clone()));
        let is_library = |c: &Candidate| erased.find(&c.variant).is_some_and(|r| r.is_library());
        few.extend(sizes.ranked.iter().map(|(c, _)| c).find(|c| is_library(c)).cloned());
        // Settings that this size does not have give way to the nearest that it has.
        let mut few: Vec<Candidate> = few.iter().filter_map(|c| self.carried(erased, c)).collect();
        few.push(self.library_choice(erased, "").0);
        let mut met = Vec::new();
        few.retain(|c| self.is_of_use(c, erased) && !met.contains(c) && (met.push(c.clone()), true).1);
        few
    }

    /// Keeps a size more: on the disk where this store measured the key, else for this process.
    fn keep_size(&self, key: &Key, erased: &dyn ErasedProblem<D>, size: AtSize) {
        let own = self.current(key, erased).filter(|edition| edition.origin == self.store.id());
        let (Some(mut edition), Some(raced)) = (own, self.raced_for(key)) else {
            if let Some(sizes) = locked(&self.known.sizes).get_mut(&key.text) {
                let sizes = Arc::make_mut(sizes);
                sizes.others.retain(|other| other.problem != size.problem);
                sizes.others.push(size);
            }
            return;
        };
        edition.sizes.retain(|other| other.problem != size.problem);
        edition.sizes.push(size);
        if let Err(error) = self.store.put(key, self.device.fingerprint(), edition.clone(), &raced) {
            tracing::warn!("a size of {key} was not kept: {error}");
            locked(&self.unkept).insert(key.text.clone(), edition);
        }
        self.read_sizes(key, erased);
    }

    /// Sends a race of a few to the background; whoever listens hears when it is decided.
    fn race_few_beside(&self, key: &Key, erased: &dyn ErasedProblem<D>, usual: Candidate) {
        self.device.start_threads();
        let (key, erased, device, store) = (key.clone(), erased.boxed(), self.device.clone(), self.store.clone());
        let (settings, known) = (self.settings.clone(), self.known.clone());
        background::send(Box::new(move |stop| {
            let settings = Settings { mode: Mode::Tune, stop: stop.clone(), ..settings };
            let engine = TuningEngine { known: known.clone(), ..TuningEngine::new(device.clone(), store, settings) };
            match device.beside_capture(|| engine.race_few(&key, &*erased, &usual, &Silent)) {
                Ok(winner) if winner != usual => known.tell(),
                Ok(_) => {}
                Err(error) => tracing::debug!("{}: {error}", erased.text()),
            }
        }));
    }
}
