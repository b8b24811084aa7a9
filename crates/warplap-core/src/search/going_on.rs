//! Going on: the trials of an earlier tuning and a search come in; those that may still win are asked for first, then
//! what the search asks for and nobody has tried.

use std::collections::HashMap;

use crate::candidate::{Candidate, Trial};
use crate::record::Skipped;
use crate::search::Search;

/// A search that goes on where an earlier one was broken off.
pub(crate) struct GoingOn {
    /// Who races again.
    first: Vec<Candidate>,
    known: HashMap<Candidate, Trial>,
    inner: Box<dyn Search>,
    /// Whether the search has begun: before, it is told nothing, or it may think that it is over.
    begun: bool,
}

impl GoingOn {
    /// `first` race again; what the search asks for of the `known` it is told at once.
    pub(crate) fn new(first: Vec<Candidate>, known: &[Trial], inner: Box<dyn Search>) -> Self {
        let known = known.iter().filter(|t| !t.is_unseen()).map(|t| (t.candidate.clone(), t.clone())).collect();
        GoingOn { first, known, inner, begun: false }
    }

    /// Those of the asked that nobody has tried.
    fn untried(&mut self, asked: Vec<Candidate>) -> Vec<Candidate> {
        let mut new = Vec::new();
        for candidate in asked {
            match self.known.get(&candidate) {
                Some(trial) => self.inner.tell(trial),
                None => new.push(candidate),
            }
        }
        new
    }
}

impl Search for GoingOn {
    fn ask(&mut self, at_most: usize) -> Vec<Candidate> {
        if !self.first.is_empty() {
            return self.first.drain(..at_most.min(self.first.len())).collect();
        }
        self.begun = true;
        loop {
            let asked = self.inner.ask(at_most);
            if asked.is_empty() {
                return asked;
            }
            let new = self.untried(asked);
            if !new.is_empty() {
                return new;
            }
        }
    }

    fn tell(&mut self, trial: &Trial) {
        self.known.insert(trial.candidate.clone(), trial.clone());
        if self.begun {
            self.inner.tell(trial);
        }
    }

    fn ask_early(&mut self, at_most: usize) -> Vec<Candidate> {
        if !self.first.is_empty() {
            return Vec::new();
        }
        let asked = self.inner.ask_early(at_most);
        self.untried(asked)
    }

    fn likely(&self, at_most: usize) -> Vec<Candidate> {
        let new = self.inner.likely(at_most).into_iter().filter(|c| !self.known.contains_key(c));
        self.first.iter().cloned().chain(new).take(at_most).collect()
    }

    fn skipped(&self) -> Vec<Skipped> {
        self.inner.skipped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidates::variant::Priority;
    use crate::search::tests::{arm, failed, measured};
    use crate::search::{Brief, named};

    #[test]
    fn who_may_still_win_races_again_and_nobody_else_twice() {
        let arms = vec![arm("a", Priority::High, 10)];
        let all = named("exhaustive", arms.clone(), &Brief::default()).unwrap().ask(10);
        let known: Vec<Trial> =
            all[..6].iter().enumerate().map(|(i, c)| measured(c.clone(), 10.0 + i as f64)).collect();
        let inner = named("exhaustive", arms, &Brief::default()).unwrap();
        let mut search = GoingOn::new(all[..2].to_vec(), &known, inner);
        let mut asked = Vec::new();
        loop {
            let batch = search.ask(3);
            if batch.is_empty() {
                break;
            }
            batch.iter().for_each(|c| search.tell(&failed(c.clone())));
            asked.extend(batch);
        }
        let expected: Vec<Candidate> = all[..2].iter().chain(&all[6..]).cloned().collect();
        assert_eq!(asked, expected);
    }
}
