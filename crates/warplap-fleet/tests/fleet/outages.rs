//! A far side that is down, silent, slow, full, read-only or of another version: it costs one patience, then nothing, and
//! what was measured meanwhile arrives later.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use warplap_core::store::{ASKING, BEFORE_A_RACE, Right, SecretKey, Store};
use warplap_fleet::KEY_FILE;

use crate::server::Server;
use crate::sharing::{machine, now, put};
use crate::store_support::{device, key};

/// What stands between a machine and the server.
const OPEN: u8 = 0;
pub(crate) const SILENT: u8 = 1;
const SLOW: u8 = 2;
const CLOSED: u8 = 3;

/// A wire that passes everything on, or not.
pub(crate) fn wire(to: u16) -> (u16, Arc<AtomicU8>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, state) = (listener.local_addr().unwrap().port(), Arc::new(AtomicU8::new(OPEN)));
    let shared = state.clone();
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            if shared.load(Ordering::Acquire) == CLOSED {
                continue;
            }
            let Ok(far) = TcpStream::connect(("127.0.0.1", to)) else { continue };
            for (mut from, mut to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                let state = shared.clone();
                std::thread::spawn(move || {
                    let mut part = [0; 4096];
                    while let Ok(n) = from.read(&mut part) {
                        match state.load(Ordering::Acquire) {
                            _ if n == 0 => break,
                            CLOSED => break,
                            SILENT => {
                                while state.load(Ordering::Acquire) == SILENT {
                                    std::thread::sleep(Duration::from_millis(5));
                                }
                            }
                            SLOW => std::thread::sleep(Duration::from_millis(600)),
                            _ => {}
                        }
                        if to.write_all(&part[..n]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    (port, state)
}

/// A machine behind a wire.
fn behind(server: &Server, database: &str, folder: &Path, port: u16) -> Store {
    drop(machine(server, database, "owner", folder));
    let near = folder.join("near");
    let url = format!("postgres://owner:owner-password@127.0.0.1:{port}/{database}?near={}", near.display());
    warplap_fleet::open(&url).unwrap()
}

/// Asking costs one patience, and then nothing.
fn costs_little(store: &Store, what: &str) {
    let asked = Instant::now();
    assert!(!store.ask(&key(1000), &device(1), ASKING), "{what}");
    let first = asked.elapsed();
    let asked = Instant::now();
    for n in 0..100 {
        assert!(!store.ask(&key(1001 + n), &device(1), ASKING), "{what}");
    }
    let then = asked.elapsed();
    // 50 ms by itself; a busy machine wakes a waiting thread late.
    assert!(first < Duration::from_millis(150), "{what}: the first question took {first:?}");
    assert!(then < Duration::from_millis(500), "{what}: 100 more took {then:?}");
}

/// Taking turns costs a longer patience, once too: whoever asks is about to race.
fn turns_cost_little(store: &Store, what: &str) {
    let asked = Instant::now();
    for n in 0..100 {
        let right = store.far().unwrap().flight(&key(n), &device(1), Duration::from_secs(1));
        assert!(matches!(right, Right::Unknown), "{what}: {right:?}");
    }
    assert!(asked.elapsed() < Duration::from_secs(5), "{what}: turns took {:?}", asked.elapsed());
}

/// How many editions have arrived.
fn there(server: &Server, database: &str) -> usize {
    server.session("owner", database).rows("select 1 from warplap.edition", &[]).unwrap().len()
}

#[test]
fn a_far_side_that_fails_costs_one_patience_and_all_arrives_later() {
    let server = Server::start();
    let database = server.database();
    for (n, (what, state)) in [("refused", CLOSED), ("silent", SILENT), ("slow", SLOW)].into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let (port, wired) = wire(server.port());
        let store = behind(&server, &database, folder.path(), port);
        wired.store(state, Ordering::Release);
        costs_little(&store, what);
        turns_cost_little(&store, what);
        let began = Instant::now();
        put(&store, n as u64, now());
        assert!(began.elapsed() < Duration::from_secs(5), "{what}: near is not kept waiting");
        let before = there(&server, &database);
        drop(store);
        wired.store(OPEN, Ordering::Release);
        // The next program of this machine sends it, a minute later where the far side said nothing.
        let url = format!("postgres://owner:owner-password@127.0.0.1:{port}/{database}");
        let again = warplap_fleet::open(&format!("{url}?near={}/near", folder.path().display())).unwrap();
        again.remove_note("store", "fleet-silence").unwrap();
        again.far().unwrap().publish(Duration::from_secs(30));
        assert_eq!(there(&server, &database), before + 1, "{what}: it did not arrive");
    }
}

/// Three problems, as far as a store is concerned: each is asked for, raced by whoever has the right, kept and sent.
fn three_problems(url: &str) {
    let store = warplap_fleet::open(url).unwrap();
    for n in 0..3 {
        assert!(!store.ask(&key(n), &device(1), ASKING));
        let right = store.far().unwrap().flight(&key(n), &device(1), Duration::from_secs(1));
        assert!(matches!(right, Right::Unknown), "{right:?}");
        assert!(!store.ask(&key(n), &device(1), BEFORE_A_RACE));
        put(&store, n, now());
        store.publish();
    }
}

#[test]
fn of_all_programs_of_a_near_store_one_waits_once_for_a_far_side_that_says_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let near = folder.path().join("near");
    drop(Store::directory(&near).unwrap());
    SecretKey::generate().unwrap().write(&near.join(KEY_FILE)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("postgres://a:b@127.0.0.1:{port}/d?near={}", near.display());
    let began = Instant::now();
    (0..2).for_each(|_| three_problems(&url));
    // 1.3 s by itself; each patience that is lost once more is another 1.2 s, and it was 46 s.
    assert!(began.elapsed() < Duration::from_secs(8), "it took {:?}", began.elapsed());
    let note = Store::directory(&near).unwrap().note("store", "fleet-silence").unwrap();
    assert_eq!(note["far"], format!("postgres://a@127.0.0.1:{port}/d"));
    // Who asks for the far side itself is told.
    let address = warplap_fleet::Address::read(&url).unwrap();
    let opened = warplap_fleet::Session::open_within(&address, Duration::from_millis(100));
    assert!(opened.is_err_and(|e| e.to_string().contains("within 100 ms")));
}

#[test]
fn a_database_that_takes_nothing_is_asked_all_the_same_and_gets_it_later() {
    let server = Server::start();
    let database = server.database();
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = machine(&server, &database, "owner", one.path());
    put(&first, 1, now());
    first.publish();
    let mut owner = server.session("owner", &database);
    let fill = "create function public.full() returns trigger language plpgsql as \
                $$ begin raise exception 'could not extend file' using errcode = 'disk_full'; end $$; \
                create trigger full_disk before insert on warplap.edition for each row execute function public.full()";
    let spoilt = [
        (
            "read-only",
            format!("alter database {database} set default_transaction_read_only = on"),
            format!("set transaction read write; alter database {database} reset default_transaction_read_only"),
        ),
        (
            "full",
            fill.to_string(),
            "drop trigger full_disk on warplap.edition; drop function public.full()".to_string(),
        ),
    ];
    let second = machine(&server, &database, "owner", two.path());
    drop(second);
    for (n, (what, spoil, mend)) in spoilt.iter().enumerate() {
        owner.run(spoil).unwrap();
        let store = crate::sharing::open(&server, &database, "owner", two.path());
        put(&store, 10 + n as u64, now());
        store.publish();
        if n == 0 {
            assert!(store.ask(&key(1), &device(1), BEFORE_A_RACE), "{what}: what is there can be had");
        }
        let before = there(&server, &database);
        drop(store);
        let mut other = server.session("owner", "postgres");
        match n {
            0 => other.run(&format!("alter database {database} reset default_transaction_read_only")).unwrap(),
            _ => server.session("owner", &database).run(mend).unwrap(),
        }
        let again = crate::sharing::open(&server, &database, "owner", two.path());
        again.far().unwrap().publish(Duration::from_secs(30));
        assert_eq!(there(&server, &database), before + 1, "{what}: it did not arrive");
        owner = server.session("owner", &database);
    }
}

#[test]
fn tables_that_are_not_there_or_of_another_version_are_a_miss() {
    let server = Server::shared();
    let (empty, newer, folder) = (server.empty(), server.database(), tempfile::tempdir().unwrap());
    let near = folder.path().join("near");
    let store = warplap_fleet::open(&format!("{}?near={}", server.url("owner", &empty), near.display())).unwrap();
    costs_little(&store, "no tables");
    let two = tempfile::tempdir().unwrap();
    let store = machine(&server, &newer, "owner", two.path());
    server.session("owner", &newer).run("update warplap.about set schema = 99").unwrap();
    put(&store, 1, now());
    store.publish();
    assert_eq!(there(&server, &newer), 0, "nothing is written into tables that this program does not know");
}

#[test]
fn opening_a_store_connects_to_nobody() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("postgres://a:b@127.0.0.1:{port}/d?near={}/near", folder.path().display());
    let store = warplap_fleet::open(&url).unwrap();
    store.lookup(&key(1), &device(1));
    store.put(&key(1), &device(1), crate::store_support::edition(store.id(), now(), 1), "matmul m=1").unwrap();
    assert!(listener.accept().is_err(), "somebody connected");
    assert!(!store.ask(&key(2), &device(1), BEFORE_A_RACE));
    let until = Instant::now() + Duration::from_secs(5);
    while listener.accept().is_err() {
        assert!(Instant::now() < until, "a question should have");
        std::thread::sleep(Duration::from_millis(5));
    }
}
