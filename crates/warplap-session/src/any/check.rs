//! Checking winners from elsewhere: a device and a store come in; some of those winners race here once more, against the
//! library, the reference and whoever else there is time for, and how far each is behind goes out. A proof says that a
//! winner is right; this says whether it is fast.

use warplap_core::engine::How;
use warplap_core::progress::Observer;
use warplap_core::record::{Record, TuningRun};
use warplap_core::settings::{Settings, Stop};
use warplap_core::store::{self, Store};

use super::AnyDevice;
use super::prove::as_raced;

/// A winner from elsewhere that would answer here.
#[derive(Clone, Debug)]
pub struct Claim {
    record: Record,
    edition: TuningRun,
}

impl Claim {
    /// The problem it won.
    pub fn problem(&self) -> &str {
        &self.record.problem
    }
}

/// A winner from elsewhere that raced here.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The problem.
    pub problem: String,
    /// Who says that it won.
    pub origin: String,
    /// The winner that was said.
    pub said: String,
    /// The winner here.
    pub result: String,
    /// How much slower the one that was said is here (0.05 = 5 %): nothing where it did not pass.
    pub behind: Option<f64>,
    /// Whether the two cannot be told apart.
    pub tie: bool,
}

impl Checked {
    /// Whether it is slower than this share, or not even right.
    pub fn is_off(&self, by: f64) -> bool {
        self.behind.is_none_or(|behind| behind > by && !self.tie)
    }
}

/// A share of the winners from elsewhere that would answer on a device, one at least where there are any.
pub fn claims(device: &AnyDevice, store: &Store, share: f64, seed: u64) -> Vec<Claim> {
    let print = device.fingerprint();
    let slug = print.slug();
    let of_others = |entry: &store::Entry| {
        let store::Checked::Whole(record) = store.check(entry) else { return None };
        let edition = record.current(print, store.id()).filter(|e| e.origin != store.id())?.clone();
        Some(Claim { record: *record, edition })
    };
    let entries = store.entries();
    let mut all: Vec<_> = entries.iter().filter(|e| e.device_slug == slug).filter_map(of_others).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut all);
    all.truncate((share * all.len() as f64).ceil() as usize);
    all
}

/// Races a winner from elsewhere once more. Nothing is kept: no store has changed afterwards.
pub fn check(
    device: &AnyDevice,
    claim: &Claim,
    seconds: f64,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<Checked, String> {
    let Claim { record, edition } = claim;
    let (op, settings) = as_raced(record, stop).ok_or("nobody here knows this operation, or how it was measured")?;
    let mut settings = Settings { again: true, yardsticks: true, ..settings };
    settings.budget.seconds = seconds;
    let aside = Store::memory();
    aside.merge(record.clone()).map_err(|e| e.to_string())?;
    let tuner = op.open(device, aside, settings);
    if tuner.find(&record.problem).map_err(|e| e.to_string())?.how != Some(How::Stored) {
        return Err("its winner's code is not the code that is here".into());
    }
    let tuned = tuner.tune(&record.problem, observer).map_err(|e| e.to_string())?;
    let said = &edition.verdict.winner;
    let ranked = tuned.edition.ranked();
    let here = ranked.iter().find(|r| r.trial.candidate == *said);
    Ok(Checked {
        problem: record.problem.clone(),
        origin: edition.origin.clone(),
        said: said.to_string(),
        result: tuned.edition.verdict.winner.to_string(),
        behind: here.map(|r| r.behind),
        tie: here.is_some_and(|r| r.tie || r.won),
    })
}
