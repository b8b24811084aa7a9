//! A report that is written while a race runs: events come in; a page that loads itself again goes out, whole each time.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use warplap::core::candidate::Trial;
use warplap::core::progress::{Event, Observer};

use crate::facts::{Subject, page};
use crate::kept::write;
use crate::units;

/// How often the page is written at most.
const EVERY: Duration = Duration::from_millis(700);

/// Listens to a race for somebody else and keeps its page.
pub(crate) struct Live<'l> {
    inner: &'l dyn Observer,
    subject: Subject<'l>,
    file: &'l Path,
    state: Mutex<LiveState>,
}

#[derive(Default)]
struct LiveState {
    trials: Vec<Trial>,
    candidates: usize,
    leader: Option<String>,
    written: Option<Instant>,
}

impl<'l> Live<'l> {
    pub(crate) fn new(inner: &'l dyn Observer, subject: Subject<'l>, file: &'l Path) -> Self {
        Live { inner, subject, file, state: Mutex::default() }
    }

    fn show(&self, state: &mut LiveState) {
        if state.written.is_some_and(|at| at.elapsed() < EVERY) {
            return;
        }
        let leader = state.leader.as_deref().unwrap_or("proving the first candidates");
        let headline = format!("{leader} ({} of {} tried)", state.trials.len().min(state.candidates), state.candidates);
        // A page that cannot be written now is written at the end, and said of then.
        let _ = write(self.file, page(&self.subject.racing(&headline, &state.trials)).as_bytes(), "--live");
        state.written = Some(Instant::now());
    }
}

impl Observer for Live<'_> {
    fn event(&self, event: &Event<'_>) {
        self.inner.event(event);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Started { candidates, .. } => state.candidates = *candidates,
            Event::Tried(trial) => {
                // Of one that races again the newest trial counts.
                state.trials.retain(|t| t.candidate != trial.candidate);
                state.trials.push((*trial).clone());
            }
            Event::Leader(candidate, us) => state.leader = Some(format!("{candidate} leads with {}", units::time(*us))),
            _ => {}
        }
        self.show(&mut state);
    }
}
