//! Rest: failures of the far side come in; whether it is asked at all goes out. One that is down costs a patience once,
//! and then nothing for a while.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::error::FarError;

/// How long it is left alone after its first failure; twice as long after each further one.
const FIRST: Duration = Duration::from_secs(15);
/// The same where it was only late, as a multiple of the patience that was lost: the first connection of a process may
/// be late, and is there a moment later.
const LATE: u32 = 20;
/// The longest rest.
const LONGEST: Duration = Duration::from_secs(300);

/// Whether a far side is asked.
#[derive(Default)]
pub(crate) struct Rest(Mutex<Failing>);

#[derive(Default)]
struct Failing {
    times: u32,
    until: Option<Instant>,
}

impl Rest {
    /// An error while it rests.
    pub(crate) fn check(&self) -> Result<(), FarError> {
        // In a child made by fork the lock may be held by a thread that is not there.
        let Ok(failing) = self.0.try_lock() else { return Ok(()) };
        match failing.until {
            Some(until) if Instant::now() < until => Err(FarError::Resting),
            _ => Ok(()),
        }
    }

    /// Hears how it went. The first failure of several is a warning, the first success after some is said too.
    pub(crate) fn hear<T>(&self, title: &str, doing: &str, answer: Result<T, FarError>) -> Result<T, FarError> {
        let Ok(mut failing) = self.0.try_lock() else { return answer };
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
        let until = self.0.try_lock().ok()?.until?;
        Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_left_alone_after_a_failure_and_a_success_forgets_all() {
        let rest = Rest::default();
        assert!(rest.check().is_ok());
        let _ = rest.hear::<()>("x", "asking", Err(FarError::Down("no".into())));
        assert!(matches!(rest.check(), Err(FarError::Resting)));
        let first = rest.left().unwrap();
        let _ = rest.hear::<()>("x", "asking", Err(FarError::Down("no".into())));
        assert!(rest.left().unwrap() > first);
        rest.hear("x", "asking", Ok(())).unwrap();
        assert!(rest.check().is_ok() && rest.left().is_none());
    }
}
