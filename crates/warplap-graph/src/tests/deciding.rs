//! Decisions: by mode, from the store, and for every size of a bucket.

use std::sync::Mutex;

use warplap_core::engine::How;
use warplap_core::progress::{Event, Observer};
use warplap_core::record::Record;
use warplap_core::store::{Checked, Entry};

use super::{Cpu, DType, Mode, Session, Settings};
use super::{layer, run, session, share};

/// Remembers which races began.
#[derive(Default)]
struct Races(Mutex<Vec<String>>);

impl Observer for Races {
    fn event(&self, event: &Event<'_>) {
        if let Event::Started { problem, .. } = event {
            self.0.lock().unwrap().push(problem.to_string());
        }
    }
}

impl Races {
    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Another session over the same store.
fn again(first: &Session, mode: Mode) -> Session {
    let settings = Settings { mode, ..first.settings().clone() };
    Session::over(Cpu::with_threads(2).into(), first.store().clone(), settings)
}

/// All records of a session's store.
fn kept(session: &Session) -> Vec<Record> {
    let whole = |entry: &Entry| match session.store().check(entry) {
        Checked::Whole(record) => Some(*record),
        _ => None,
    };
    session.store().entries().iter().filter_map(whole).collect()
}

fn small(session: &Session, rows: u64) -> crate::Fused<Cpu> {
    let mut g = session.graph();
    let (x, w) = (g.input("x", DType::F32, &[rows, 40]), g.input("w", DType::F32, &[24, 40]));
    let y = g.linear(x, w).unwrap();
    let y = g.silu(y).unwrap();
    g.output("y", y).build().unwrap()
}

#[test]
fn the_store_answers_a_second_session_without_measuring() {
    let first = session(Mode::Tune);
    let races = Races::default();
    let tuned = small(&first, 9).tune(&races).unwrap();
    assert!(!tuned.from_store && races.count() == 4, "a product, an activation, both in one, the graph: {:?}", races.0);
    for mode in [Mode::Tune, Mode::Replay, Mode::Record] {
        let (second, races) = (again(&first, mode), Races::default());
        let fused = small(&second, 9);
        if mode == Mode::Tune {
            // A busy machine's verdict is provisional, and `tune` would go on with it.
            let known = fused.tuner().ensure(fused.problem(), &races).unwrap();
            assert_eq!((known.from_store, known.edition), (true, tuned.edition.clone()));
        }
        let before = kept(&second);
        let (drawn, left) = run(&fused, 2);
        assert!(share(&fused, &drawn, &left) <= 1.0);
        let chosen = fused.tuner().choose(fused.problem()).unwrap();
        assert_eq!((chosen.candidate, chosen.how), (tuned.edition.verdict.winner.clone(), How::Stored));
        assert_eq!(races.count(), 0, "{mode}: {:?}", races.0);
        assert_eq!(kept(&second), before, "{mode}: the store is as it was");
        let story = fused.explain();
        assert!(story.contains("from the store") && story.contains("raced as a whole"), "{story}");
    }
}

#[test]
fn the_first_run_decides_and_the_next_does_not_ask_again() {
    let session = session(Mode::Tune);
    let fused = small(&session, 9);
    assert!(fused.explain().contains("not decided yet"), "{}", fused.explain());
    let entries = |session: &Session| session.store().entries().len();
    assert_eq!(entries(&session), 0);
    let (drawn, left) = run(&fused, 2);
    assert!(share(&fused, &drawn, &left) <= 1.0);
    assert!(fused.explain().contains("raced as a whole"), "{}", fused.explain());
    let after = entries(&session);
    assert_eq!(after, 4);
    for seed in 3..6 {
        let (drawn, left) = run(&fused, seed);
        assert!(share(&fused, &drawn, &left) <= 1.0);
    }
    assert_eq!(entries(&session), after);
}

#[test]
fn in_the_background_the_parts_are_raced_before_the_graph_and_the_winner_takes_over() {
    let session = session(Mode::Background);
    let fused = small(&session, 9);
    let (drawn, left) = run(&fused, 2);
    assert!(share(&fused, &drawn, &left) <= 1.0);
    let began = std::time::Instant::now();
    while fused.tuner().record(fused.problem()).is_none() {
        assert!(began.elapsed().as_secs() < 60, "nothing was raced: {:?}", session.store().entries());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let ops: Vec<String> = kept(&session).into_iter().map(|record| record.op).collect();
    assert_eq!(ops.iter().filter(|op| *op != "graph").count(), 3, "{ops:?}");
    let winner = fused.tuner().record(fused.problem()).unwrap().editions[0].verdict.winner.clone();
    while fused.tuner().choose(fused.problem()).unwrap().candidate != winner {
        assert!(began.elapsed().as_secs() < 60, "the winner does not answer");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let (drawn, left) = run(&fused, 3);
    assert!(share(&fused, &drawn, &left) <= 1.0);
}

#[test]
fn mode_off_runs_the_nodes_one_by_one() {
    let session = session(Mode::Off);
    let fused = layer(&mut session.graph(), 5, DType::F32);
    let (drawn, left) = run(&fused, 2);
    assert!(share(&fused, &drawn, &left) <= 1.0);
    let chosen = fused.tuner().choose(fused.problem()).unwrap();
    assert_eq!(chosen.candidate.variant, "apart");
    assert!(session.store().entries().is_empty());
}

#[test]
fn sizes_of_one_bucket_share_the_decision_and_others_do_not() {
    let session = session(Mode::Tune);
    let (nine, sixteen, forty) = (small(&session, 9), small(&session, 16), small(&session, 40));
    let key = |fused: &crate::Fused<Cpu>| fused.tuner().key(fused.problem()).text;
    assert_eq!(key(&nine), key(&sixteen));
    assert_ne!(key(&nine), key(&forty));
    assert_ne!(nine.problem(), sixteen.problem());
    let tuned = nine.tune(&Races::default()).unwrap();
    let races = Races::default();
    let known = sixteen.tuner().ensure(sixteen.problem(), &races).unwrap();
    assert!(known.from_store && races.count() == 0, "{:?}", races.0);
    let (drawn, left) = run(&sixteen, 2);
    assert!(share(&sixteen, &drawn, &left) <= 1.0);
    let chosen = sixteen.tuner().choose(sixteen.problem()).unwrap();
    assert_eq!(chosen.candidate, tuned.edition.verdict.winner);
    // Other types, other weights and other nodes are other questions.
    let other = |build: fn(&mut crate::Builder<Cpu>) -> crate::Fused<Cpu>| key(&build(&mut session.graph()));
    let plain = other(|g| {
        let (x, w) = (g.input("x", DType::F32, &[9, 40]), g.input("w", DType::F32, &[24, 40]));
        let y = g.linear(x, w).unwrap();
        let y = g.relu(y).unwrap();
        g.output("y", y).build().unwrap()
    });
    let wider = other(|g| {
        let (x, w) = (g.input("x", DType::F32, &[9, 40]), g.input("w", DType::F32, &[25, 40]));
        let y = g.linear(x, w).unwrap();
        let y = g.silu(y).unwrap();
        g.output("y", y).build().unwrap()
    });
    assert!(plain != key(&nine) && wider != key(&nine));
}

#[test]
fn one_node_is_a_graph_and_its_text_reads_back_while_it_lives() {
    use warplap_core::op::Op;
    let session = session(Mode::Tune);
    let mut g = session.graph();
    let (q, k) = (g.input("q", DType::F32, &[1, 4, 6, 16]), g.input("k", DType::F32, &[1, 2, 9, 16]));
    let v = g.input("v", DType::F32, &[1, 2, 9, 16]);
    let o = g.attention(q, k, v, true).unwrap();
    let fused = g.output("o", o).build().unwrap();
    let (drawn, left) = run(&fused, 2);
    assert!(share(&fused, &drawn, &left) <= 1.0);
    let text = crate::Graphs::text(fused.problem());
    assert_eq!(crate::Graphs::parse(&text).as_ref(), Ok(fused.problem()));
    drop(fused);
    let gone = crate::Graphs::parse(&text).unwrap_err().to_string();
    assert!(gone.contains("'sizes'") && gone.contains("built in this program"), "{gone}");
}

#[test]
fn threads_run_one_graph_at_once() {
    let session = session(Mode::Off);
    let fused = layer(&mut session.graph(), 6, DType::F32);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let fused = &fused;
            scope.spawn(move || {
                for round in 0..8 {
                    let (drawn, left) = run(fused, 10 * seed + round);
                    assert!(share(fused, &drawn, &left) <= 1.0);
                }
            });
        }
    });
}
