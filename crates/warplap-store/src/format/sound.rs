//! Soundness: a record that could be read comes in; what speaks against believing it goes out. A record holds together:
//! its winner is one of its trials, was right and measured, and every time is one that a clock can give.

use crate::bundle::is_digest;
use crate::format::alphabet::odd;
use crate::names::{MAX_TEXT, MAX_TIME};
use crate::records::measurement::Measurement;
use crate::records::record::{Record, SCHEMA, TuningRun};
use crate::records::work::IMPOSSIBLE_BELOW;

/// A hundred years in microseconds: nothing that was timed took as long.
const LONGEST_US: f64 = 3.2e15;

/// Why a record that could be read is not believed; `None` when it holds together.
pub(crate) fn unsound(record: &Record) -> Option<String> {
    if record.schema != SCHEMA {
        return Some("its form is of an older version".into());
    }
    if record.key.len() > MAX_TEXT || record.problem.len() > MAX_TEXT {
        return Some("its key or problem is too long".into());
    }
    odd(record).or_else(|| record.editions.iter().find_map(incoherent))
}

/// Why an edition does not hold together.
fn incoherent(edition: &TuningRun) -> Option<String> {
    let TuningRun { verdict, trials, work, .. } = edition;
    if edition.tuned_at > MAX_TIME {
        return Some("it has an edition from no possible time".into());
    }
    let Some(won) = trials.iter().find(|t| t.candidate == verdict.winner) else {
        return Some("its winner is none of its trials".into());
    };
    let Some(median_us) = won.median_us() else {
        return Some("its own trials say that its winner was not right".into());
    };
    if let Some(odd) = trials.iter().filter_map(|t| t.measurement()).find(|m| !is_timed(m)) {
        return Some(format!("a trial of {:e} us is no time", odd.median_us));
    }
    if !is_time(verdict.median_us) || !verdict.ci_us.iter().all(|us| us.is_finite()) {
        return Some(format!("its winner's {:e} us is no time", verdict.median_us));
    }
    let heat_us = edition.end_to_end_race.as_ref().map_or(1.0, |contest| contest.call_us);
    if !edition.artifacts.iter().all(|digest| is_digest(digest)) {
        return Some("it has an artifact whose digest is none".into());
    }
    let is_amount = |x: f64| x.is_finite() && x >= 0.0;
    let sizes = &edition.sizes;
    if !sizes.iter().all(|s| is_amount(s.seconds) && s.behind.iter().all(|(_, by)| is_amount(*by))) {
        return Some("what it knows of other sizes is no amount".into());
    }
    if sizes.iter().any(|s| s.problem.len() > MAX_TEXT || !s.behind.iter().any(|(c, _)| *c == s.winner)) {
        return Some("the winner of another size took no part there".into());
    }
    let amounts = [work.flops, work.bytes, edition.seconds * 1e6, edition.floor_us.unwrap_or(0.0), heat_us];
    if !amounts.iter().all(|x| is_amount(*x)) || edition.seconds * 1e6 > LONGEST_US {
        return Some("its work, its floor or the seconds it took are no amount".into());
    }
    let floor_us = edition.floor_us.unwrap_or(0.0) * IMPOSSIBLE_BELOW;
    (median_us < floor_us).then(|| format!("its winner's {median_us} us is below its own floor"))
}

fn is_time(us: f64) -> bool {
    us > 0.0 && us <= LONGEST_US
}

fn is_timed(m: &Measurement) -> bool {
    is_time(m.median_us)
        && m.ci_us.iter().all(|us| us.is_finite())
        && m.samples_us.iter().all(|us| (0.0..=LONGEST_US).contains(us))
}
