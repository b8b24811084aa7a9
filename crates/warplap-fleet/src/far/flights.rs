//! Flights across machines: a key comes in; the right to tune it alone goes out, a lock of a session in the database. It
//! ends with its guard, with its process, and half a minute after its machine froze or was cut off.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::error::FarError;
use super::line::Line;
use super::rest::PATIENCE;

/// Between two tries, at the least and at the most. In between it is a share of what was waited already: a thousand
/// that wait for one key do not keep the server busy, and one of them is always about to try.
const STEPS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];
const SHARE: u32 = 10;

/// Who comes back after so long waits anew.
const FORGOTTEN: Duration = Duration::from_secs(5);

/// How long a server with no session to spare is asked for one: whoever tries is about to spend seconds on a race.
const BUSY: Duration = Duration::from_secs(3);

/// The flights of this process.
pub(crate) struct Flights {
    line: Arc<Line>,
    // A session may take a lock twice: whether this process has it is for us to know.
    ours: Arc<Mutex<HashSet<i64>>>,
    waits: Mutex<HashMap<i64, Wait>>,
}

/// Since when somebody waits, and when it was tried last.
struct Wait {
    since: Instant,
    last: Instant,
}

/// A right that ends when it is dropped.
struct Held {
    line: Arc<Line>,
    ours: Arc<Mutex<HashSet<i64>>>,
    number: i64,
    /// Whether the server may have given it, so that it has to be told when it is over.
    inputs: bool,
}

impl Flights {
    /// On a line whose sessions the server ends when they are silent.
    pub(crate) fn on(line: Arc<Line>) -> Flights {
        Flights { line, ours: Arc::default(), waits: Mutex::default() }
    }

    /// The lock's number for a key on a device.
    pub(crate) fn number(device: &str, soft: &str, hash: &str) -> i64 {
        let sum = blake3::hash(format!("warplap flight\n{device}\n{soft}\n{hash}").as_bytes());
        i64::from_le_bytes(std::array::from_fn(|n| sum.as_bytes()[n]))
    }

    /// Tries until it is free or the time is up; `None`: somebody else has it.
    pub(crate) fn take(&self, number: i64, wait: Duration) -> Result<Option<Box<dyn Send>>, FarError> {
        let (until, busy_until) = (Instant::now() + wait, Instant::now() + BUSY);
        loop {
            if locked(&self.ours).insert(number) {
                let mut held = Held { line: self.line.clone(), ours: self.ours.clone(), number, inputs: true };
                // Counted before it is there, so that the line is not hung up in between.
                self.line.held.fetch_add(1, Ordering::AcqRel);
                let got = self.line.ask(PATIENCE, move |session| {
                    session.rows("select pg_try_advisory_lock($1)", &[&number]).map(|rows| rows[0].get::<_, bool>(0))
                });
                match got {
                    Ok(true) => {
                        locked(&self.waits).remove(&number);
                        return Ok(Some(Box::new(held)));
                    }
                    Ok(false) => held.inputs = false,
                    // A server with no session to spare has one when somebody hangs up.
                    Err(FarError::Busy(_)) if Instant::now() < busy_until => {
                        held.inputs = false;
                        drop(held);
                        std::thread::sleep(self.step(number));
                        continue;
                    }
                    // It may have come after all: dropping says that it is not wanted.
                    Err(e) => return Err(e),
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(self.step(number).min(left));
        }
    }

    /// How long it is until the next try.
    fn step(&self, number: i64) -> Duration {
        let (now, mut waits) = (Instant::now(), locked(&self.waits));
        let wait = waits.entry(number).or_insert(Wait { since: now, last: now });
        if now - wait.last > FORGOTTEN {
            wait.since = now;
        }
        wait.last = now;
        let step = ((now - wait.since) / SHARE).clamp(STEPS[0], STEPS[1]);
        // Those who came together do not try together for ever.
        step.mul_f64(0.5 + 0.5 * fastrand::f64())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let number = self.number;
        if self.inputs {
            self.line.say(move |session| session.rows("select pg_advisory_unlock($1)", &[&number]).map(drop));
        }
        locked(&self.ours).remove(&number);
        self.line.held.fetch_sub(1, Ordering::AcqRel);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
