//! Flights across machines: a key comes in; the right to tune it alone goes out, a lock of a session in the database. It
//! ends with its guard, with its process, and half a minute after its machine froze or was cut off.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::error::FarError;
use crate::line::Line;

/// The server ends a session that is silent for so long; ours speaks more often.
const SILENT: u32 = 25;

/// Between two tries.
const STEP: Duration = Duration::from_millis(10);

/// How long one try may take, connecting included: whoever tries is about to spend seconds on a race.
const TRY: Duration = Duration::from_secs(3);

/// The flights of this process.
pub(crate) struct Flights {
    line: Arc<Line>,
    // A session may take a lock twice: whether this process has it is for us to know.
    ours: Arc<Mutex<HashSet<i64>>>,
}

/// A right that ends when it is dropped.
struct Held {
    line: Arc<Line>,
    ours: Arc<Mutex<HashSet<i64>>>,
    number: i64,
}

impl Flights {
    pub(crate) fn at(address: &Address) -> Flights {
        Flights { line: Arc::new(Line::to(address.ending_when_idle(SILENT))), ours: Arc::default() }
    }

    /// The lock's number for a key on a device.
    pub(crate) fn number(device: &str, soft: &str, hash: &str) -> i64 {
        let sum = blake3::hash(format!("warplap flight\n{device}\n{soft}\n{hash}").as_bytes());
        i64::from_le_bytes(std::array::from_fn(|n| sum.as_bytes()[n]))
    }

    /// Tries until it is free or the time is up; `None`: somebody else has it.
    pub(crate) fn take(&self, number: i64, wait: Duration) -> Result<Option<Box<dyn Send>>, FarError> {
        let until = Instant::now() + wait;
        loop {
            if locked(&self.ours).insert(number) {
                let held = Held { line: self.line.clone(), ours: self.ours.clone(), number };
                // Counted before it is there, so that the line is not hung up in between.
                self.line.held.fetch_add(1, Ordering::AcqRel);
                let got = self.line.ask(TRY, move |session| {
                    session.rows("select pg_try_advisory_lock($1)", &[&number]).map(|rows| rows[0].get::<_, bool>(0))
                });
                match got {
                    Ok(true) => return Ok(Some(Box::new(held))),
                    Ok(false) => held.forget(),
                    // It may have come after all: dropping says that it is not wanted.
                    Err(e) => return Err(e),
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(STEP.min(left));
        }
    }
}

impl Held {
    /// It was never ours: there is nothing to give back.
    fn forget(self) {
        locked(&self.ours).remove(&self.number);
        self.line.held.fetch_sub(1, Ordering::AcqRel);
        std::mem::forget(self);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let number = self.number;
        self.line.say(move |session| session.rows("select pg_advisory_unlock($1)", &[&number]).map(drop));
        locked(&self.ours).remove(&number);
        self.line.held.fetch_sub(1, Ordering::AcqRel);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
