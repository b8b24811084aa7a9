//! What is said: of a race one line at its start and one at its end, of winners that a replay may not use one in all.

use std::fmt::Debug;
use std::sync::{Mutex, Once};
use std::thread::{self, ThreadId};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use warplap_core::settings::Mode;

use crate::fake::{Act, problem, row};
use crate::support::*;

/// Messages of level info and warnings, with the thread that said them: other tests of this program race meanwhile.
static SAID: Mutex<Vec<(ThreadId, String)>> = Mutex::new(Vec::new());

struct Listener;

impl Visit for Listener {
    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        SAID.lock().unwrap().push((thread::current().id(), format!("{value:?}")));
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        matches!(*metadata.level(), Level::INFO | Level::WARN)
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut Listener);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// What this thread says meanwhile.
fn heard(work: impl FnOnce()) -> Vec<String> {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| tracing::subscriber::set_global_default(Listener).unwrap());
    let own = |(thread, said): &(ThreadId, String)| (*thread == thread::current().id()).then(|| said.clone());
    let before = SAID.lock().unwrap().iter().filter_map(own).count();
    work();
    SAID.lock().unwrap().iter().filter_map(own).skip(before).collect()
}

#[test]
fn a_race_says_that_it_starts_and_who_won_and_an_answer_from_the_store_says_nothing() {
    let tuner = tuner(&[row("reference", 4e-3), row("fast", 1e-3)], &memory(), settings());
    let lines = heard(|| drop(tune(&tuner, &problem(64))));
    let [start, end] = &lines[..] else { panic!("two lines: {lines:?}") };
    assert_eq!(start, "scale:n=64,step=1,dtype=f32: racing for up to 4 s");
    assert!(end.starts_with("scale:n=64,step=1,dtype=f32: fast[i=0] won with 1.0"), "{end}");
    assert!(end.contains("× as fast as reference[i=0] with ") && end.ends_with(" s)"), "{end}");
    assert_eq!(heard(|| drop(tune(&tuner, &problem(64)))), [""; 0]);
}

#[test]
fn a_race_without_a_winner_says_so() {
    let tuner = tuner(&[row("reference", 4e-3).act(Act::OffBy(1.0))], &memory(), settings());
    let lines = heard(|| assert!(tuner.tune(&problem(64), &warplap_core::progress::Silent).is_err()));
    assert!(lines.len() == 2 && lines[1].contains("nobody won"), "{lines:?}");
}

#[test]
fn a_replay_says_once_that_winners_were_never_proved_here() {
    let (elsewhere, store) = (memory(), memory());
    let rows = [row("reference", 4e-3), row("fast", 1e-3)];
    for n in [64, 32] {
        let tuner = tuner(&rows, &elsewhere, settings());
        tune(&tuner, &problem(n));
        store.merge(tuner.record(&problem(n)).unwrap()).unwrap();
    }
    let lines = heard(|| {
        for n in [64, 32, 64] {
            assert!(launch(&tuner(&rows, &store, mode(Mode::Replay)), &problem(n)).unwrap());
        }
    });
    let [line] = &lines[..] else { panic!("one line: {lines:?}") };
    assert!(line.contains("never proved here") && line.contains("reference[i=0] answers, not fast[i=0]"), "{line}");
}
