//! The far side of a store: many machines share what they found. The near store answers everything; the far one is
//! asked on a miss and told of what is new. Nothing here fails: a far side that is down, slow or full is a warning of its
//! own and a miss, and costs its patience once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::locks::lock::Flight;
use crate::records::fingerprint::Fingerprint;
use crate::records::key::Key;
use crate::records::record::Record;
use crate::{Match, Merged, Missed, Store};

/// How long a program that misses a key waits for the far side before it goes on without.
pub const ASKING: Duration = Duration::from_millis(50);

/// How long somebody waits who has the right to tune a key and is about to spend seconds on it.
pub const BEFORE_A_RACE: Duration = Duration::from_secs(2);

/// How long somebody who has tuned a key waits until others can have the answer.
const PUBLISHING: Duration = Duration::from_secs(10);

/// A store that many machines share. Every call has a patience of its own.
pub trait Far: Send + Sync {
    /// Where it is, for people: an address without its password.
    fn title(&self) -> String;

    /// What others know of a key on this kind of device under its present soft fingerprint, their signatures checked.
    /// Waits no longer than this, and after a failure not at all for a while.
    fn fetch(&self, key: &Key, device: &Fingerprint, wait: Duration) -> Option<Record>;

    /// The right to tune a key on this kind of device, alone among all machines.
    fn flight(&self, key: &Key, device: &Fingerprint, wait: Duration) -> Right;

    /// There is something new near. Returns at once.
    fn news(&self);

    /// Waits until what is new near has arrived, no longer than this.
    fn publish(&self, wait: Duration);

    /// A key was asked for and not found. Returns at once.
    fn want(&self, missed: Missed);
}

/// Who may tune a key.
#[derive(Debug)]
pub enum Right {
    /// Whoever asked, until this is dropped.
    Ours(Flight),
    /// Somebody on another machine.
    Theirs,
    /// Nobody knows: the far side cannot be reached.
    Unknown,
}

impl Store {
    /// This store with a far side.
    pub fn with_far(mut self, far: Arc<dyn Far>) -> Store {
        self.far = Some(far);
        self
    }

    /// The far side, where there is one.
    pub fn far(&self) -> Option<&Arc<dyn Far>> {
        self.far.as_ref()
    }

    /// Asks the far side for a key that is not known here, and keeps what it says as any record from elsewhere. Whether
    /// something came.
    pub fn ask(&self, key: &Key, device: &Fingerprint, wait: Duration) -> bool {
        let Some(far) = &self.far else { return false };
        if matches!(self.lookup(key, device), Match::Exact(_)) {
            return false;
        }
        let Some(mut record) = far.fetch(key, device, wait) else { return false };
        // Each was signed by whoever measured it.
        for edition in &mut record.editions {
            edition.vouched = [edition.origin.clone()].into();
        }
        let kept = self.take_in(vec![record]).pop().unwrap_or(Ok(Merged::Unchanged));
        kept.inspect_err(|e| self.warn_once("far".into(), &format!("{key}: what came is not kept: {e}"))).is_ok()
    }

    /// Lets others have what was put here; waits a little for it.
    pub fn publish(&self) {
        if let Some(far) = &self.far {
            far.publish(PUBLISHING);
        }
    }

    /// Adds the far side's right to the near one's; nothing where somebody on another machine has it.
    pub(crate) fn far_flight(
        &self,
        near: Flight,
        key: &Key,
        device: &Fingerprint,
        until: Option<Instant>,
    ) -> Option<Flight> {
        let Some(far) = &self.far else { return Some(near) };
        let left = until.map_or(Duration::from_secs(1), |until| until.saturating_duration_since(Instant::now()));
        match far.flight(key, device, left) {
            // Fields are dropped in their order: the next one here finds the far right free.
            Right::Ours(theirs) => Some(Flight::over((theirs, near))),
            Right::Theirs => None,
            Right::Unknown => Some(near),
        }
    }
}
