//! Care of a store: checking every file, pruning, and counting. A store comes in, a report goes out.

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use crate::records::fingerprint::Fingerprint;
use crate::{Checked, Entry, Store, StoreError};

/// Opens entries on several threads and gives each with its place in `entries`, in no order.
pub fn for_each(store: &Store, entries: &[Entry], each: impl Fn(usize, Checked) + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(16).min(entries.len().max(1));
    spread(entries.len(), threads, |n| each(n, store.check(&entries[n])));
}

/// Does `each` for the numbers below `count`, on several threads.
pub(crate) fn spread(count: usize, threads: usize, each: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= count {
                break;
            }
            each(n);
        }
    };
    std::thread::scope(|scope| {
        // A machine that gives no more threads still has this one. Each is waited for: of one that nobody waits for, and
        // that ends at that moment, glibc 2.36 may read what is gone (pthread_detach).
        let others: Vec<_> =
            (1..threads).map_while(|_| std::thread::Builder::new().spawn_scoped(scope, work).ok()).collect();
        work();
        for other in others {
            other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

/// What a check of every record found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verified {
    /// Whole records in their places.
    pub ok: usize,
    /// Files that are no whole record, and why.
    pub damaged: Vec<(Entry, String)>,
    /// Records of a newer form, and which.
    pub newer: Vec<(Entry, u32)>,
    /// Whole records of another key or device than their place says.
    pub misplaced: Vec<(Entry, String)>,
    /// Files that could not be read just now.
    pub unreadable: Vec<(Entry, String)>,
    /// Files set aside earlier.
    pub set_aside: usize,
}

impl Verified {
    /// Whether every file is a whole record in its place, or a newer program's.
    pub fn is_clean(&self) -> bool {
        self.damaged.is_empty() && self.misplaced.is_empty() && self.unreadable.is_empty()
    }
}

/// Checks every record and changes nothing.
pub fn verify(store: &Store) -> Verified {
    let entries = store.entries();
    let result = Mutex::new(Verified { set_aside: store.set_aside().len(), ..Verified::default() });
    for_each(store, &entries, |n, checked| {
        let entry = entries[n].clone();
        let mut result = result.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match checked {
            Checked::Whole(_) => result.ok += 1,
            Checked::Damaged(why) => result.damaged.push((entry, why)),
            Checked::Newer(schema) => result.newer.push((entry, schema)),
            Checked::Misplaced(why) => result.misplaced.push((entry, why)),
            Checked::Unreadable(why) => result.unreadable.push((entry, why)),
            Checked::Gone => {}
        }
    });
    let mut result = result.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    result.damaged.sort();
    result.newer.sort();
    result.misplaced.sort();
    result.unreadable.sort();
    result
}

/// What to prune. Each rule set takes away what it names; with none set nothing goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prune {
    /// Records last written longer ago than this.
    pub older_than: Option<Duration>,
    /// Records of this device with no edition under its present soft fingerprint.
    pub stale_for: Option<Fingerprint>,
    /// Damaged and misplaced files, those set aside, and what killed writers left behind.
    pub damaged: bool,
    /// All but the newest so many records.
    pub keep: Option<usize>,
    /// Only say what would go.
    pub dry_run: bool,
}

/// What was pruned, or would be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemovedRecords {
    /// Records and damaged files in a record's place.
    pub entries: Vec<Entry>,
    /// Bytes of these.
    pub bytes: u64,
    /// Files set aside or left behind.
    pub swept: usize,
}

/// Removes what the rules name. A newer program's records stay.
pub fn prune(store: &Store, rules: &Prune) -> Result<RemovedRecords, StoreError> {
    let entries = store.entries();
    let mut going: HashSet<usize> = HashSet::new();
    if let Some(age) = rules.older_than {
        let now = SystemTime::now();
        let is_old = |e: &Entry| now.duration_since(e.modified).unwrap_or_default() > age;
        going.extend(entries.iter().enumerate().filter(|(_, e)| is_old(e)).map(|(n, _)| n));
    }
    if let Some(keep) = rules.keep {
        let mut newest: Vec<usize> = (0..entries.len()).collect();
        newest.sort_by_key(|&n| std::cmp::Reverse((entries[n].modified, n)));
        going.extend(newest.into_iter().skip(keep));
    }
    if !going.is_empty() || rules.damaged || rules.stale_for.is_some() {
        let going = Mutex::new(&mut going);
        for_each(store, &entries, |n, checked| {
            let mut going = going.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match checked {
                Checked::Newer(_) | Checked::Unreadable(_) | Checked::Gone => {
                    going.remove(&n);
                }
                Checked::Damaged(_) | Checked::Misplaced(_) if rules.damaged => {
                    going.insert(n);
                }
                Checked::Whole(record) => {
                    let stale =
                        |f: &Fingerprint| record.device == f.hard && record.editions.iter().all(|e| !f.holds(&e.soft));
                    if rules.stale_for.as_ref().is_some_and(stale) {
                        going.insert(n);
                    }
                }
                _ => {}
            }
        });
    }
    let mut going: Vec<usize> = going.into_iter().collect();
    going.sort_unstable();
    let mut pruned = RemovedRecords::default();
    for n in going {
        if rules.dry_run || store.remove(&entries[n])? {
            pruned.bytes += entries[n].bytes;
            pruned.entries.push(entries[n].clone());
        }
    }
    if rules.damaged {
        let age = rules.older_than.unwrap_or_default();
        pruned.swept = if rules.dry_run { store.set_aside().len() } else { store.sweep(age) };
    }
    Ok(pruned)
}

/// Counts over a store, from file names and sizes alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records.
    pub records: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Records and bytes by device folder and operation.
    pub by_op: BTreeMap<(String, String), (usize, u64)>,
    /// Keys asked for and not found.
    pub misses: usize,
    /// Files set aside.
    pub set_aside: usize,
    /// When the last record was written.
    pub newest: Option<SystemTime>,
}

/// Counts what is in a store.
pub fn stats(store: &Store) -> Stats {
    let (misses, set_aside) = (store.misses().len(), store.set_aside().len());
    let mut stats = Stats { misses, set_aside, ..Stats::default() };
    for entry in store.entries() {
        stats.records += 1;
        stats.bytes += entry.bytes;
        stats.newest = stats.newest.max(Some(entry.modified));
        let of_op = stats.by_op.entry((entry.device_slug, entry.op)).or_default();
        of_op.0 += 1;
        of_op.1 += entry.bytes;
    }
    stats
}
