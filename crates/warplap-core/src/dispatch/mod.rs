//! Dispatch: a Problem comes in, its built Kernel is called. The hit path takes no lock and writes nothing shared.
//!
//! A table of write-once slots, probed in order; readers see a slot either empty or whole. A table that fills up is
//! replaced by a larger copy, and one that has reached the largest size by an empty one: entries are only ever a
//! shortcut past the key and the store.

pub mod by_type;

use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use foldhash::fast::FixedState;

/// Slots of a new table, and of the largest.
const SMALLEST: usize = 1 << 8;
const LARGEST: usize = 1 << 16;

type TableSlot<P, K> = OnceLock<(P, Arc<K>)>;

struct Table<P, K: ?Sized> {
    slots: Box<[TableSlot<P, K>]>,
}

impl<P: Eq + Hash + Clone, K: ?Sized> Table<P, K> {
    fn new(size: usize) -> Self {
        Table { slots: (0..size).map(|_| OnceLock::new()).collect() }
    }

    #[inline]
    fn probe(&self, problem: &P) -> usize {
        // The upper bits of the hash are the well-mixed ones.
        let hash = FixedState::with_seed(0x5741_5250).hash_one(problem);
        (hash >> 32) as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn find(&self, problem: &P) -> Option<&K> {
        let mask = self.slots.len() - 1;
        let mut at = self.probe(problem);
        loop {
            let (result, kernel) = self.slots[at].get()?;
            if result == problem {
                return Some(kernel);
            }
            at = (at + 1) & mask;
        }
    }

    /// Puts an entry into the first empty slot of its probe. At most half the slots are ever filled, so there is one.
    fn place(&self, problem: P, kernel: Arc<K>) {
        let mask = self.slots.len() - 1;
        let mut at = self.probe(&problem);
        let mut entry = (problem, kernel);
        while let Err(back) = self.slots[at].set(entry) {
            entry = back;
            at = (at + 1) & mask;
        }
    }

    fn entries(&self) -> impl Iterator<Item = &(P, Arc<K>)> {
        self.slots.iter().filter_map(OnceLock::get)
    }
}

/// Built kernels by problem.
pub struct Dispatch<P, K: ?Sized> {
    table: ArcSwap<Table<P, K>>,
    // The number of entries; held while one is added, never on the hit path.
    filled: Mutex<usize>,
}

impl<P: Eq + Hash + Clone, K: ?Sized> Dispatch<P, K> {
    /// An empty table.
    pub fn new() -> Self {
        Dispatch { table: ArcSwap::from_pointee(Table::new(SMALLEST)), filled: Mutex::new(0) }
    }

    /// Calls `f` with the kernel of a problem, or gives `f` back where there is none.
    #[inline]
    pub fn with<R, F: FnOnce(&K) -> R>(&self, problem: &P, f: F) -> Result<R, F> {
        let table = self.table.load();
        match table.find(problem) {
            Some(kernel) => Ok(f(kernel)),
            None => Err(f),
        }
    }

    /// Adds or replaces the kernel of a problem.
    pub fn put(&self, problem: P, kernel: Arc<K>) {
        let mut filled = self.filled.lock().unwrap_or_else(PoisonError::into_inner);
        let table = self.table.load();
        let known = table.find(&problem).is_some();
        if !known && (*filled + 1) * 2 <= table.slots.len() {
            table.place(problem, kernel);
            *filled += 1;
            return;
        }
        let size = if known { table.slots.len() } else { table.slots.len() * 2 };
        let next = Table::new(size.min(LARGEST));
        if size <= LARGEST {
            for (p, k) in table.entries().filter(|(p, _)| *p != problem) {
                next.place(p.clone(), k.clone());
            }
        }
        next.place(problem, kernel);
        *filled = next.entries().count();
        self.replace(next, filled);
    }

    /// Forgets everything: the next request of each problem takes the road again.
    pub fn clear(&self) {
        let mut filled = self.filled.lock().unwrap_or_else(PoisonError::into_inner);
        *filled = 0;
        self.replace(Table::new(SMALLEST), filled);
    }

    /// Takes another table. What ends with the old one may wait for somebody who waits for this lock: it is open by
    /// then.
    fn replace(&self, next: Table<P, K>, filled: MutexGuard<'_, usize>) {
        let old = self.table.swap(Arc::new(next));
        drop(filled);
        drop(old);
    }

    /// The problems that there are entries of.
    pub fn problems(&self) -> Vec<P> {
        self.table.load().entries().map(|(problem, _)| problem.clone()).collect()
    }

    /// Entries there are.
    pub fn len(&self) -> usize {
        *self.filled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<P: Eq + Hash + Clone, K: ?Sized> Default for Dispatch<P, K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(table: &Dispatch<u64, u64>, problem: u64) -> Option<u64> {
        table.with(&problem, |k| *k).ok()
    }

    #[test]
    fn what_was_put_is_found_and_replaced() {
        let table = Dispatch::new();
        assert_eq!(get(&table, 1), None);
        for i in 0..10_000u64 {
            table.put(i, Arc::new(i * 2));
        }
        assert!((0..10_000).all(|i| get(&table, i) == Some(i * 2)));
        table.put(7, Arc::new(1));
        assert_eq!(get(&table, 7), Some(1));
        assert_eq!(table.len(), 10_000);
        table.clear();
        assert!(table.is_empty() && get(&table, 7).is_none());
    }

    #[test]
    fn a_table_never_grows_without_bound() {
        let table = Dispatch::new();
        for i in 0..(3 * LARGEST as u64) {
            table.put(i, Arc::new(i));
            assert_eq!(get(&table, i), Some(i));
        }
        assert!(table.len() <= LARGEST / 2 + 1);
    }

    #[test]
    fn readers_and_writers_at_once_see_whole_entries() {
        let table = Dispatch::new();
        std::thread::scope(|scope| {
            for t in 0..4u64 {
                let table = &table;
                scope.spawn(move || {
                    for i in 0..500u64 {
                        table.put(i, Arc::new(i * 3));
                        let seen = get(table, (i * 7 + t) % 500);
                        assert!(seen.is_none_or(|s| s == (i * 7 + t) % 500 * 3));
                    }
                });
            }
        });
        assert_eq!(table.len(), 500);
    }
}
