//! Entering a contest: candidates come in; those that are compiled and proved right go out, ready to race.

use std::time::{Duration, Instant};

use super::{BATCH, Contest, SPENT};
use crate::candidate::{Candidate, Outcome, Trial};
use crate::device::Device;
use crate::engine::progress::Event;
use crate::prove::gate::{Entrant, TooLong};
use crate::search::Search;

/// How long a compiler is waited for before it is asked again whether there is time left.
const WAIT: Duration = Duration::from_millis(50);

/// Who is not compiled this long after the last one was keeps the others no longer from racing, and comes after them.
const LATE: Duration = Duration::from_millis(400);

impl<'g, D: Device> Contest<'g, D> {
    /// Sends candidates through the gate, in the order in which they are compiled.
    pub(super) fn prove(&mut self, batch: Vec<Candidate>, search: &mut dyn Search) -> Vec<Entrant<'g, D>> {
        let mut entrants = Vec::new();
        let mut pending = Vec::new();
        for candidate in batch {
            let incumbent = self.incumbent.as_ref() == Some(&candidate);
            let hopeless = || self.gate.hopeless(&candidate).filter(|_| !incumbent);
            let passed_over = || self.gate.passed_over(&candidate).filter(|_| !incumbent);
            match self.gate.quarantined(&candidate).or_else(passed_over).or_else(hopeless) {
                Some(reason) => self.skip(&candidate.variant, &candidate.source, 1, &reason),
                None => pending.push(candidate),
            }
        }
        self.ahead.want(&pending);
        // Behind those: whoever is compiled first must be somebody who is waited for.
        self.ahead.expect(search.likely(BATCH.min(self.room())));
        let mut last = Instant::now();
        let half = self.running.left() / 2.0;
        while !pending.is_empty() {
            // What a user would call instead is waited for, however long it takes to open: nobody wins for its absence.
            let lacks = self.verdict.is_none() && self.lacks_library(&entrants, &pending);
            let may_begin = !entrants.is_empty() && !lacks;
            if may_begin && self.running.left() < half {
                // Some of the time is for the race; who was not proved by now comes after it.
                self.late = pending;
                break;
            }
            if self.spent() || (self.tried > 0 && !self.running.affords(self.proof)) {
                pending.drain(..).for_each(|c| self.skip(&c.variant, &c.source, 1, SPENT));
                break;
            }
            let wait = || self.gate.timing.of("compile", || self.ahead.ready(&mut pending, WAIT));
            let ready = self.running.beside(wait);
            let Some((candidate, compiled)) = ready else {
                if may_begin && last.elapsed() > LATE {
                    self.late = pending;
                    break;
                }
                if self.tried == 0 {
                    self.ahead.press();
                }
                continue;
            };
            let incumbent = self.incumbent.as_ref() == Some(&candidate);
            if let Some(reason) = self.gate.hopeless(&candidate).filter(|_| !incumbent) {
                self.skip(&candidate.variant, &candidate.source, 1, &reason);
                continue;
            }
            match self.gate.takes_too_long(&candidate).filter(|_| !incumbent) {
                Some(TooLong::NoTime) => {
                    self.skip(&candidate.variant, &candidate.source, 1, SPENT);
                    continue;
                }
                Some(TooLong::FarBehind) => {
                    self.skip(&candidate.variant, &candidate.source, 1, "it was far behind on a smaller problem");
                    continue;
                }
                None => {}
            }
            match compiled {
                Ok(()) => self.enter(candidate, &mut entrants, search),
                Err(rejection) => {
                    self.tried += 1;
                    self.tell(Trial::new(candidate, Outcome::Rejected(rejection)), search);
                }
            }
            last = Instant::now();
        }
        entrants
    }

    /// Whether a library is still to come, and none has come yet.
    fn lacks_library(&self, entrants: &[Entrant<'g, D>], pending: &[Candidate]) -> bool {
        let came = entrants.iter().any(|e| self.gate.is_library(&e.contender.candidate));
        !came && pending.iter().any(|c| self.gate.is_library(c))
    }

    /// Sends one candidate through the gate.
    pub(super) fn enter(&mut self, candidate: Candidate, entrants: &mut Vec<Entrant<'g, D>>, search: &mut dyn Search) {
        self.tried += 1;
        let incumbent = self.incumbent.as_ref() == Some(&candidate);
        let started = Instant::now();
        let proved = self.running.beside(|| self.gate.prove(&candidate, incumbent));
        let took = started.elapsed().as_secs_f64() - self.gate.opening();
        // What a library takes to open says nothing of those behind it.
        if !self.gate.is_library(&candidate) {
            self.proof = took;
        }
        match proved {
            Ok(entrant) => {
                if self.verdict.is_none() {
                    // In the first race everyone is sampled, whatever the time.
                    self.running.owe(entrant.sample);
                }
                self.observer.event(&Event::Proved(&candidate));
                entrants.push(entrant);
            }
            Err(rejection) => self.tell(Trial::new(candidate, Outcome::Rejected(rejection)), search),
        }
    }
}
