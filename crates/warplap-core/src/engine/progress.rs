//! Progress: what a tuner tells while it works. Libraries never print; whoever listens does.

use crate::candidate::{Candidate, Trial};

/// Something that happened on the road.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A key was not known and is being raced: how many candidates may take part.
    Started {
        /// The problem in its text form.
        problem: &'a str,
        /// Candidates after pruning.
        candidates: usize,
    },
    /// Somebody else tunes the key: who. Said again and again while it lasts.
    Waiting(&'a str),
    /// A candidate gave the right answer and enters the race.
    Proved(&'a Candidate),
    /// A candidate's trial has ended.
    Tried(&'a Trial),
    /// A race among so many lanes begins.
    Racing(usize),
    /// There is a new leader, with its median time in microseconds.
    Leader(&'a Candidate, f64),
}

/// Whoever listens.
pub trait Observer: Sync {
    /// Something happened.
    fn event(&self, event: &Event<'_>);
}

/// Nobody listens.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Observer for Silent {
    fn event(&self, _: &Event<'_>) {}
}
