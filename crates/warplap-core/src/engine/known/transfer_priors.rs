//! Donors: what was fastest elsewhere, to be tried first and never trusted. A problem comes in; candidates go out, best
//! first: of the same key on another device or under other versions, else of the nearest key on this device.

use crate::candidate::{Candidate, Trial};
use crate::device::Device;
use crate::engine::TuningEngine;
use crate::key::Key;
use crate::model::erased::ErasedProblem;
use crate::record::TuningRun;
use crate::store::{Checked, Match};

/// Records of other keys that are opened to see how near they are: the newest ones.
const OPENED: usize = 16;

/// What is fast draws little, mostly: a record of another objective is worth as much as one of sizes this far apart,
/// e-fold.
const OTHER_OBJECTIVE: f64 = 1.0;

impl<D: Device> TuningEngine<D> {
    /// What was measured elsewhere and what it cost there, best first.
    pub(crate) fn elsewhere(&self, problem: &dyn ErasedProblem<D>) -> Vec<(Candidate, f64)> {
        let key = self.key(problem);
        let edition = match self.store.lookup(&key, self.device.fingerprint()) {
            Match::Foreign(record, _) => record.editions.last().cloned(),
            Match::Near(record) => record.stale(self.device.fingerprint(), self.store.id()).cloned(),
            Match::Exact(_) => None,
            Match::Miss => self.nearest(&key),
        };
        let right = |t: Trial| t.cost().map(|cost| (t.candidate, cost));
        let mut right: Vec<(Candidate, f64)> =
            edition.map_or_else(Vec::new, |e| e.trials).into_iter().filter_map(right).collect();
        right.sort_by(|a, b| a.1.total_cmp(&b.1));
        right
    }

    /// The last tuning of the nearest other key on this device.
    fn nearest(&self, key: &Key) -> Option<TuningRun> {
        let slug = self.device.fingerprint().slug();
        let mut entries = self.store.entries();
        entries.retain(|e| e.op == key.op && e.device_slug == slug);
        entries.sort_by_key(|e| std::cmp::Reverse(e.modified));
        let known = entries.iter().take(OPENED).filter_map(|entry| match self.store.check(entry) {
            Checked::Whole(record) => Some((apart(key, &Key::new(&record.op, record.key.clone()))?, *record)),
            _ => None,
        });
        let (_, record) = known.min_by(|a, b| a.0.total_cmp(&b.0))?;
        record.editions.into_iter().next_back()
    }
}

/// How far two keys are apart: the sum over their sizes of the logarithm of the ratio, and [`OTHER_OBJECTIVE`] where
/// one was raced for something else. `None` where they differ in more.
fn apart(one: &Key, other: &Key) -> Option<f64> {
    let (a, b) = (parts(&one.fields), parts(&other.fields));
    if a.len() != b.len() || (&one.bucket, &one.policy) != (&other.bucket, &other.policy) {
        return None;
    }
    let mut sum = if one.objective == other.objective { 0.0 } else { OTHER_OBJECTIVE };
    for pair in a.iter().zip(&b) {
        sum += match pair {
            (PriorPart::Size(a), PriorPart::Size(b)) => ((a + 1.0) / (b + 1.0)).ln().abs(),
            (PriorPart::Word(a), PriorPart::Word(b)) if a == b => 0.0,
            _ => return None,
        };
    }
    Some(sum)
}

/// A piece of a key's text: a number that stands for itself, or anything else.
#[derive(Debug, PartialEq)]
enum PriorPart<'t> {
    Size(f64),
    Word(&'t str),
}

/// The pieces of a text. The digits of `f32` are part of a word, those of `64x32` and `m=64` are sizes.
fn parts(text: &str) -> Vec<PriorPart<'_>> {
    let (bytes, mut parts, mut from, mut at) = (text.as_bytes(), Vec::new(), 0, 0);
    let digit = |i: usize| bytes.get(i).is_some_and(u8::is_ascii_digit);
    while at < bytes.len() {
        let before = |back: usize| at.checked_sub(back).map(|i| bytes[i]);
        let times = before(1) == Some(b'x') && before(2).is_some_and(|b| b.is_ascii_digit());
        let alone = before(1).is_none_or(|b| !b.is_ascii_alphanumeric() && b != b'_' && b != b'.');
        if !digit(at) || !(alone || times) {
            at += 1;
            continue;
        }
        let end = (at..).find(|i| !digit(*i)).unwrap_or(bytes.len());
        parts.push(PriorPart::Word(&text[from..at]));
        parts.extend(text[at..end].parse().ok().map(PriorPart::Size));
        (from, at) = (end, end);
    }
    parts.push(PriorPart::Word(&text[from..]));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apart(a: &str, b: &str) -> Option<f64> {
        let read = |text: &str| Key::new(text.split_once(':').unwrap().0, text.into());
        super::apart(&read(a), &read(b))
    }

    #[test]
    fn keys_are_the_nearer_the_more_alike_their_sizes_are() {
        let key = |m: u32| format!("gemm:m={m},n=64,dtype=f32,a=64x{m};bucket=exact,queue=stream");
        let to = |m: u32| apart(&key(1000), &key(m)).unwrap();
        assert!(to(1000) == 0.0 && to(900) < to(2000) && to(2000) < to(100));
    }

    #[test]
    fn keys_that_differ_in_more_than_sizes_are_no_neighbours() {
        let key = "gemm:m=64,dtype=f32;bucket=exact";
        assert_eq!(apart(key, "gemm:m=64,dtype=f16;bucket=exact"), None);
        assert_eq!(apart(key, "gemm:m=64,dtype=f32;bucket=pow2"), None);
        assert_eq!(apart(key, "gemm:m=64,n=2,dtype=f32;bucket=exact"), None);
        assert!(apart(key, "gemm:m=9,dtype=f32;bucket=exact").is_some());
    }

    #[test]
    fn a_key_raced_for_something_else_is_a_neighbour_farther_off() {
        let key = |n: u32, objective: &str| format!("kernel:name=k,arguments=y:f32:{n};bucket=exact,gap=0{objective}");
        let energy = key(1000, ",objective=energy");
        let to = |other: &str| apart(&energy, other).unwrap();
        assert!(to(&energy) == 0.0 && to(&key(2000, ",objective=energy")) < to(&key(1000, "")));
        assert_eq!(to(&key(1000, "")), to(&key(1000, ",objective=3f9a")));
        assert!(to(&key(1000, "")) < to(&key(9000, ",objective=energy")));
    }
}
