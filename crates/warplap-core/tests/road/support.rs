//! What these tests share: catalogs of rows, tuners on a fake device, and launches that check their answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use warplap_core::bucket::Bucket;
use warplap_core::candidate::{Outcome, Trial};
use warplap_core::catalog::Catalog;
use warplap_core::engine::{Tuned, Tuner};
use warplap_core::error::Error;
use warplap_core::progress::Silent;
use warplap_core::record::TuningRun;
use warplap_core::settings::{Mode, Settings};
use warplap_core::store::Store;
use warplap_core::store::files::{Hook, Step};

use crate::fake::{Fake, Meter, Row, Scale, ScaleProblem, Seer, args};

pub type T = Tuner<Scale, Fake>;

pub fn catalog(rows: &[Row]) -> Catalog<Scale, Fake> {
    let mut rows = rows.iter().cloned();
    let reference = Catalog::new(Arc::new(rows.next().expect("a reference")));
    rows.fold(reference, |catalog, row| catalog.with(Arc::new(row)))
}

pub fn memory() -> Store {
    Store::memory()
}

/// Every size has its own key.
pub fn settings() -> Settings {
    Settings { bucket: Bucket::Exact, ..Settings::default() }
}

pub fn mode(mode: Mode) -> Settings {
    Settings { mode, ..settings() }
}

/// A tuner of its own device.
pub fn tuner(rows: &[Row], store: &Store, settings: Settings) -> T {
    on(Fake::new(), rows, store, settings)
}

pub fn on(device: Fake, rows: &[Row], store: &Store, settings: Settings) -> T {
    Tuner::new(Arc::new(device), catalog(rows), store.clone(), settings)
}

/// A tuner whose right answers lie on the device.
pub fn far(device: Fake, rows: &[Row], store: &Store, settings: Settings) -> T {
    Tuner::new(Arc::new(device), catalog(rows).with_oracle(Arc::new(Seer)), store.clone(), settings)
}

pub fn tune(tuner: &T, p: &ScaleProblem) -> Tuned {
    tuner.tune(p, &Silent).unwrap()
}

/// Launches and says whether the answer was right.
pub fn launch(tuner: &T, p: &ScaleProblem) -> Result<bool, Error> {
    let x: Vec<f64> = (0..p.n).map(|i| i as f64 / 8.0).collect();
    let mut y = vec![f64::NAN; x.len()];
    tuner.launch(p, &mut args(p, &x, &mut y), &Meter::default())?;
    Ok(x.iter().zip(&y).all(|(x, y)| *y == 2.0 * x + p.step as f64))
}

pub fn trial<'e>(edition: &'e TuningRun, id: &str) -> &'e Trial {
    edition.trials.iter().find(|t| t.candidate.variant == id).unwrap_or_else(|| panic!("no trial of {id}: {edition:?}"))
}

/// One word for what became of a variant: `measured`, a rejection's word, or `nothing`.
pub fn fate(edition: &TuningRun, id: &str) -> &'static str {
    match edition.trials.iter().find(|t| t.candidate.variant == id).map(|t| &t.outcome) {
        None => "nothing",
        Some(Outcome::Measured(_)) => "measured",
        Some(Outcome::Rejected(rejection)) => rejection.word(),
    }
}

/// Counts every step on the file system, and lets writes fail where asked to.
#[derive(Default)]
pub struct Disk {
    pub steps: AtomicU64,
    pub full: AtomicBool,
}

impl Hook for Disk {
    fn before(&self, step: Step, _: &std::path::Path) -> std::io::Result<()> {
        self.steps.fetch_add(1, Ordering::SeqCst);
        let writes = matches!(step, Step::Create | Step::Write | Step::Sync | Step::Rename | Step::SyncDir);
        // 28: no space left on device.
        if writes && self.full.load(Ordering::SeqCst) { Err(std::io::Error::from_raw_os_error(28)) } else { Ok(()) }
    }
}

/// What holds by the clock holds in a quiet moment: on a busy machine one of three tries counts.
pub(crate) fn in_a_quiet_moment(try_it: impl Fn() -> bool) -> bool {
    (0..3).any(|_| try_it())
}
