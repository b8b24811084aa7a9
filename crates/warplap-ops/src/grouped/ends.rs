//! Are these ends of groups? Offsets from outside come in; ranges of rows or a sentence that names the place go out.

use std::ops::Range;

use warplap_core::arg::Arg;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_cpu::{Cpu, Slice};

use super::{Grouped, GroupedProblem, slot};

/// What is wrong with the ends of groups.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("offsets[{at}] is {actual}: expected {expected}")]
pub struct OffsetsError {
    /// Which end.
    pub at: usize,
    /// Its value.
    pub actual: i32,
    /// What should stand there.
    pub expected: String,
}

impl From<OffsetsError> for Error {
    fn from(e: OffsetsError) -> Self {
        Error::Argument { argument: "offsets".into(), reason: e.to_string() }
    }
}

/// The rows of each expert, from where each one's end.
pub fn ranges(offsets: &[i32], rows: usize) -> Result<Vec<Range<usize>>, OffsetsError> {
    let mut begin = 0i32;
    let range = |(at, end): (usize, &i32)| {
        let wrong = |expected: String| OffsetsError { at, actual: *end, expected };
        match *end {
            end if end < begin && at == 0 => Err(wrong("0 or more".into())),
            end if end < begin => Err(wrong(format!("at least {begin}, the end of the expert before it"))),
            end if end as usize > rows => Err(wrong(format!("at most {rows}, the rows of x"))),
            end => Ok(std::mem::replace(&mut begin, end) as usize..end as usize),
        }
    };
    offsets.iter().enumerate().map(range).collect()
}

/// Checks that arguments are those of the problem, and the ends among them.
pub(super) fn check_on_cpu(p: &GroupedProblem, args: &[Arg<'_, Cpu>], _: &Cpu) -> Result<(), Error> {
    Grouped::signature(p).check(args)?;
    let offsets = match args[slot::OFFSETS].view() {
        Some(Slice::I32(offsets)) => offsets,
        _ => &[],
    };
    Ok(ranges(offsets.get(..p.experts as usize).unwrap_or(offsets), p.rows as usize).map(drop)?)
}

/// Of arguments in device memory nothing: a look would wait for the stream. Kernels take an end that is none as the
/// nearest that is one.
#[cfg(feature = "cuda")]
pub(super) fn check_on_cuda(
    p: &GroupedProblem,
    args: &[Arg<'_, warplap_cuda::Cuda>],
    _: &warplap_cuda::Cuda,
) -> Result<(), Error> {
    Grouped::signature(p).check(args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_damage_has_its_own_sentence() {
        assert_eq!(ranges(&[2, 2, 5], 7), Ok(vec![0..2, 2..2, 2..5]));
        assert_eq!(ranges(&[0, 7], 7), Ok(vec![0..0, 0..7]));
        let said = |offsets: &[i32]| ranges(offsets, 7).unwrap_err().to_string();
        assert_eq!(said(&[-1, 3]), "offsets[0] is -1: expected 0 or more");
        assert_eq!(said(&[4, 3]), "offsets[1] is 3: expected at least 4, the end of the expert before it");
        assert_eq!(said(&[4, 8]), "offsets[1] is 8: expected at most 7, the rows of x");
        assert_eq!(said(&[i32::MAX, 3]), "offsets[0] is 2147483647: expected at most 7, the rows of x");
        let error = Error::from(ranges(&[4, 3], 7).unwrap_err()).to_string();
        assert!(error.contains("offsets"), "{error}");
    }
}
