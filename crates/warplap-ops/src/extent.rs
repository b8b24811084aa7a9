//! How large one buffer may be, and what follows for rows: how far they are rounded, and how far apart they may lie.

use warplap_core::bucket::Bucket;
use warplap_core::problem::{MAX_SIZE, ProblemError};

/// The largest total or span of one buffer: 2^31 elements.
pub(crate) const MAX_ELEMENTS: u64 = 1 << 31;

/// A size that changes from call to call, rounded as far as a buffer of so many elements for each stays one.
pub(crate) fn rounded(bucket: &Bucket, name: &str, size: u64, width: u64) -> u64 {
    let most = MAX_SIZE.min(MAX_ELEMENTS / width.max(1)).max(size);
    bucket.round_changing(name, size).min(most)
}

/// Refuses rows of so many elements whose total is too large; `what` they make up.
pub(crate) fn bounded(rows: u64, width: u64, what: &str) -> Result<(), ProblemError> {
    match rows * width > MAX_ELEMENTS {
        true => Err(ProblemError::value("rows", rows, format!("at most {MAX_ELEMENTS} {what}"))),
        false => Ok(()),
    }
}

/// Refuses a step from one of so many lines to the next that is less than a line, or leads too far.
pub(crate) fn apart(name: &str, step: u64, least: u64, lines: u64) -> Result<(), ProblemError> {
    match step >= least && step.checked_mul(lines).is_some_and(|all| all <= MAX_ELEMENTS) {
        true => Ok(()),
        false => {
            let expected = format!("at least {least}, and {MAX_ELEMENTS} at most in all {lines} rows");
            Err(ProblemError::value(name, step, expected))
        }
    }
}
