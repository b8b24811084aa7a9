//! The trait itself: documents by their places, and nothing known of what is in them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use warplap_store::{Change, Flight, Kind, Mark, Place, ReadResult, StoreBackend, StoreError};

use super::Made;

const WAIT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
enum Step {
    Get(usize),
    Put(usize, Vec<u8>),
    PutMany(BTreeMap<usize, Vec<u8>>),
    Add(usize, Vec<u8>),
    /// The one who was to make the next document could not.
    Refuse(usize),
    Leave(usize),
    SetAside(usize, Option<Vec<u8>>),
    Delete(usize),
    Elsewhere(usize),
    /// What was written since the last time this was asked.
    Since,
    Lease(usize),
    Release(usize),
    Sweep,
    Reopen,
}

/// Two devices with the same documents of every kind.
fn places() -> Vec<Place> {
    let hash = |n: usize| format!("matmul/{}", format!("{n:x}").repeat(32));
    let of = |device: &str| {
        let at = |kind, name: &str| Place::new(kind, device, name).unwrap();
        [at(Kind::Record, &hash(1)), at(Kind::Record, &hash(2)), at(Kind::Miss, &hash(1)), at(Kind::Note, "ceilings")]
    };
    ["chip-1", "chip-2"].iter().flat_map(|device| of(device)).collect()
}

const KINDS: [Kind; 3] = [Kind::Record, Kind::Miss, Kind::Note];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = || 0..places().len();
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    let step = prop_oneof![
        2 => place().prop_map(Step::Get),
        4 => (place(), bytes()).prop_map(|(at, bytes)| Step::Put(at, bytes)),
        1 => proptest::collection::btree_map(place(), bytes(), 0..5).prop_map(Step::PutMany),
        1 => (place(), bytes()).prop_map(|(at, bytes)| Step::Add(at, bytes)),
        1 => place().prop_map(Step::Refuse),
        1 => place().prop_map(Step::Leave),
        1 => (place(), proptest::option::of(bytes())).prop_map(|(at, bytes)| Step::SetAside(at, bytes)),
        2 => place().prop_map(Step::Delete),
        1 => place().prop_map(Step::Elsewhere),
        2 => Just(Step::Since),
        1 => place().prop_map(Step::Lease),
        1 => place().prop_map(Step::Release),
        1 => Just(Step::Sweep),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..40)
}

#[derive(Default)]
struct Model {
    documents: BTreeMap<Place, Vec<u8>>,
    /// Written since the marks were taken.
    written: BTreeSet<Place>,
    marks: BTreeMap<&'static str, Mark>,
    aside: usize,
    leases: BTreeMap<usize, Flight>,
}

impl Model {
    fn document(&self, at: &Place) -> ReadResult {
        self.documents.get(at).map_or(ReadResult::Nothing, |bytes| ReadResult::Bytes(bytes.clone()))
    }

    fn write(&mut self, at: &Place, bytes: Vec<u8>) {
        self.documents.insert(at.clone(), bytes);
        self.written.insert(at.clone());
    }

    fn of_kind(&self, kind: Kind) -> BTreeSet<Place> {
        self.documents.keys().filter(|at| at.kind() == kind).cloned().collect()
    }

    fn take(&mut self, step: &Step, backend: &dyn StoreBackend, keeps_aside: bool) {
        let places = places();
        match step {
            Step::Get(n) => assert_eq!(backend.get(&places[*n]).unwrap(), self.document(&places[*n])),
            Step::Put(n, bytes) => {
                let mut seen = None;
                backend
                    .put(&places[*n], WAIT, &mut |result| {
                        seen = Some(result);
                        Ok(Change::to(bytes.clone()))
                    })
                    .unwrap();
                assert_eq!(seen, Some(self.document(&places[*n])));
                self.write(&places[*n], bytes.clone());
            }
            Step::PutMany(many) => {
                let at: Vec<Place> = many.keys().map(|n| places[*n].clone()).collect();
                let bytes: Vec<&Vec<u8>> = many.values().collect();
                let done = backend.put_many(&at, WAIT, &mut |n, result| {
                    assert_eq!(result, self.document(&at[n]));
                    Ok(Change::to(bytes[n].clone()))
                });
                assert!(done.len() == at.len() && done.iter().all(Result::is_ok));
                at.iter().zip(bytes).for_each(|(at, bytes)| self.write(at, bytes.clone()));
            }
            Step::Add(n, bytes) => {
                backend.add(&places[*n], &|| bytes.clone()).unwrap();
                if self.document(&places[*n]) == ReadResult::Nothing {
                    self.write(&places[*n], bytes.clone());
                }
            }
            Step::Refuse(n) => {
                let refused = backend.put(&places[*n], WAIT, &mut |_| Err(StoreError::Invalid("no".into())));
                assert!(matches!(refused, Err(StoreError::Invalid(_))));
            }
            Step::Leave(n) => backend.put(&places[*n], WAIT, &mut |_| Ok(Change::default())).unwrap(),
            Step::SetAside(n, bytes) => {
                let at = &places[*n];
                if self.documents.remove(at).is_some() {
                    let change = Change { set_aside: Some("damaged".into()), put: bytes.clone() };
                    backend.put(at, WAIT, &mut |_| Ok(change.clone())).unwrap();
                    self.aside += usize::from(keeps_aside);
                    self.written.remove(at);
                    bytes.iter().for_each(|bytes| self.write(at, bytes.clone()));
                }
            }
            Step::Delete(n) => {
                assert_eq!(backend.delete(&places[*n]).unwrap(), self.documents.remove(&places[*n]).is_some());
                self.written.remove(&places[*n]);
            }
            Step::Elsewhere(n) => {
                let at = &places[*n];
                let is = |other: &Place| other.name() == at.name() && other.device() != at.device();
                let expected: BTreeSet<Place> = self.of_kind(at.kind()).into_iter().filter(is).collect();
                let result = backend.elsewhere(at).unwrap();
                assert_eq!(result.into_iter().map(|listed| listed.place).collect::<BTreeSet<_>>(), expected);
            }
            Step::Since => self.since(backend),
            Step::Lease(n) => {
                let taken = backend.lease(&places[*n], Some(Duration::ZERO)).unwrap();
                assert_eq!(taken.is_none(), self.leases.contains_key(n), "one at a time has it");
                taken.into_iter().for_each(|flight| drop(self.leases.insert(*n, flight)));
            }
            Step::Release(n) => drop(self.leases.remove(n)),
            Step::Sweep => {
                assert_eq!(backend.set_aside().len(), self.aside);
                assert_eq!(backend.sweep(Duration::ZERO), self.aside);
                assert!(backend.set_aside().is_empty());
                self.aside = 0;
            }
            Step::Reopen => {}
        }
    }

    /// A listing since a mark leaves out nothing that was written, tells of nothing that is gone, and gives sizes.
    fn since(&mut self, backend: &dyn StoreBackend) {
        for kind in KINDS {
            let (listed, mark) = backend.since(kind, self.marks.get(kind.word())).unwrap();
            for one in &listed {
                let bytes = self.documents.get(&one.place).unwrap_or_else(|| panic!("{} is gone", one.place));
                assert_eq!((one.place.kind(), one.bytes), (kind, bytes.len() as u64));
            }
            let text: BTreeSet<Place> = listed.into_iter().map(|one| one.place).collect();
            let written = self.written.iter().filter(|at| at.kind() == kind);
            assert!(written.into_iter().all(|at| text.contains(at)), "{text:?}");
            self.marks.insert(kind.word(), mark);
        }
        self.written.clear();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_shelf_does_what_a_plain_map_does(steps in steps()) {
        for made in Made::all() {
            let (mut backend, mut model) = (made.open(), Model::default());
            let id = backend.id().to_string();
            for step in &steps {
                if let Step::Reopen = step {
                    backend = made.open();
                    assert_eq!(backend.id(), id);
                }
                model.take(step, &*backend, made.keeps_aside());
            }
            // In the end everything is there, for whoever opens it next.
            let backend = made.open();
            for at in places() {
                assert_eq!(backend.get(&at).unwrap(), model.document(&at), "{at} on {}", backend.title());
            }
            for kind in KINDS {
                let all: BTreeSet<Place> = backend.since(kind, None).unwrap().0.into_iter().map(|l| l.place).collect();
                assert_eq!(all, model.of_kind(kind));
            }
        }
    }
}
