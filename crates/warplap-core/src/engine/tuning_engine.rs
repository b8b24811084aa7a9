//! The road by which a kernel is chosen: a problem comes in; a candidate with its kernel goes out, by mode from the store,
//! a race, or the first choice by priority. The operation's type is forgotten here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::candidate::Candidate;
use crate::device::Device;
use crate::engine::background;
use crate::engine::known::sizes::Sizes;
use crate::engine::progress::{Observer, Silent};
use crate::engine::settings::{Mode, Settings};
use crate::engine::{Chosen, How};
use crate::error::Error;
use crate::key::Key;
use crate::model::erased::{ErasedProblem, ListedVariant};
use crate::prove::verify::Case;
use crate::record::{Record, TuningRun};
use crate::rejection::Rejection;
use crate::store::{ASKING, Match, Store};

/// A device, a store and settings: what every operation's tuner has.
pub struct TuningEngine<D: Device> {
    pub(crate) device: Arc<D>,
    pub(crate) store: Store,
    pub(crate) settings: Settings,
    // Winners by key text: a new problem of a known key needs no disk.
    pub(crate) known: Arc<KnownWinners>,
    // Editions by key text that the store could not keep: they answer for as long as this process lives.
    pub(crate) unkept: Mutex<HashMap<String, TuningRun>>,
}

/// Winners by key text, and who wants to hear when one takes over from another.
#[derive(Default)]
pub(crate) struct KnownWinners {
    pub(crate) winners: Mutex<HashMap<String, (Candidate, How)>>,
    /// What was seen at other sizes of a key.
    pub(crate) sizes: Mutex<HashMap<String, Arc<Sizes>>>,
    listeners: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
}

impl KnownWinners {
    /// Tells somebody from now on when kernels that were chosen before may be out of date.
    pub(crate) fn listen(&self, listener: Box<dyn Fn() + Send + Sync>) {
        locked(&self.listeners).push(listener);
    }

    fn take_over(&self, key: &Key, winner: Candidate) {
        let before = locked(&self.winners).insert(key.text.clone(), (winner.clone(), How::Raced));
        if before.is_some_and(|(candidate, _)| candidate != winner) {
            self.tell();
        }
    }

    /// Tells whoever listens that kernels that were chosen before may be out of date.
    pub(crate) fn tell(&self) {
        locked(&self.listeners).iter().for_each(|listener| listener());
    }
}

/// What was decided about a key.
struct Decided {
    candidate: Candidate,
    how: How,
    /// Whether it still holds the next time: what was decided because the device was busy does not.
    lasts: bool,
}

impl<D: Device> TuningEngine<D> {
    /// A road to a store.
    pub fn new(device: Arc<D>, store: Store, settings: Settings) -> Self {
        TuningEngine { device, store, settings, known: Arc::default(), unkept: Mutex::default() }
    }

    /// The key of a problem.
    pub fn key(&self, erased: &dyn ErasedProblem<D>) -> Key {
        let (key, objective) = (erased.key(&self.settings.bucket, self.settings.policy), &self.settings.objective);
        if objective.is_time() { key } else { key.raced_for(&objective.word()) }
    }

    /// Whether the winner of a key is known to this process.
    pub(crate) fn knows(&self, key: &Key) -> bool {
        locked(&self.known.winners).contains_key(&key.text)
    }

    /// Chooses for somebody who launches on this queue; and whether the choice still holds the next time.
    pub(crate) fn choose(
        &self,
        erased: &dyn ErasedProblem<D>,
        queue: &D::Queue,
        observer: &dyn Observer,
    ) -> Result<(Chosen<D>, bool), Error> {
        let key = self.key(erased);
        let known = locked(&self.known.winners).get(&key.text).cloned();
        let decided = match known {
            Some((candidate, how)) => Decided { candidate, how, lasts: true },
            None => self.decide(&key, erased, queue, observer)?,
        };
        let Decided { candidate, how, lasts } = decided;
        if lasts {
            let mut winners = locked(&self.known.winners);
            winners.entry(key.text.clone()).or_insert_with(|| (candidate.clone(), how.clone()));
        }
        let (candidate, how, still) = self.at_size(&key, erased, queue, observer, (candidate, how));
        let chosen = self.build(&key, erased, &candidate, how)?;
        tracing::debug!("{}: {} answers: {}", erased.text(), chosen.candidate, chosen.how);
        Ok((chosen, lasts && still))
    }

    fn decide(
        &self,
        key: &Key,
        erased: &dyn ErasedProblem<D>,
        queue: &D::Queue,
        observer: &dyn Observer,
    ) -> Result<Decided, Error> {
        if self.settings.mode == Mode::Off {
            let (candidate, how) = self.library_choice(erased, "the mode is off");
            return Ok(Decided { candidate, how, lasts: true });
        }
        if self.settings.mode == Mode::Tune && self.device.busy(queue).is_none() {
            match self.ensure(erased, observer) {
                Ok(tuned) => {
                    let how = if tuned.from_store { How::Stored } else { How::Raced };
                    return Ok(Decided { candidate: tuned.edition.verdict.winner, how, lasts: true });
                }
                // The device may have become busy meanwhile.
                Err(Error::Device(_)) if self.device.busy(queue).is_some() => {}
                Err(error @ Error::NoTime { .. }) => {
                    tracing::warn!("{error}; the library answers");
                    let (candidate, how) = self.library_choice(erased, &error.to_string());
                    return Ok(Decided { candidate, how, lasts: true });
                }
                Err(error @ (Error::NothingRight { .. } | Error::Device(_))) => {
                    return self.last_resort(erased, &error);
                }
                Err(other) => return Err(other),
            }
        }
        let tunes = matches!(self.settings.mode, Mode::Tune | Mode::Background);
        if self.settings.mode == Mode::Record {
            self.ask(key, ASKING);
        }
        let result = self.lookup_edition(erased, key);
        if self.settings.mode == Mode::Background && self.device.busy(queue).is_none() {
            let proved = result.filter(|(edition, how)| self.is_admitted(key, erased, (edition, how)));
            return Ok(self.decide_beside(erased, proved.map(winner)));
        }
        if !matches!(result, Some((_, How::Stored))) && (self.settings.mode == Mode::Record || tunes) {
            self.store.miss(key, self.device.fingerprint(), &erased.text());
        }
        let busy = self.device.busy(queue);
        let mut why = format!("the mode is {} and the store does not know the key", self.settings.mode);
        let result = result.filter(|(edition, _)| self.may_answer(&edition.verdict.winner, erased));
        let replayed = |edition: &TuningRun| self.settings.mode == Mode::Replay && edition.origin != self.store.id();
        let imported = result.as_ref().filter(|(edition, _)| replayed(edition)).map(|(e, _)| e.verdict.winner.clone());
        let admitted = result.filter(|(edition, how)| {
            let winner = &edition.verdict.winner;
            let may = match (self.is_admitted(key, erased, (edition, how)), &busy) {
                // What never met the program's own call may be slower than that, and nothing is measured in a replay.
                (true, _) if replayed(edition) && !self.met_the_host(erased, edition) => {
                    Err("it never raced beside what this program would call without it (import it anew, or tune)"
                        .into())
                }
                (true, _) => Ok(()),
                (false, Some(busy)) => Err(format!("it was never proved here, and {busy}")),
                // Nothing is proved in the way of a program that only replays.
                (false, None) if replayed(edition) => {
                    Err("it was never proved here (warplap store verify --prove)".into())
                }
                (false, None) => self.admit_alone(key, erased, winner).map_err(|e| e.to_string()),
            };
            may.inspect_err(|e| why = format!("the stored winner {winner} came from elsewhere: {e}")).is_ok()
        });
        let why = busy.as_ref().filter(|_| tunes).unwrap_or(&why);
        let (candidate, how) = admitted.map(winner).or_else(|| self.library(erased, why)).unwrap_or_else(|| {
            // What came from elsewhere may be right where ours is not: nobody unproved answers in its place.
            match &imported {
                Some(_) => (self.reference(erased), How::Default(why.clone())),
                None => self.first_choice(erased, why),
            }
        });
        if let Some(winner) = imported.filter(|w| w.variant != candidate.variant && how != How::Stored) {
            self.store.warn_once_of("imported", &format!("{key}: {why}; {candidate} answers, not {winner}"));
        }
        let lasts = !tunes || how == How::Stored;
        Ok(Decided { candidate, how, lasts })
    }

    /// What the store knows answers, or else an official library; what is open is raced in the background.
    fn decide_beside(&self, erased: &dyn ErasedProblem<D>, result: Option<(Candidate, How)>) -> Decided {
        self.race_beside(erased);
        let stored = result.filter(|(candidate, how)| *how == How::Stored && self.may_answer(candidate, erased));
        let (candidate, how) =
            stored.unwrap_or_else(|| self.library_choice(erased, "it is being raced in the background"));
        Decided { candidate, how, lasts: true }
    }

    /// Sends a race to the background. Where the store's answer stands it measures nothing.
    fn race_beside(&self, erased: &dyn ErasedProblem<D>) {
        self.device.start_threads();
        let (erased, device, store) = (erased.boxed(), self.device.clone(), self.store.clone());
        let (settings, known) = (self.settings.clone(), self.known.clone());
        background::send(Box::new(move |stop| {
            let settings = Settings { mode: Mode::Tune, stop: stop.clone(), ..settings };
            let tuning_engine = TuningEngine::new(device.clone(), store, settings);
            // A capture that begins meanwhile takes no harm from what this thread does.
            match device.beside_capture(|| tuning_engine.tune(&*erased, &Silent)) {
                Ok(tuned) => known.take_over(&tuned.key, tuned.edition.verdict.winner),
                Err(error) => tracing::warn!("{error}; the library goes on answering"),
            }
        }));
    }

    /// Whether a candidate is what answers for a key now.
    pub(crate) fn answers(&self, key: &Key, candidate: &Candidate) -> bool {
        locked(&self.known.winners).get(&key.text).is_none_or(|(known, _)| known == candidate)
    }

    /// Nobody could be raced: the reference answers all the same, once it has shown that it is right. Where there was no
    /// time for it a library does, if there is one: the reference would take as long at every call.
    fn last_resort(&self, erased: &dyn ErasedProblem<D>, error: &Error) -> Result<Decided, Error> {
        let text = erased.text();
        if matches!(error, Error::NothingRight { rejection: Rejection::TimedOut { .. }, .. }) {
            let (candidate, how) = self.library_choice(erased, &error.to_string());
            if candidate != self.reference(erased) {
                tracing::warn!("{text}: {error}; the library answers");
                return Ok(Decided { candidate, how, lasts: true });
            }
        }
        tracing::warn!("{text}: {error}; the reference answers");
        let candidate = self.reference(erased);
        let nothing = |rejection| Error::NothingRight { problem: text.clone(), rejection };
        let kernel = erased.reference().build(&candidate.config, &self.device).map_err(nothing)?;
        // Where there is no memory for a proof, the reference's own tests must do.
        if let Ok(mut case) = Case::new(erased, &*self.device, self.settings.seed.wrapping_add(1)) {
            case.verify(&*kernel, &self.device).map_err(nothing)?;
        }
        Ok(Decided { candidate, how: How::Default(error.to_string()), lasts: true })
    }

    /// The reference at its default config.
    pub(crate) fn reference(&self, erased: &dyn ErasedProblem<D>) -> Candidate {
        let variant = erased.reference();
        let config = variant.space(&self.device).default_config().unwrap_or_default();
        Candidate { variant: variant.id().into(), config, source: variant.source() }
    }

    /// What the store knows of a key, without measuring anything.
    pub(crate) fn lookup(&self, erased: &dyn ErasedProblem<D>, key: &Key) -> Option<(Candidate, How)> {
        self.lookup_edition(erased, key).map(winner)
    }

    /// The edition that the store has for a key, and how its winner would be used.
    pub(crate) fn lookup_edition(&self, erased: &dyn ErasedProblem<D>, key: &Key) -> Option<(TuningRun, How)> {
        match self.store.lookup(key, self.device.fingerprint()) {
            Match::Exact(record) => {
                let edition = self.edition_of(&record, &|c| erased.find(&c.variant).is_some(), erased)?;
                let how = if is_current(erased, &edition.verdict.winner) { How::Stored } else { How::Stale };
                Some((edition, how))
            }
            Match::Near(record) => {
                Some((record.stale(self.device.fingerprint(), self.store.id())?.clone(), How::Stale))
            }
            Match::Foreign(record, slug) => Some((record.editions.last()?.clone(), How::Foreign(slug))),
            Match::Miss => None,
        }
    }

    /// The edition of a record that counts for who is in this catalog: one whose winner is, else what the best one says
    /// of those who are.
    pub(crate) fn edition_of(
        &self,
        record: &Record,
        has: &dyn Fn(&Candidate) -> bool,
        erased: &dyn ErasedProblem<D>,
    ) -> Option<TuningRun> {
        let (device, local) = (self.device.fingerprint(), self.store.id());
        record.current_of(device, local, has).cloned().or_else(|| {
            let whole = record.current(device, local)?;
            whole.among(&|c| is_current(erased, c), &device.versions())
        })
    }

    /// Whether a candidate's record holds for what is here: nothing is known of another version of a library, which races
    /// anew. A kernel of ours whose code changed has a place to defend all the same.
    pub(crate) fn is_here(erased: &dyn ErasedProblem<D>, candidate: &Candidate) -> bool {
        erased.find(&candidate.variant).is_some_and(|v| v.source() == candidate.source || !v.is_library())
    }

    /// Whether a stored candidate may be built for a problem: records are data, and buckets hold other shapes.
    pub(crate) fn usable(&self, candidate: &Candidate, erased: &dyn ErasedProblem<D>) -> bool {
        let can = |runner: crate::model::erased::Runner<'_, D>| {
            runner.fits(&self.device) && runner.space(&self.device).contains(&candidate.config)
        };
        erased.find(&candidate.variant).is_some_and(can)
    }

    /// Whether an edition knows how the call compares that the host program would make without us, where it would make
    /// one of its own.
    pub(crate) fn met_the_host(&self, erased: &dyn ErasedProblem<D>, edition: &TuningRun) -> bool {
        let (mut listed, _) = erased.list(&self.device);
        listed.retain(|l| l.runner.is_usual());
        let met = |id: &str| edition.trials.iter().any(|t| t.candidate.variant == id);
        listed.is_empty() || listed.iter().any(|l| met(l.runner.id()))
    }

    /// Whether a stored winner decides for a problem: it can be built, or it is what it was and another member of its
    /// bucket's. Then others of its record answer for this one, and it goes on answering for those it can do.
    fn may_answer(&self, winner: &Candidate, erased: &dyn ErasedProblem<D>) -> bool {
        self.usable(winner, erased) || (!self.settings.bucket.is_exact() && is_current(erased, winner))
    }

    /// Who answers while nothing is decided: the call that the host program would make without us, or an official
    /// library at its default config; where there is none, the first choice.
    pub(crate) fn library_choice(&self, erased: &dyn ErasedProblem<D>, why: &str) -> (Candidate, How) {
        self.library(erased, why).unwrap_or_else(|| self.first_choice(erased, why))
    }

    /// A library's own call. Of the host's calls the first that fits is its own choice; of the libraries that we bring
    /// the last is the machine's own.
    fn library(&self, erased: &dyn ErasedProblem<D>, why: &str) -> Option<(Candidate, How)> {
        let (mut listed, _) = erased.list(&self.device);
        listed.retain(|l| l.runner.is_library());
        let place = |l: &ListedVariant<'_, D>| erased.runners().position(|r| r.id() == l.runner.id()).unwrap_or(0);
        listed.sort_by_key(|l| if l.runner.is_usual() { place(l) } else { usize::MAX - place(l) });
        self.first_of(listed, why)
    }

    /// The first choice by priority, at its default config. Nobody has tried it: where candidates must pass in a worker
    /// first it is the library's, or the reference.
    pub(crate) fn first_choice(&self, erased: &dyn ErasedProblem<D>, why: &str) -> (Candidate, How) {
        let (mut listed, _) = erased.list(&self.device);
        listed.retain(|l| !self.device.sandboxes() || l.runner.is_baseline());
        let reference = || (self.reference(erased), How::Default(why.into()));
        self.first_of(listed, why).unwrap_or_else(reference)
    }

    /// The first of a list that has a default config.
    fn first_of(&self, listed: Vec<ListedVariant<'_, D>>, why: &str) -> Option<(Candidate, How)> {
        let at_default = |l: ListedVariant<'_, D>| {
            let config = l.runner.space(&self.device).default_config()?;
            Some(Candidate { variant: l.runner.id().into(), config, source: l.runner.source() })
        };
        Some((listed.into_iter().find_map(at_default)?, How::Default(why.into())))
    }
}

/// The winner of an edition.
fn winner((edition, how): (TuningRun, How)) -> (Candidate, How) {
    (edition.verdict.winner, how)
}

/// A lock whose holder's panic harms nobody: what it guards is whole at any time.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the code behind a candidate is the code there is now.
pub(crate) fn is_current<D: Device>(erased: &dyn ErasedProblem<D>, candidate: &Candidate) -> bool {
    erased.find(&candidate.variant).is_some_and(|v| v.source() == candidate.source)
}
