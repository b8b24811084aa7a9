//! Stamps: a record from elsewhere and what is here come in; both in one go out. Whose a tuning is and when it was made
//! is for the store that takes it in to say: nobody else speaks in its name, and nothing was measured tomorrow.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::records::fingerprint::soft_id;
use crate::records::record::{Record, TuningRun};

/// What is there with a record from elsewhere merged in.
pub(crate) fn join(mut there: Option<Record>, other: Record, local: &str) -> Record {
    let had_some = !other.editions.is_empty();
    let mut other = stamped(other, there.as_ref(), local, now());
    // What is known and signed once more stays what it is, with one more to vouch for it.
    for known in there.iter_mut().flat_map(|there| &mut there.editions) {
        let same = |e: &&mut TuningRun| TuningRun { vouched: e.vouched.clone(), ..known.clone() } == **e;
        if let Some(again) = other.editions.iter_mut().find(same) {
            known.vouched.append(&mut again.vouched);
            again.vouched = known.vouched.clone();
        }
    }
    let mut both = match there {
        Some(there) if had_some && other.editions.is_empty() => return there,
        Some(there) => there.merge(other),
        None => other,
    };
    both.keep_best_of_others(local);
    both
}

/// A record as a store takes it in. An edition in the store's own name is left out where the store has its own, and else
/// comes under the name of what returned; one from the future was made now.
fn stamped(mut record: Record, there: Option<&Record>, local: &str, now: u64) -> Record {
    let here =
        |e: &TuningRun| there.into_iter().flat_map(|t| &t.editions).filter(|t| same_soft(t, e)).collect::<Vec<_>>();
    record.editions.retain(|e| e.origin != local || !here(e).iter().any(|t| t.origin == local));
    for edition in record.editions.iter_mut().filter(|e| e.origin == local) {
        edition.origin = returned(local);
    }
    // Taken in a second time it is no newer than the first time.
    let as_new =
        |t: &TuningRun, e: &TuningRun| TuningRun { tuned_at: e.tuned_at, vouched: e.vouched.clone(), ..t.clone() };
    let known = |e: &TuningRun| here(e).iter().any(|t| as_new(t, e) == *e);
    record.editions.retain(|e| e.tuned_at <= now || !known(e));
    for edition in &mut record.editions {
        edition.tuned_at = edition.tuned_at.min(now);
    }
    record.settle();
    record
}

fn same_soft(one: &TuningRun, other: &TuningRun) -> bool {
    soft_id(&one.soft) == soft_id(&other.soft)
}

/// The origin of what comes back to a store in its own name: it may be its own from before, or anybody's.
fn returned(local: &str) -> String {
    blake3::hash(format!("returned to {local}").as_bytes()).to_hex()[..16].to_string()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
