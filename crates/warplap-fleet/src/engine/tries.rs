//! The tries of jobs: jobs that were lost come in; what is to be tried again, and what has failed for good, goes out.

use std::collections::{BTreeMap, VecDeque};

use super::TRIES;
use crate::jobs::{Class, Event, Job, State};

/// Jobs that wait for their turn, and what was said of those that had it.
#[derive(Default)]
pub(super) struct Tries {
    waiting: VecDeque<Job>,
    out: BTreeMap<String, Job>,
}

impl Tries {
    /// The tries of jobs that are for one of some classes; the others are given up, and `nobody` is why.
    pub(super) fn of(jobs: Vec<Job>, classes: &[Class], nobody: &str, tell: &mut dyn FnMut(Event)) -> Tries {
        let (waiting, hopeless): (VecDeque<Job>, VecDeque<Job>) =
            jobs.into_iter().partition(|job| classes.iter().any(|class| class.suits(job)));
        for job in hopeless {
            tell(Event::new(&job.id, State::Failed, "", job.attempt).because(nobody));
        }
        Tries { waiting, out: BTreeMap::new() }
    }

    /// The next job that suits.
    pub(super) fn next(&mut self, suits: impl Fn(&Job) -> bool) -> Option<Job> {
        let at = self.waiting.iter().position(suits)?;
        let job = self.waiting.remove(at)?;
        self.out.insert(job.id.clone(), job.clone());
        Some(job)
    }

    /// Whether every job has had its last word.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.out.is_empty()
    }

    /// Hears of a job: its last word takes it off the list. `false`: it is not under way, so it is old news.
    pub(super) fn hear(&mut self, event: &Event) -> bool {
        if !self.out.contains_key(&event.id) {
            return false;
        }
        if event.state.is_last() {
            self.out.remove(&event.id);
        }
        true
    }

    /// A job's worker is gone in the middle of it: one more try, or none.
    pub(super) fn lose(&mut self, id: &str, node: &str, why: &str) -> Option<Event> {
        let mut job = self.out.remove(id)?;
        if job.attempt >= TRIES {
            let why = format!("{why}; tried {} times", job.attempt);
            return Some(Event::new(id, State::Failed, node, job.attempt).because(why));
        }
        let event = Event::new(id, State::Lost, node, job.attempt).because(why);
        job.attempt += 1;
        self.waiting.push_back(job);
        Some(event)
    }

    /// A job never had its turn: it waits again, and no try is counted.
    pub(super) fn put_back(&mut self, id: &str) {
        if let Some(job) = self.out.remove(id) {
            self.waiting.push_front(job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::example;

    #[test]
    fn a_job_that_is_lost_is_tried_again_and_fails_after_its_tries() {
        let a = example("a");
        let (device, soft, policy) = (a.device.clone(), a.soft.clone(), a.policy.clone());
        let class = Class {
            device,
            soft,
            policy,
            kind: "cpu".into(),
            node: "n".into(),
            name: "cpu".into(),
            card: String::new(),
        };
        let stranger = Job { device: "another".into(), ..example("c") };
        let mut text = Vec::new();
        let mut tries = Tries::of(vec![a, example("b"), stranger], &[class], "no", &mut |event| text.push(event));
        assert!(text.len() == 1 && text[0].id == "c" && text[0].state == State::Failed, "{text:?}");
        for attempt in 1..=TRIES {
            let job = tries.next(|job| job.id == "a").unwrap();
            assert_eq!(job.attempt, attempt);
            let event = tries.lose("a", "n", "gone").unwrap();
            assert_eq!(event.state, if attempt < TRIES { State::Lost } else { State::Failed });
        }
        assert!(tries.next(|job| job.id == "a").is_none() && !tries.is_empty());
        let b = tries.next(|_| true).unwrap();
        tries.put_back(&b.id);
        assert_eq!(tries.next(|_| true).unwrap().attempt, 1);
        let done = Event::new("b", State::Done, "n", 1);
        assert!(tries.hear(&done) && tries.is_empty() && !tries.hear(&done));
    }
}
