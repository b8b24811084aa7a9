//! Progress: a bar on a terminal, calm lines elsewhere. Events of the tuner come in; stderr gets what a person wants to
//! know meanwhile.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use warplap::core::progress::{Event, Observer};

use crate::console::{Console, DIM, NAME, paint, shown};
use crate::units;

/// Progress over several problems.
pub(crate) struct Progress<'c> {
    console: &'c Console,
    total: usize,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl<'c> Progress<'c> {
    /// Over so many problems.
    pub(crate) fn new(console: &'c Console, total: usize) -> Self {
        let bar = console.shows_bars().then(|| {
            let bar = ProgressBar::new(total as u64);
            let style =
                ProgressStyle::with_template("{spinner:.cyan} {bar:18.cyan/dim} {pos}/{len}  {elapsed}  {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸ "));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        console.set_bar(bar.clone());
        Progress { console, total, started: Instant::now(), bar }
    }

    /// One problem begins.
    pub(crate) fn begin(&self, number: usize, problem: &str) -> Watch<'_> {
        if let Some(bar) = &self.bar {
            bar.set_position(number as u64);
            bar.set_message(shown(problem));
        }
        Watch { progress: self, problem: problem.to_string(), tried: AtomicUsize::new(0), state: Mutex::default() }
    }

    /// One problem is done; `news` is a line about it.
    pub(crate) fn done(&self, number: usize, news: &str) {
        if let Some(bar) = &self.bar {
            bar.set_position(number as u64 + 1);
        }
        if self.bar.is_some() && self.console.verbose == 0 {
            return;
        }
        let at = format!("[{:5.1} s] {}/{}", self.started.elapsed().as_secs_f64(), number + 1, self.total);
        self.console.log(format_args!("{} {news}", paint(DIM, at)));
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.console.set_bar(None);
    }
}

#[derive(Default)]
struct State {
    candidates: usize,
    leader: Option<String>,
}

/// Watches one problem.
pub(crate) struct Watch<'p> {
    progress: &'p Progress<'p>,
    problem: String,
    tried: AtomicUsize,
    state: Mutex<State>,
}

impl Watch<'_> {
    fn show(&self, state: &State) {
        let Some(bar) = &self.progress.bar else { return };
        let tried = self.tried.load(Ordering::Relaxed).min(state.candidates);
        let leader = state.leader.as_deref().unwrap_or("proving the first candidates");
        let text = format!("{}  {tried}/{} tried  {leader}", paint(NAME, &self.problem), state.candidates);
        bar.set_message(shown(&text));
    }
}

impl Observer for Watch<'_> {
    fn event(&self, event: &Event<'_>) {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let loud = self.progress.console.verbose > 0;
        match event {
            Event::Started { candidates, .. } => {
                (state.candidates, state.leader) = (*candidates, None);
                if loud {
                    let many = units::some(*candidates, "candidate", "candidates");
                    self.progress.console.log(format_args!("{}: {many} may race", self.problem));
                }
            }
            Event::Tried(trial) => {
                self.tried.fetch_add(1, Ordering::Relaxed);
                if loud && !trial.is_right() {
                    let why = match &trial.outcome {
                        warplap::core::candidate::Outcome::Rejected(rejection) => rejection.to_string(),
                        warplap::core::candidate::Outcome::Measured(_) => String::new(),
                    };
                    self.progress.console.log(format_args!("  {} left: {why}", trial.candidate));
                }
            }
            Event::Leader(candidate, us) => {
                state.leader = Some(format!("{candidate} leads with {}", units::time(*us)));
                if loud {
                    self.progress.console.log(format_args!("  {candidate} leads with {}", units::time(*us)));
                }
            }
            Event::Waiting(holder) => state.leader = Some(format!("waiting for {holder}")),
            _ => {}
        }
        self.show(&state);
    }
}
