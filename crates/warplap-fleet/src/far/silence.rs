//! Silence: a far side that let somebody wait in vain comes in; whether anybody asks it goes out. A note of the near store
//! tells every process of the machine, for a minute: of many programs one waits, once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use warplap_core::store::Store;

use super::error::FarError;

/// How long a far side that says nothing is left alone.
const MINUTE: Duration = Duration::from_secs(60);

/// Whoever waited this long in vain says so. One that refuses at once, or is late by a little, costs nobody much.
const LONG: Duration = Duration::from_millis(400);

/// Where it is said, among the near store's own notes.
const OWNER: &str = "store";
/// The note's name.
const NOTE: &str = "fleet-silence";

/// Whether a far side is silent, as far as the processes of this near store know.
pub(crate) struct Silence {
    near: Store,
    title: String,
    /// Until when this process leaves it alone: what it heard itself, and what it read.
    until: Mutex<Option<Instant>>,
    /// An answer came for somebody who had gone.
    late: Arc<AtomicBool>,
    /// Whether that has ended a silence before: what is late each time is asked once a minute all the same.
    lifted: AtomicBool,
}

impl Silence {
    /// Of a far side with this title; `late` is set where an answer comes for somebody who had gone.
    pub(crate) fn of(near: Store, title: &str, late: Arc<AtomicBool>) -> Silence {
        Silence { near, title: title.into(), until: Mutex::default(), late, lifted: AtomicBool::new(false) }
    }

    /// How long it is left alone; nothing where it may be asked.
    pub(crate) fn left(&self) -> Option<Duration> {
        let left = self.own().or_else(|| self.noted())?;
        if self.late.swap(false, Ordering::AcqRel) && !self.lifted.swap(true, Ordering::AcqRel) {
            // The first connection took longer than anybody waited. It is there now.
            self.end();
            return None;
        }
        Some(left)
    }

    /// Hears how a question went that somebody waited for so long.
    pub(crate) fn hear<T>(&self, waited: Duration, answer: &Result<T, FarError>) {
        let in_vain = match answer {
            Err(FarError::Slow(patience)) => *patience,
            Err(FarError::Down(_)) => waited,
            _ => return,
        };
        if in_vain >= LONG {
            self.begin();
        }
    }

    fn begin(&self) {
        self.late.store(false, Ordering::Release);
        self.remember(MINUTE);
        let until = (SystemTime::now() + MINUTE).duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        if let Err(e) = self.near.put_note(OWNER, NOTE, &json!({"far": self.title, "until": until})) {
            tracing::debug!("other processes are not told that {} is silent: {e}", self.title);
        }
    }

    /// It has answered.
    pub(crate) fn end(&self) {
        if let Ok(mut until) = self.until.try_lock() {
            *until = None;
        }
        if self.noted().is_some()
            && let Err(e) = self.near.remove_note(OWNER, NOTE)
        {
            tracing::debug!("other processes are not told that {} answers: {e}", self.title);
        }
    }

    fn own(&self) -> Option<Duration> {
        // In a child made by fork the lock may be held by a thread that is not there.
        let until = (*self.until.try_lock().ok()?)?;
        Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// What another process says.
    fn noted(&self) -> Option<Duration> {
        let note = self.near.note(OWNER, NOTE).filter(|note| note["far"] == self.title.as_str())?;
        let until = Duration::try_from_secs_f64(note["until"].as_f64()?).ok()?;
        let left = until.checked_sub(SystemTime::now().duration_since(UNIX_EPOCH).ok()?)?;
        // More than a minute is said by a clock that was set back since.
        (left <= MINUTE && !left.is_zero()).then(|| self.remember(left)).map(|()| left)
    }

    fn remember(&self, left: Duration) {
        if let Ok(mut until) = self.until.try_lock() {
            *until = Some(Instant::now() + left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silence(near: &Store, far: &str) -> Silence {
        Silence::of(near.clone(), far, Arc::default())
    }

    #[test]
    fn who_waited_in_vain_tells_the_others_and_an_answer_ends_it_for_all() {
        let near = Store::memory();
        let (one, two) = (silence(&near, "far"), silence(&near, "far"));
        let slow = Err::<(), _>(FarError::Slow(Duration::from_secs(1)));
        one.hear(Duration::from_secs(1), &Err::<(), _>(FarError::Slow(Duration::from_millis(50))));
        one.hear(Duration::from_millis(5), &Err::<(), _>(FarError::Down("no".into())));
        one.hear(Duration::from_secs(1), &Ok(()));
        one.hear(Duration::from_secs(1), &Err::<(), _>(FarError::Refused("no".into())));
        assert!(one.left().is_none() && two.left().is_none(), "nobody waited in vain");
        one.hear(Duration::from_secs(1), &slow);
        assert!(one.left().is_some() && two.left().is_some());
        assert!(silence(&near, "another").left().is_none());
        silence(&near, "far").end();
        assert!(silence(&near, "far").left().is_none());
    }

    #[test]
    fn an_answer_that_came_late_ends_a_silence_once() {
        let near = Store::memory();
        let silence = silence(&near, "far");
        let slow = Err::<(), _>(FarError::Slow(Duration::from_secs(1)));
        for is_silent in [false, true] {
            silence.hear(Duration::from_secs(1), &slow);
            silence.late.store(true, Ordering::Release);
            assert_eq!(silence.left().is_some(), is_silent);
        }
    }

    #[test]
    fn a_note_of_no_possible_time_is_not_believed() {
        let near = Store::memory();
        for until in [json!(0), json!(1e18), json!(-1), json!("soon"), json!(null)] {
            near.put_note(OWNER, NOTE, &json!({"far": "far", "until": until})).unwrap();
            assert!(silence(&near, "far").left().is_none(), "{until}");
        }
    }
}
