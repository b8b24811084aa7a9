//! Replay: a search runs on a recorded space as on a device, only that the times are looked up.

use std::time::Instant;

use super::{Curve, Recorded};
use warplap_core::candidate::{Candidate, Outcome, SourceHash, Trial};
use warplap_core::measure::Measurement;
use warplap_core::rejection::Rejection;
use warplap_core::search::{self, Arm, Brief};
use warplap_core::space::Config;
use warplap_core::variant::Priority;

/// What a search did on a recorded space.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// What it had found by when.
    pub curve: Curve,
    /// Trials it took; failing ones count.
    pub trials: usize,
    /// Trials that failed.
    pub failures: usize,
    /// Seconds the search itself took: asking, learning and the bookkeeping of both.
    pub own_seconds: f64,
}

impl Recorded {
    /// A config of another recorded space as a donor here.
    pub fn donor(config: Config) -> Candidate {
        Candidate { variant: VARIANT.into(), config, source: SourceHash(String::new()) }
    }
}

const VARIANT: &str = "recorded";

/// Runs a search by name for at most `budget` trials; `None` when there is no search of that name.
pub fn replay(recorded: &Recorded, name: &str, budget: usize, brief: &Brief) -> Option<Replayed> {
    let started = Instant::now();
    let arm = Arm::new(VARIANT, SourceHash(String::new()), Priority::High, recorded.space.clone());
    let mut search = search::named(name, vec![arm], brief)?;
    let mut replayed = Replayed { curve: Curve::default(), trials: 0, failures: 0, own_seconds: 0.0 };
    while replayed.trials < budget {
        // One at a time: every outcome may change what is asked next.
        let asked = search.ask(1);
        if asked.is_empty() {
            break;
        }
        for candidate in asked {
            replayed.trials += 1;
            let index = recorded.space.index(&candidate.config).and_then(|i| usize::try_from(i).ok());
            let outcome = match index.map_or(Err("unknown"), |i| recorded.time_ms(i)) {
                Ok(time) => {
                    replayed.curve.note(replayed.trials, time);
                    Outcome::Measured(Measurement { median_us: time * 1e3, ..Measurement::default() })
                }
                Err(reason) => {
                    replayed.failures += 1;
                    Outcome::Rejected(Rejection::LaunchFailed { reason: reason.into() })
                }
            };
            search.tell(&Trial::new(candidate, outcome));
        }
    }
    replayed.own_seconds = started.elapsed().as_secs_f64();
    Some(replayed)
}
