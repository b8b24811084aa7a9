//! Sizes that share a key: a card whose key was raced at another size comes in; who answers at this one goes out.
//!
//! The winner of one size is not believed at another. Where sizes around it agree, what they agree on answers; else a
//! few race at once: the winners known, the best of other variants, and the library's own call, so that nobody gets
//! less than that. What is seen is kept beside the key's race, and the next size has a neighbour more.

use super::How;
use super::contesting::{Contested, Known};
use super::road::{Road, is_current, locked};
use crate::background;
use crate::bucket::Bucket;
use crate::candidate::Candidate;
use crate::card::Card;
use crate::device::Device;
use crate::error::Error;
use crate::key::Key;
use crate::progress::{Observer, Silent};
use crate::record::{AtSize, Edition};
use crate::settings::{Budget, Mode, Running, Settings};
use crate::split::Part;
use crate::timing::Timing;
use crate::verdict::WonBy;

mod near;

use near::Seen;

/// The share of a key's budget that a race of a few may take.
const SHARE: f64 = 0.1;

/// Sizes of a key that are raced; what comes later goes by its neighbours.
const MOST: usize = 64;

/// Variants whose best takes part, beside the winners.
const VARIANTS: usize = 4;

/// Who won in the form a program calls it is outdone only by one that is this much ahead as a kernel.
const CALL: f64 = 0.1;

impl<D: Device> Road<D> {
    /// Who answers for a problem whose key was decided, perhaps at another size.
    pub(super) fn at_size(
        &self,
        key: &Key,
        card: &dyn Card<D>,
        queue: &D::Queue,
        observer: &dyn Observer,
        decided: (Candidate, How),
    ) -> (Candidate, How) {
        if !matches!(self.settings.bucket, Bucket::Changing) || !matches!(decided.1, How::Raced | How::Stored) {
            return decided;
        }
        let card = &*card.representative(&self.settings.bucket);
        let Some((edition, raced)) = self.edition_and_problem(key).filter(|(_, raced)| *raced != card.text()) else {
            return decided;
        };
        if let Some(known) = self.believed(card, &edition, &raced) {
            return (known, How::Stored);
        }
        let may = edition.sizes.len() < MOST && edition.spent_on_sizes() < self.settings.budget.seconds;
        let free = self.device.busy(queue).is_none();
        if may && free && self.settings.mode == Mode::Background {
            self.race_few_beside(key, card, decided.0.clone());
        }
        if may && free && self.settings.mode == Mode::Tune {
            match self.race_few(key, card, &decided.0, observer) {
                Ok(winner) => return (winner, How::Stored),
                Err(error) => tracing::debug!("{}: the winner of {raced} answers: {error}", card.text()),
            }
        }
        let nearest = near::nearest(&seen(&edition, &raced), &card.text()).filter(|c| self.is_of_use(c, card));
        nearest.map_or(decided, |winner| (winner, How::Stored))
    }

    /// What is said of a size that was not the one that was raced for its key.
    pub(super) fn tell_of_size(&self, key: &Key, card: &dyn Card<D>) -> Option<String> {
        if !matches!(self.settings.bucket, Bucket::Changing) {
            return None;
        }
        let card = &*card.representative(&self.settings.bucket);
        let (edition, raced) = self.edition_and_problem(key).filter(|(_, raced)| *raced != card.text())?;
        let what = near::differences(&card.text(), &raced)?;
        Some(match (edition.at(&card.text()), self.believed(card, &edition, &raced)) {
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
    fn believed(&self, card: &dyn Card<D>, edition: &Edition, raced: &str) -> Option<Candidate> {
        let exact = edition.at(&card.text()).map(|size| size.winner.clone());
        let found = exact.or_else(|| near::agreed(&seen(edition, raced), &card.text()))?;
        self.is_of_use(&found, card).then_some(found)
    }

    fn is_of_use(&self, candidate: &Candidate, card: &dyn Card<D>) -> bool {
        is_current(card, candidate) && self.usable(candidate, card)
    }

    /// The edition of a key and the problem that was raced for it.
    fn edition_and_problem(&self, key: &Key) -> Option<(Edition, String)> {
        let raced = self.raced_for(key)?;
        Some((self.current(key)?, raced))
    }

    /// Races a few at this size and keeps what is seen.
    fn race_few(
        &self,
        key: &Key,
        card: &dyn Card<D>,
        usual: &Candidate,
        observer: &dyn Observer,
    ) -> Result<Candidate, Error> {
        let _turn = self.turn(key, observer);
        let gone = || Error::Unknown(format!("{key}: its record is gone"));
        let (mut edition, raced) = self.edition_and_problem(key).ok_or_else(gone)?;
        // Whoever held the lock may have raced it meanwhile.
        if let Some(known) = self.believed(card, &edition, &raced) {
            return Ok(known);
        }
        let few = self.few(card, &edition, &raced);
        let seconds = self.settings.budget.seconds * SHARE;
        let budget = Budget { seconds, afterwards: 0.0, ..self.settings.budget };
        let settings = Settings { budget, again: false, ..self.settings.clone() };
        let road = Road::new(self.device.clone(), self.store.clone(), settings);
        let (timing, running) = (Timing::default(), Running::start(&road.settings));
        let part = Part::Finals(few.clone());
        let incumbent = few.iter().find(|c| *c == usual);
        let known = Known { incumbent, part: Some(&part), ..Known::default() };
        let Contested { outcomes, .. } = road.contest(card, observer, known, (&timing, &running))?;
        let nothing = |rejection| Error::NothingRight { problem: card.text(), rejection };
        let verdict = outcomes.verdict.map_err(nothing)?;
        let behind = |c: &Candidate| if *c == verdict.winner { Some(0.0) } else { Some(outcomes.behind.get(c)?.by) };
        let right = outcomes.trials.iter().filter(|t| t.is_right());
        let seen: Vec<_> = right.filter_map(|t| Some((t.candidate.clone(), behind(&t.candidate)?))).collect();
        // The winner that is known lost for want of time, not of speed.
        if incumbent.is_some_and(|c| {
            seen.iter().all(|(other, _)| other != c) && !outcomes.trials.iter().any(|t| t.candidate == *c)
        }) {
            return Err(Error::NoTime { problem: card.text(), needed: seconds, budget: seconds });
        }
        let by_call = edition.verdict.won_by == WonBy::Call;
        let holds = |(c, by): &&(Candidate, f64)| by_call && *c == edition.verdict.winner && *by < CALL;
        let winner = seen.iter().find(holds).map_or(&verdict.winner, |(c, _)| c).clone();
        tracing::debug!("{}: {winner} of {} in {:.3} s", card.text(), few.len(), running.seconds());
        let size = AtSize { problem: card.text(), winner: winner.clone(), behind: seen, seconds: running.seconds() };
        edition.sizes.retain(|other| other.problem != size.problem);
        edition.sizes.push(size);
        self.keep_size(key, &raced, edition);
        Ok(winner)
    }

    /// Who races at an unseen size: the winners known, the best of other variants, and the library's own call.
    fn few(&self, card: &dyn Card<D>, edition: &Edition, raced: &str) -> Vec<Candidate> {
        let ranked = edition.ranked();
        let mut variants: Vec<&str> = Vec::new();
        let mut few = vec![edition.verdict.winner.clone()];
        few.extend(near::nearest(&seen(edition, raced), &card.text()));
        for candidate in ranked.iter().map(|r| &r.trial.candidate) {
            if variants.len() < VARIANTS && !variants.contains(&candidate.variant.as_str()) {
                variants.push(&candidate.variant);
                few.push(candidate.clone());
            }
        }
        few.extend(ranked.get(1).map(|r| r.trial.candidate.clone()));
        let is_library = |c: &Candidate| card.find(&c.variant).is_some_and(|r| r.is_library());
        few.extend(ranked.iter().map(|r| &r.trial.candidate).find(|c| is_library(c)).cloned());
        // Settings that this size does not have give way to the nearest that it has.
        let mut few: Vec<Candidate> = few.iter().filter_map(|c| self.carried(card, c)).collect();
        few.push(self.library_choice(card, "").0);
        let mut met = Vec::new();
        few.retain(|c| self.is_of_use(c, card) && !met.contains(c) && (met.push(c.clone()), true).1);
        few
    }

    /// Keeps an edition that knows one size more: on the disk where this store measured it, else for this process.
    fn keep_size(&self, key: &Key, raced: &str, edition: Edition) {
        let own = edition.origin == self.store.id();
        let put = || self.store.put(key, self.device.fingerprint(), edition.clone(), raced);
        if let Some(error) = own.then(put).and_then(Result::err) {
            tracing::warn!("a size of {key} was not kept: {error}");
        } else if own {
            return;
        }
        locked(&self.unkept).insert(key.text.clone(), edition);
    }

    /// Sends a race of a few to the background; whoever listens hears when it is decided.
    fn race_few_beside(&self, key: &Key, card: &dyn Card<D>, usual: Candidate) {
        let (key, card, device, store) = (key.clone(), card.boxed(), self.device.clone(), self.store.clone());
        let (settings, known) = (self.settings.clone(), self.known.clone());
        background::send(Box::new(move |stop| {
            let settings = Settings { mode: Mode::Tune, stop: stop.clone(), ..settings };
            let road = Road::new(device.clone(), store, settings);
            match device.beside_capture(|| road.race_few(&key, &*card, &usual, &Silent)) {
                Ok(winner) if winner != usual => known.tell(),
                Ok(_) => {}
                Err(error) => tracing::debug!("{}: {error}", card.text()),
            }
        }));
    }
}

/// What was seen of a key, size by size, the race of the key first.
fn seen<'e>(edition: &'e Edition, raced: &'e str) -> Vec<Seen<'e>> {
    let race = edition.ranked().iter().map(|r| (&r.trial.candidate, r.behind)).collect();
    let of_size =
        |s: &'e AtSize| Seen { problem: &s.problem, ranked: s.behind.iter().map(|(c, by)| (c, *by)).collect() };
    std::iter::once(Seen { problem: raced, ranked: race }).chain(edition.sizes.iter().map(of_size)).collect()
}
