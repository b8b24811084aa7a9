//! The compiler pool with a stand-in compiler: one that dies or never ends costs its own source alone.
#![allow(unreachable_pub, dead_code, reason = "the stand-in is shared with the sandbox's tests")]

mod standin;

use std::time::Duration;

use standin::worker_setup;
use warplap_worker::{CompileOrder, Pool, WorkerSetup};

/// Not a test: the worker of all the others.
#[test]
fn worker() {
    standin::serve();
}

fn order(text: &str) -> CompileOrder {
    CompileOrder { name: "k".into(), text: text.into(), headers: Vec::new(), options: Vec::new() }
}

fn compiled(pool: &Pool, text: &str) -> Result<(Vec<u8>, String), String> {
    pool.compile(&worker_setup(), &order(text)).expect("a compiler")
}

#[test]
fn a_compiler_that_dies_or_never_ends_costs_its_own_kernel_alone() {
    let mut pool = Pool::new("standin");
    pool.deadline = Duration::from_secs(1);
    assert!(compiled(&pool, "dies").unwrap_err().contains("crashed"));
    assert!(compiled(&pool, "hangs").unwrap_err().contains("longer than 1.0 s"));
    assert_eq!(compiled(&pool, "errs").unwrap_err(), "line 1: no such word");
    assert_eq!(compiled(&pool, "text").unwrap().0, b"text");
}

#[test]
fn a_compiler_waits_for_the_next_kernel_and_two_at_once_are_two_processes() {
    let pool = Pool::new("standin");
    let first = compiled(&pool, "a").unwrap().1;
    assert_eq!(compiled(&pool, "b").unwrap().1, first);
    assert!(compiled(&pool, "errs").is_err());
    assert_eq!(compiled(&pool, "c").unwrap().1, first, "what does not compile ends nobody");
    let both = std::thread::scope(|scope| {
        let threads = [0, 1].map(|_| scope.spawn(|| compiled(&pool, "slow").unwrap().1));
        threads.map(|t| t.join().unwrap())
    });
    assert!(both[0] != both[1] && both.contains(&first), "{both:?}");
}

#[test]
fn without_workers_or_a_compiler_nobody_else_compiles() {
    let mut home = worker_setup();
    home.send_home();
    assert!(Pool::new("standin").compile(&home, &order("a")).is_none());
    assert!(Pool::new("abacus").compile(&worker_setup(), &order("a")).is_none());
    let mut nobody = WorkerSetup::usual();
    nobody.choose("/nonexistent/program".into(), Vec::new());
    assert!(Pool::new("standin").compile(&nobody, &order("a")).is_none());
}

#[test]
fn an_artifact_is_named_by_all_that_decides_it() {
    let plain = order("text");
    let all = [
        plain.clone(),
        CompileOrder { name: "l".into(), ..plain.clone() },
        CompileOrder { text: "texts".into(), ..plain.clone() },
        CompileOrder { headers: vec![("h".into(), "x".into())], ..plain.clone() },
        CompileOrder { options: vec!["-O3".into()], ..plain.clone() },
    ];
    let mut names: Vec<String> = all.iter().flat_map(|o| [o.digest("one 1"), o.digest("one 2")]).collect();
    assert_eq!(plain.digest("one 1"), names[0]);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 10);
}
