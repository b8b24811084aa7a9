//! Many at once: clients that ask, and processes that start.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use warplap_core::store::{Match, Store};
use warplap_fleet::tables;

use crate::server::Server;
use crate::sharing::{machine, now, put};
use crate::store_support::{child, device, key, long, part, say, setting};

/// Keys that are there to be asked for.
const KEYS: u64 = 200;

#[test]
fn fifty_clients_ask_at_once() {
    if !long() {
        return;
    }
    let _alone = crate::alone();
    let (server, one) = (Server::start(), tempfile::tempdir().unwrap());
    let database = server.database();
    let store = machine(&server, &database, "owner", one.path());
    (0..KEYS).for_each(|n| put(&store, n, now()));
    store.publish();
    // As the server does by itself after a while.
    server.session("owner", &database).run("vacuum analyze warplap.edition").unwrap();
    let id = server.session("owner", &database).device(&device(1).slug()).unwrap().unwrap();
    let (asked, over, seconds) = (AtomicU64::new(0), AtomicBool::new(false), 20);
    let sessions: Vec<_> = (0..50).map(|_| server.session("owner", &database)).collect();
    std::thread::scope(|scope| {
        for (n, mut session) in sessions.into_iter().enumerate() {
            let (asked, over) = (&asked, &over);
            scope.spawn(move || {
                let (slug, soft, mut random) =
                    (device(1).slug(), device(1).soft_id(), fastrand::Rng::with_seed(n as u64));
                let hashes: Vec<String> = (0..KEYS).map(|n| key(n).hash()).collect();
                while !over.load(Ordering::Relaxed) {
                    let hash = &hashes[random.usize(..hashes.len())];
                    let result = tables::answers(&mut session, &slug, &soft, hash, "").unwrap();
                    assert_eq!(result.len(), 1);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(Duration::from_secs(seconds));
        over.store(true, Ordering::Relaxed);
    });
    let rate = asked.load(Ordering::Relaxed) / seconds;
    say(std::io::stderr(), format!("  50 clients, a thread each: {rate} gets a second"));
    assert!(rate >= 5_000, "{rate} gets a second");
    // What the server gives where clients cost less: PostgreSQL's own stopwatch, with what `answers` asks.
    let hashes = (0..KEYS).map(|n| key(n).hash()).collect::<Vec<_>>().join(",");
    let sql = format!(
        "\\set n random(1, {KEYS})\n{}",
        tables::ANSWERS
            .replace("$1", &id.to_string())
            .replace("$2", &format!("'{}'", device(1).soft_id()))
            .replace("$3", &format!("(cast('{{{hashes}}}' as text[]))[:n]"))
            .replace("$4", "''")
            .replace("$5", "3")
    );
    let rate = server.bench(&database, &sql, 50, seconds);
    say(std::io::stderr(), format!("  50 clients of pgbench: {rate:.0} gets a second"));
    // Half of what a quiet machine of two cores gave: docs/results/fleet.md.
    assert!(rate >= 10_000.0, "{rate:.0} gets a second");
}

/// One process of many that start at once: it answers from what it has.
fn start(url: &str) {
    let store = warplap_fleet::open(url).unwrap();
    let began = Instant::now();
    for n in 0..KEYS {
        assert!(matches!(store.lookup(&key(n), &device(1)), Match::Exact(_)));
        assert!(!store.ask(&key(n), &device(1), warplap_core::store::ASKING));
    }
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn processes_that_start_with_a_bundle_ask_the_database_nothing() {
    if part().is_some() {
        return start(&setting("URL"));
    }
    let _alone = crate::alone();
    let (server, one) = (Server::start(), tempfile::tempdir().unwrap());
    let database = server.database();
    let maker = machine(&server, &database, "owner", one.path());
    (0..KEYS).for_each(|n| put(&maker, n, now()));
    maker.publish();
    // What an image brings along: a near store that a bundle was put into.
    let image = one.path().join("image");
    let bundle = warplap_core::store::bundle::Bundle::of(&maker, |_| true);
    bundle.put_into(&Store::directory(&image).unwrap()).unwrap();
    let url = format!("{}?near={}", server.url("owner", &database), image.display());
    let before = connections(&server, &database);
    let (all, at_once) = if long() { (1000, 50) } else { (40, 20) };
    let began = Instant::now();
    for _ in 0..all / at_once {
        let children: Vec<_> = (0..at_once).map(|_| spawn(&url)).collect();
        assert!(children.into_iter().all(|mut child| child.wait().unwrap().success()));
    }
    let took = began.elapsed();
    assert_eq!(connections(&server, &database), before, "somebody asked the database");
    say(std::io::stderr(), format!("  {all} processes, {KEYS} keys each, in {took:.1?}: 0 connections"));
}

fn spawn(url: &str) -> std::process::Child {
    child("load::processes_that_start_with_a_bundle_ask_the_database_nothing", "start", &[("URL", url)])
        .stderr(std::process::Stdio::inherit())
        .spawn()
        .unwrap()
}

/// How often somebody has connected to a database.
fn connections(server: &Server, database: &str) -> i64 {
    let mut session = server.session("owner", "postgres");
    // Sessions are counted with a delay of about a second.
    std::thread::sleep(Duration::from_millis(1500));
    session.rows("select sessions from pg_stat_database where datname = $1", &[&database]).unwrap()[0].get(0)
}
