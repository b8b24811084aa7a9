//! Ahead: candidates that wait for their turn come in and are compiled on threads while others are proved and timed;
//! who is ready first is handed out first.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use crate::candidate::Candidate;
use crate::device::Device;
use crate::engine::settings::Running;
use crate::model::erased::ErasedProblem;
use crate::rejection::Rejection;

/// Compiles candidates of one problem ahead of their turn.
pub(crate) struct CompileAhead<'a, D: Device> {
    problem: &'a dyn ErasedProblem<D>,
    device: &'a D,
    builders: usize,
    /// When there is no time left, where there is such a moment.
    ends: Option<Instant>,
    board: Mutex<Board>,
    changed: Condvar,
}

#[derive(Default)]
struct Board {
    /// Asked for, in the order they shall be compiled.
    wanted: VecDeque<Candidate>,
    /// Not asked for yet, but likely to be: compiled when nobody waits.
    likely: VecDeque<Candidate>,
    underway: HashSet<Candidate>,
    done: HashMap<Candidate, Result<(), Rejection>>,
    /// The longest anybody took, and whether there is one who will do.
    longest: Duration,
    compiled: bool,
    closed: bool,
}

impl Board {
    fn next(&mut self) -> Option<Candidate> {
        loop {
            let candidate = self.wanted.pop_front().or_else(|| self.likely.pop_front())?;
            if !self.done.contains_key(&candidate) && self.underway.insert(candidate.clone()) {
                return Some(candidate);
            }
        }
    }
}

impl<'a, D: Device> CompileAhead<'a, D> {
    pub(crate) fn new(problem: &'a dyn ErasedProblem<D>, device: &'a D) -> Self {
        let (builders, board, changed) = (device.builders(), Mutex::default(), Condvar::new());
        CompileAhead { problem, device, builders, ends: None, board, changed }
    }

    /// Nothing is compiled that would take until after the end, by what others took.
    pub(crate) fn until(mut self, running: &Running<'_>) -> Self {
        self.ends = running.ends();
        self
    }

    /// Starts the threads; they end when what is returned is dropped, each after what it is compiling.
    pub(crate) fn start<'scope, 'env>(&'env self, scope: &'scope Scope<'scope, 'env>) -> Closing<'env, 'a, D> {
        for _ in 0..self.builders {
            scope.spawn(move || self.work());
        }
        Closing(self)
    }

    /// These will be asked for by [`Ahead::ready`], however often they are named.
    pub(crate) fn want(&self, candidates: &[Candidate]) {
        self.post(|board| {
            for candidate in candidates {
                let known = board.underway.contains(candidate) || board.done.contains_key(candidate);
                if !known && !board.wanted.contains(candidate) {
                    board.wanted.push_back(candidate.clone());
                }
            }
        });
    }

    /// These may be wanted later.
    pub(crate) fn expect(&self, candidates: Vec<Candidate>) {
        self.post(|board| board.likely = candidates.into());
    }

    /// Whoever was compiled so far does not do: one more is, late or not.
    pub(crate) fn press(&self) {
        self.post(|board| board.compiled = false);
    }

    fn post(&self, post: impl FnOnce(&mut Board)) {
        if self.builders > 0 {
            post(&mut self.board());
            self.changed.notify_all();
        }
    }

    /// Takes a candidate out of `pending` that is compiled, or did not compile. `None` when none was ready in time.
    pub(crate) fn ready(
        &self,
        pending: &mut Vec<Candidate>,
        patience: Duration,
    ) -> Option<(Candidate, Result<(), Rejection>)> {
        if self.builders == 0 {
            return (!pending.is_empty()).then(|| (pending.remove(0), Ok(())));
        }
        let mut board = self.board();
        for _ in 0..2 {
            if let Some(at) = pending.iter().position(|c| board.done.contains_key(c)) {
                let candidate = pending.remove(at);
                let outcome = board.done.remove(&candidate).unwrap_or(Ok(()));
                return Some((candidate, outcome));
            }
            board = self.changed.wait_timeout(board, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }

    fn work(&self) {
        let mut board = self.board();
        while !board.closed {
            // Late or not, somebody has to be there: until one is, they are compiled one at a time.
            let needed = !board.compiled && board.underway.is_empty();
            let late = !needed && self.ends.is_some_and(|ends| Instant::now() + board.longest > ends);
            let Some(candidate) = (if late { None } else { board.next() }) else {
                board = self.changed.wait(board).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(board);
            let started = Instant::now();
            let outcome = match self.problem.find(&candidate.variant) {
                Some(runner) => runner.compile(&candidate.config, self.device),
                // The gate says so with more words.
                None => Ok(()),
            };
            board = self.board();
            board.longest = board.longest.max(started.elapsed());
            board.compiled |= outcome.is_ok();
            board.underway.remove(&candidate);
            board.done.insert(candidate, outcome);
            self.changed.notify_all();
        }
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While it lives candidates are compiled.
pub(crate) struct Closing<'s, 'a, D: Device>(&'s CompileAhead<'a, D>);

impl<D: Device> Drop for Closing<'_, '_, D> {
    fn drop(&mut self) {
        self.0.board().closed = true;
        self.0.changed.notify_all();
    }
}
