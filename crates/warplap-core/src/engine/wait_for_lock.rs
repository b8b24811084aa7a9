//! Waiting for one's turn: a key that somebody else tunes comes in; the right to tune it goes out, or the word to go on
//! without, because whoever has it is stopped or takes too long.

use std::time::{Duration, Instant};

use crate::device::Device;
use crate::engine::progress::{Event, Observer};
use crate::engine::tuning_engine::TuningEngine;
use crate::key::Key;
use crate::store::Flight;

/// Between two looks at whom we wait for.
const SLICE: Duration = Duration::from_millis(50);

/// Whoever is stopped this long is not waited for.
const STOPPED: Duration = Duration::from_millis(300);

/// After this long it is said whom we wait for.
const SILENT: Duration = Duration::from_secs(1);

/// A holder that works has a budget like ours, and may overdraw it: so many of our own, and these seconds, are waited.
const BUDGETS: f64 = 2.0;
const BESIDES: f64 = 1.0;

/// What came of waiting.
pub(crate) struct TuningTurn {
    /// The right to tune the key alone.
    pub(crate) _flight: Option<Flight>,
    /// Why there is none, for people.
    pub(crate) note: Option<String>,
}

impl<D: Device> TuningEngine<D> {
    /// Waits until nobody else tunes a key, as long as it makes sense and nobody says stop.
    pub(crate) fn turn(&self, key: &Key, observer: &dyn Observer) -> TuningTurn {
        let (began, device) = (Instant::now(), self.device.fingerprint());
        let budget = self.settings.budget.seconds.clamp(0.0, 1e6);
        let patience = Duration::from_secs_f64(BUDGETS * budget + BESIDES);
        let (mut stopped, mut said): (Option<Instant>, bool) = (None, false);
        loop {
            if let Some(flight) = self.store.try_lock(key, device, SLICE) {
                return TuningTurn { _flight: Some(flight), note: None };
            }
            let holder = self.store.holder(key, device);
            let name = holder.as_ref().map_or("somebody".to_string(), ToString::to_string);
            observer.event(&Event::Waiting(&name));
            stopped = holder.filter(|h| h.is_stopped()).map(|_| stopped.unwrap_or_else(Instant::now));
            let is_stopped = stopped.is_some_and(|since| since.elapsed() >= STOPPED);
            if self.settings.stop.said() || is_stopped || began.elapsed() >= patience {
                let seconds = began.elapsed().as_secs_f64();
                let note = format!("raced without waiting longer for {name}, after {seconds:.1} s");
                tracing::warn!("{key}: {note}");
                return TuningTurn { _flight: None, note: Some(note) };
            }
            if !said && began.elapsed() >= SILENT {
                said = true;
                tracing::warn!("{key}: waiting for {name}, which tunes it");
            }
        }
    }
}
