//! What is kept: every trial of a key, not only the winner, one edition per soft fingerprint and origin.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::records::candidate::{Candidate, SourceHash, Trial};
use crate::records::fingerprint::{Fingerprint, has_all, soft_id};
use crate::records::verdict::Verdict;
use crate::records::work::Work;

/// The version of the record's form. A program never writes over a record of a newer one.
pub const SCHEMA: u32 = 1;

/// Editions kept per key and origin; the oldest leave first.
pub const MAX_EDITIONS: usize = 8;

/// Editions of other origins kept near for one key and soft fingerprint; the best stay. A thousand machines would make
/// one huge record.
pub(crate) const MAX_ELSEWHERE: usize = 3;

/// A variant or a tier that was not raced, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    /// The variant's id.
    pub variant: String,
    /// The code behind it: other code may be raced.
    pub source: SourceHash,
    /// How many of its configs were left out.
    pub configs: u64,
    /// Why.
    pub reason: String,
}

/// One tuning of a key under one soft fingerprint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuningRun {
    /// Driver, toolkit and library versions it was measured under.
    pub soft: BTreeMap<String, String>,
    /// The id of the store whose machine measured it.
    pub origin: String,
    /// Seconds since 1970 when it was measured.
    pub tuned_at: u64,
    /// The program's version that measured it.
    pub program: String,
    /// Who won.
    pub verdict: Verdict,
    /// Every trial.
    pub trials: Vec<Trial>,
    /// What was not raced, and why.
    pub skipped: Vec<Skipped>,
    /// The useful work of the problem, for rates.
    pub work: Work,
    /// The roofline floor in microseconds it was judged against, where ceilings were known.
    pub floor_us: Option<f64>,
    /// Wall seconds the tuning took.
    pub seconds: f64,
    /// How the winner did in the form a program calls it, where it met somebody in that form.
    #[serde(rename = "last_heat", default, skip_serializing_if = "Option::is_none")]
    pub end_to_end_race: Option<EndToEndRace>,
    /// Compiled kernels of the winner and its ties, by their digest.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub artifacts: BTreeSet<String>,
    /// Other sizes of the key, each raced among a few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<AtSize>,
    /// The origins of the keys that signed the bundles it came in. The store that takes it in says so, nobody else.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub vouched: BTreeSet<String>,
}

/// A size that shares the key with the one that was raced for it: a race of a few.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtSize {
    /// The problem, in problem syntax.
    pub problem: String,
    /// Who answers there.
    pub winner: Candidate,
    /// Who took part and was right, and how much slower than the fastest (0.05 = 5 %).
    pub behind: Vec<(Candidate, f64)>,
    /// Wall seconds it took.
    pub seconds: f64,
}

impl TuningRun {
    /// The better, the higher, in the store of this id.
    pub(crate) fn rank(&self, local: &str) -> (bool, u8, u64) {
        (self.origin == local, self.verdict.grade.rank(), self.tuned_at)
    }
}

/// Two candidates in the form a program calls them, the cost of the call included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndToEndRace {
    /// Who answers.
    pub winner: Candidate,
    /// The other one: a library where the winner is a kernel of ours, and the other way round.
    pub other: Candidate,
    /// Median microseconds of a call to the winner.
    pub call_us: f64,
    /// How much longer a call to the other one took (0.05 = 5 %); below 0 where the samples cannot tell the two apart.
    pub gap: f64,
}

/// Everything known about one key on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The version of this form.
    pub schema: u32,
    /// The operation.
    pub op: String,
    /// The key's text: what this record is found by.
    pub key: String,
    /// The problem that was raced for the key, in problem syntax.
    pub problem: String,
    /// The device's hard fingerprint.
    pub device: BTreeMap<String, String>,
    /// The tunings, oldest first.
    pub editions: Vec<TuningRun>,
}

impl Record {
    /// The edition to use on a device as it is: measured here before imported, then the better grade, then the newest.
    /// An imported edition answers only where there is no local one.
    pub fn current(&self, device: &Fingerprint, local: &str) -> Option<&TuningRun> {
        self.current_of(device, local, &|_| true)
    }

    /// As [`Record::current`] for a program that has these candidates: of those editions whose winner it has. Of one
    /// origin the newest counts; one that met the same libraries, some of them or more goes before one that met others.
    pub fn current_of(
        &self,
        device: &Fingerprint,
        local: &str,
        has: &dyn Fn(&Candidate) -> bool,
    ) -> Option<&TuningRun> {
        let versions = device.versions();
        let rank = |e: &TuningRun| {
            let comparable = has_all(&e.soft, &versions) || has_all(&versions, &e.soft);
            (comparable, e.tuned_at, e.soft == versions)
        };
        let mut newest: BTreeMap<&str, &TuningRun> = BTreeMap::new();
        for edition in self.editions.iter().filter(|e| device.holds(&e.soft) && has(&e.verdict.winner)) {
            let best = newest.entry(&edition.origin).or_insert(edition);
            if rank(best) <= rank(edition) {
                *best = edition;
            }
        }
        newest.into_values().max_by_key(|e| (e.rank(local), e.origin.clone()))
    }

    /// The best edition under other versions: stale, but better than nothing.
    pub fn stale(&self, device: &Fingerprint, local: &str) -> Option<&TuningRun> {
        self.editions.iter().filter(|e| !device.holds(&e.soft)).max_by_key(|e| e.rank(local))
    }

    /// Both records' editions; the two must be of one op, key and device. One edition per (soft fingerprint, origin)
    /// stays: the newer, or on the same second the one whose text sorts last. The problem is that of the record tuned
    /// last. So merging is commutative, associative and idempotent.
    pub fn merge(mut self, other: Record) -> Record {
        if (other.newest(), &other.problem) > (self.newest(), &self.problem) {
            self.problem = other.problem;
        }
        self.schema = self.schema.max(other.schema);
        self.editions.extend(other.editions);
        self.settle();
        self
    }

    /// When the newest edition was measured; 0 with no edition.
    pub fn newest(&self) -> u64 {
        self.editions.iter().map(|e| e.tuned_at).max().unwrap_or(0)
    }

    /// Puts an edition in, in place of the one with the same soft fingerprint and origin.
    pub fn put(&mut self, mut edition: TuningRun) {
        let id = (soft_id(&edition.soft), edition.origin.clone());
        let same = |e: &TuningRun| (soft_id(&e.soft), &e.origin, e.tuned_at) == (id.0.clone(), &id.1, edition.tuned_at);
        let again = self.editions.iter().any(same);
        // A clock that was set back must not make the newest tuning look like the oldest, which is the first to leave;
        // and of two within one second the later one is the newer one.
        let own = self.editions.iter().filter(|e| e.origin == edition.origin).map(|e| e.tuned_at).max();
        if let Some(newest) = own.filter(|n| *n >= edition.tuned_at && !again) {
            edition.tuned_at = newest.saturating_add(1);
        }
        self.editions.retain(|e| (soft_id(&e.soft), e.origin.clone()) != id);
        self.editions.push(edition);
        self.settle();
    }

    /// Drops what a store does not keep of others: all but the best editions for each soft fingerprint.
    pub(crate) fn keep_best_of_others(&mut self, local: &str) {
        let mut others: BTreeMap<String, Vec<(bool, u8, u64, String)>> = BTreeMap::new();
        let rank = |e: &TuningRun| {
            let (own, grade, at) = e.rank(local);
            (own, grade, at, e.origin.clone())
        };
        for edition in self.editions.iter().filter(|e| e.origin != local) {
            others.entry(soft_id(&edition.soft)).or_default().push(rank(edition));
        }
        others.values_mut().for_each(|ranks| {
            ranks.sort();
            ranks.reverse();
            ranks.truncate(MAX_ELSEWHERE);
        });
        self.editions.retain(|e| {
            e.origin == local || others.get(&soft_id(&e.soft)).is_some_and(|ranks| ranks.contains(&rank(e)))
        });
    }

    /// Brings the editions into their one order and drops what is over the limits.
    pub(crate) fn settle(&mut self) {
        let text = |e: &TuningRun| serde_json::to_string(e).unwrap_or_default();
        let mut best: BTreeMap<(String, String), (u64, usize, String, TuningRun)> = BTreeMap::new();
        for edition in self.editions.drain(..) {
            let id = (soft_id(&edition.soft), edition.origin.clone());
            // Of one tuning whoever knows more trials stays: the winner may have travelled without those it beat.
            let rank = (edition.tuned_at, edition.trials.len(), text(&edition));
            match best.get(&id) {
                Some((at, trials, t, _)) if (*at, *trials, t) >= (rank.0, rank.1, &rank.2) => {}
                _ => {
                    best.insert(id, (rank.0, rank.1, rank.2, edition));
                }
            }
        }
        let mut all: Vec<(u64, usize, String, TuningRun)> = best.into_values().collect();
        all.sort_by(|a, b| (a.0, &a.2).cmp(&(b.0, &b.2)));
        // The newest of each origin stay; what is dropped depends on the set alone, not on the order of merging.
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let mut kept: Vec<TuningRun> = Vec::new();
        for (_, _, _, edition) in all.into_iter().rev() {
            let count = seen.entry(edition.origin.clone()).or_default();
            *count += 1;
            if *count <= MAX_EDITIONS {
                kept.push(edition);
            }
        }
        kept.reverse();
        self.editions = kept;
    }
}
