//! Proving at deployment: a device and a store come in; every winner from elsewhere for this device passes the gate now,
//! or is told with the reason. A program that only replays uses what has passed, and nothing else from elsewhere.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use warplap_core::bucket::Bucket;
use warplap_core::engine::{AnyTuner, Proved};
use warplap_core::key::Key;
use warplap_core::record::Record;
use warplap_core::settings::{Settings, Stop};
use warplap_core::store::{Checked, Store};

use super::{AnyDevice, Operation, operation};

/// Proofs that run at once at the most: each holds the inputs and the right answer of its problem.
const AT_ONCE: usize = 4;

/// What became of the winners of a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProvedAll {
    /// Keys whose winner has passed here, now or before.
    pub passed: usize,
    /// Ties that have passed besides.
    pub ties: usize,
    /// Keys whose winner, or a tie, has not: the key, the candidate and why.
    pub failed: Vec<(String, String, String)>,
    /// Keys for whose proof there was no time: the key and why.
    pub late: Vec<(String, String)>,
    /// Keys with nothing to prove: raced here, of other versions or code, or of an operation or setting that is not
    /// known here.
    pub other: usize,
}

impl ProvedAll {
    fn take(&mut self, key: &str, proved: Option<Proved>) {
        let Some(Proved { passed, failed, late }) = proved else {
            self.other += 1;
            return;
        };
        if failed.is_empty() && late.is_empty() {
            self.passed += 1;
        }
        self.ties += passed.len().saturating_sub(1);
        self.failed.extend(failed.into_iter().map(|(c, why)| (key.to_string(), c.to_string(), why)));
        self.late.extend(late.into_iter().take(1).map(|(_, why)| (key.to_string(), why)));
    }
}

/// How a tuner of a record's operation is opened, under the settings that find the record.
pub type OpenTuner<'o> = &'o (dyn Fn(&'static Operation, Settings) -> Option<Box<dyn AnyTuner>> + Sync);

/// Proves every winner from elsewhere, and its ties, for this device, several at once. `begin` hears of each key: its
/// number, how many there are, and its problem. After `limit` nothing more is begun.
pub fn prove(
    device: &AnyDevice,
    store: &Store,
    stop: &Stop,
    limit: Option<Duration>,
    begin: &(dyn Fn(usize, usize, &str) + Sync),
) -> ProvedAll {
    let open = |op: &'static Operation, settings| Some(op.open(device, store.clone(), settings));
    prove_with(&device.fingerprint().slug(), store, stop, limit, &open, begin)
}

/// As [`prove`] for a program with candidates of its own, on the device with this folder name.
pub fn prove_with(
    slug: &str,
    store: &Store,
    stop: &Stop,
    limit: Option<Duration>,
    open: OpenTuner<'_>,
    begin: &(dyn Fn(usize, usize, &str) + Sync),
) -> ProvedAll {
    let entries: Vec<_> = store.entries().into_iter().filter(|entry| entry.device_slug == slug).collect();
    let (all, next, started) = (Mutex::new(ProvedAll::default()), AtomicUsize::new(0), Instant::now());
    let one = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let Some(entry) = entries.get(n).filter(|_| !stop.said()) else { break };
            let Checked::Whole(record) = store.check(entry) else { continue };
            let left = limit.map(|limit| limit.saturating_sub(started.elapsed()));
            let proved = match left {
                Some(Duration::ZERO) => was_late(store, &record),
                _ => {
                    begin(n, entries.len(), &record.problem);
                    prove_one(stop, left, open, &record)
                }
            };
            all.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take(&record.key, proved);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(AT_ONCE).min(entries.len());
    std::thread::scope(|scope| {
        // A machine that gives no more threads still has this one.
        for _ in 1..threads {
            let _ = std::thread::Builder::new().spawn_scoped(scope, one);
        }
        one();
    });
    let mut all = all.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    all.failed.sort();
    all.late.sort();
    all
}

/// What is said of a record from elsewhere whose turn did not come.
fn was_late(store: &Store, record: &Record) -> Option<Proved> {
    let elsewhere = record.editions.iter().rfind(|edition| edition.origin != store.id())?;
    let late = vec![(elsewhere.verdict.winner.clone(), "its turn did not come in time".to_string())];
    record.editions.iter().all(|edition| edition.origin != store.id()).then(|| Proved { late, ..Proved::default() })
}

fn prove_one(stop: &Stop, left: Option<Duration>, open: OpenTuner<'_>, record: &Record) -> Option<Proved> {
    let (op, mut settings) = as_raced(record, stop)?;
    // Whoever has begun has as long as a race of its key would: somebody hurried might look as if he hung.
    settings.budget.seconds = left.map_or(0.0, |left| left.as_secs_f64()).max(settings.budget.seconds);
    open(op, settings)?.prove(record)
}

/// The operation of a record, and settings under which it is found: its key says how it was measured.
pub fn as_raced(record: &Record, stop: &Stop) -> Option<(&'static Operation, Settings)> {
    let key = Key::new(&record.op, record.key.clone());
    let bucket = Bucket::named(&key.bucket).ok()?;
    let policy = key.policy.parse().ok()?;
    let settings = Settings { bucket, policy, stop: stop.clone(), ..Settings::default() };
    Some((operation(&record.op).ok()?, settings))
}
