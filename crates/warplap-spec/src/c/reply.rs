//! A cell's reply: forty-eight bytes come in, which the kernel over there may have written; what it told goes out, or why
//! nobody believes it.

use std::time::Duration;

use warplap::core::rejection::Rejection;

/// Bytes of a reply: six words, as `struct reply` of `cell.c` has them.
pub(crate) const BYTES: usize = 48;

/// What a cell told of one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// Whether it could not do it.
    pub(crate) failed: bool,
    /// Nanoseconds of all calls that count.
    pub(crate) nanoseconds: u64,
    /// Calls after which a poisoned element was still there.
    pub(crate) stale: u64,
    /// Calls that count.
    pub(crate) calls: u64,
}

impl Reply {
    /// Reads the reply to an order: its number, the calls it asked for, and the time that passed here meanwhile.
    pub(crate) fn read(bytes: &[u8; BYTES], number: u64, calls: u64, passed: Duration) -> Result<Reply, Rejection> {
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[8 * at + i]));
        let [text, failed, nanoseconds, stale, counted, mode] = std::array::from_fn(word);
        if text != number {
            return Err(Rejection::Crashed { reason: "the worker answers out of turn".into() });
        }
        if mode != 0 {
            return Err(mode_changed(mode));
        }
        // Patience is measured by what it tells: who told of a century could hang for three.
        if u128::from(nanoseconds) > passed.as_nanos() {
            let (text, passed) = (nanoseconds as f64 * 1e-9, passed.as_secs_f64());
            return Err(wrong(format!("its process told {text:.4} s, and {passed:.4} s passed")));
        }
        if stale > calls {
            return Err(wrong(format!("its process told of {stale} unwritten outputs in {calls} launches")));
        }
        if counted > calls {
            return Err(wrong(format!("its process told of {counted} launches of {calls}")));
        }
        Ok(Reply { failed: failed != 0, nanoseconds, stale, calls: counted })
    }
}

fn mode_changed(what: u64) -> Rejection {
    let names = [(1, "rounding"), (2, "flush to zero"), (4, "traps"), (8, "the x87 unit's precision")];
    let changed: Vec<&str> = names.iter().filter(|(bit, _)| what & bit != 0).map(|(_, name)| *name).collect();
    wrong(format!("leaves the floating-point mode changed: {}", changed.join(", ")))
}

fn wrong(reason: String) -> Rejection {
    Rejection::WrongAnswer { error: f64::INFINITY, allowed: 0.0, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: [u64; 6]) -> Result<Reply, String> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        Reply::read(&bytes.try_into().unwrap(), 7, 3, Duration::from_micros(5)).map_err(|e| e.to_string())
    }

    #[test]
    fn what_can_be_true_is_believed() {
        assert_eq!(read([7, 0, 5000, 3, 2, 0]), Ok(Reply { failed: false, nanoseconds: 5000, stale: 3, calls: 2 }));
        assert!(read([7, 1, 0, 0, 0, 0]).unwrap().failed);
    }

    #[test]
    fn what_cannot_be_true_is_not() {
        for (words, why) in [
            ([6, 0, 0, 0, 0, 0], "out of turn"),
            ([7, 0, 0, 0, 0, 3], "rounding, flush to zero"),
            ([7, 0, 5001, 0, 0, 0], "s passed"),
            ([7, 0, u64::MAX, 0, 0, 0], "s passed"),
            ([7, 0, 0, 4, 0, 0], "4 unwritten outputs in 3"),
            ([7, 0, 0, u64::MAX, 0, 0], "unwritten"),
            ([7, 0, 0, 0, 4, 0], "4 launches of 3"),
        ] {
            assert!(read(words).unwrap_err().contains(why), "{words:?}");
        }
    }
}
