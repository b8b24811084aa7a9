//! Proving at deployment: a device and a store come in; every winner from elsewhere for this device passes the gate now,
//! or is told with the reason. A program that only replays uses what has passed, and nothing else from elsewhere.

use warplap_core::bucket::Bucket;
use warplap_core::engine::Proved;
use warplap_core::key::Key;
use warplap_core::record::Record;
use warplap_core::settings::{Settings, Stop};
use warplap_core::store::{Checked, Store};

use super::{AnyDevice, Operation, operation};

/// What became of the winners of a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProvedAll {
    /// Keys whose winner has passed here, now or before.
    pub passed: usize,
    /// Ties that have passed besides.
    pub ties: usize,
    /// Keys whose winner, or a tie, has not: the key, the candidate and why.
    pub failed: Vec<(String, String, String)>,
    /// Keys with nothing to prove: raced here, of other versions or code, or of an operation or setting that is not
    /// known here.
    pub other: usize,
}

/// Proves every winner from elsewhere, and its ties, for this device. `begin` hears of each key: its number, how many
/// there are, and its problem.
pub fn prove(device: &AnyDevice, store: &Store, stop: &Stop, begin: &dyn Fn(usize, usize, &str)) -> ProvedAll {
    let slug = device.fingerprint().slug();
    let entries: Vec<_> = store.entries().into_iter().filter(|entry| entry.device_slug == slug).collect();
    let mut all = ProvedAll::default();
    for (n, entry) in entries.iter().enumerate().take_while(|_| !stop.said()) {
        let Checked::Whole(record) = store.check(entry) else { continue };
        begin(n, entries.len(), &record.problem);
        let Some(Proved { passed, failed }) = prove_one(device, store, stop, &record) else {
            all.other += 1;
            continue;
        };
        if failed.is_empty() {
            all.passed += 1;
        }
        all.ties += passed.len().saturating_sub(1);
        all.failed.extend(failed.into_iter().map(|(c, why)| (record.key.clone(), c.to_string(), why)));
    }
    all
}

fn prove_one(device: &AnyDevice, store: &Store, stop: &Stop, record: &Record) -> Option<Proved> {
    let (op, settings) = as_raced(record, stop)?;
    op.open(device, store.clone(), settings).prove(record)
}

/// The operation of a record, and settings under which it is found: its key says how it was measured.
pub(super) fn as_raced(record: &Record, stop: &Stop) -> Option<(&'static Operation, Settings)> {
    let key = Key::new(&record.op, record.key.clone());
    let bucket = Bucket::named(&key.bucket).ok()?;
    let policy = key.policy.parse().ok()?;
    let settings = Settings { bucket, policy, stop: stop.clone(), ..Settings::default() };
    Some((operation(&record.op).ok()?, settings))
}
