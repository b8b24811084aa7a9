//! Rest: failures of the far side come in; whether it is asked at all goes out. One that is down costs a patience once,
//! and then nothing for a while; one that says nothing is left alone by the other processes too.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::error::FarError;
use super::silence::Silence;

/// How long anybody waits for a first word, connecting included: what is spent in vain is spent once in a process.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1250);

/// How long it is left alone after its first failure; twice as long after each further one.
const FIRST: Duration = Duration::from_secs(15);
/// The same where it was only late, as a multiple of the patience that was lost: the first connection of a process may
/// be late, and is there a moment later.
const LATE: u32 = 20;
/// The longest rest.
const LONGEST: Duration = Duration::from_secs(300);

/// Whether a far side is asked.
pub(crate) struct Rest {
    failing: Mutex<Failing>,
    silence: Arc<Silence>,
}

#[derive(Default)]
struct Failing {
    times: u32,
    until: Option<Instant>,
}

impl Rest {
    /// Beside others that share what is known of its silence.
    pub(crate) fn beside(silence: &Arc<Silence>) -> Rest {
        Rest { failing: Mutex::default(), silence: silence.clone() }
    }

    /// An error while it rests.
    pub(crate) fn check(&self) -> Result<(), FarError> {
        self.left().map_or(Ok(()), |_| Err(FarError::Resting))
    }

    /// Hears how it went, and since when somebody waited. The first failure of several is a warning, the first success
    /// after some is said too.
    pub(crate) fn hear<T>(
        &self,
        (title, doing): (&str, &str),
        began: Instant,
        answer: Result<T, FarError>,
    ) -> Result<T, FarError> {
        self.silence.hear(began.elapsed(), &answer);
        // In a child made by fork the lock may be held by a thread that is not there.
        let Ok(mut failing) = self.failing.try_lock() else { return answer };
        match &answer {
            Ok(_) => {
                if failing.times > 0 {
                    tracing::info!("{title}: {doing} works again");
                }
                *failing = Failing::default();
            }
            Err(FarError::Resting) => {}
            Err(e) => {
                if failing.times == 0 {
                    tracing::warn!("{title}: {doing}: {e}; the near store goes on, nothing is lost");
                }
                let first = match e {
                    FarError::Slow(patience) => *patience * LATE,
                    FarError::Busy(_) => Duration::from_secs(1),
                    _ => FIRST,
                };
                let rest = first.saturating_mul(1 << failing.times.min(8)).min(LONGEST);
                *failing = Failing { times: failing.times + 1, until: Some(Instant::now() + rest) };
            }
        }
        answer
    }

    /// When it may be asked again; nothing where it may be now.
    pub(crate) fn left(&self) -> Option<Duration> {
        let until = self.failing.try_lock().ok().and_then(|failing| failing.until);
        let own = until.map(|until| until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero());
        own.max(self.silence.left())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warplap_core::store::Store;

    #[test]
    fn it_is_left_alone_after_a_failure_and_a_success_forgets_all() {
        let rest = Rest::beside(&Arc::new(Silence::of(Store::memory(), "x", Arc::default())));
        let down = || rest.hear::<()>(("x", "asking"), Instant::now(), Err(FarError::Down("no".into())));
        assert!(rest.check().is_ok());
        let _ = down();
        assert!(matches!(rest.check(), Err(FarError::Resting)));
        let first = rest.left().unwrap();
        let _ = down();
        assert!(rest.left().unwrap() > first);
        rest.hear(("x", "asking"), Instant::now(), Ok(())).unwrap();
        assert!(rest.check().is_ok() && rest.left().is_none());
    }
}
