//! Two machines and one far store: what one measured answers on the other, as a proposal of a known origin.

use std::path::Path;
use std::time::{Duration, Instant};

use warplap_core::store::{BEFORE_A_RACE, Match, SecretKey, Store};
use warplap_fleet::{KEY_FILE, tables};

use crate::server::Server;
use crate::store_support::{device, edition, key, long, winner};

/// A machine: a near store in a folder, with a key that the fleet has let in.
pub(crate) fn machine(server: &Server, database: &str, user: &str, folder: &Path) -> Store {
    let secret = SecretKey::generate().unwrap();
    let root = folder.join("near");
    drop(Store::directory(&root).unwrap());
    secret.write(&root.join(KEY_FILE)).unwrap();
    let (id, public) = (secret.public().origin(), secret.public().to_string());
    let mut owner = server.session("owner", database);
    let sql =
        format!("insert into warplap.origin (id, key, role, admitted) values ('{id}', '{public}', '{user}', now())");
    owner.run(&sql).unwrap();
    open(server, database, user, folder)
}

/// The store of a machine that has joined.
pub(crate) fn open(server: &Server, database: &str, user: &str, folder: &Path) -> Store {
    let url = server.url(user, database);
    warplap_fleet::open(&format!("{url}?near={}", folder.join("near").display())).unwrap()
}

/// Tunes a key as far as a store is concerned.
pub(crate) fn put(store: &Store, n: u64, at: u64) {
    store.put(&key(n), &device(1), edition(store.id(), at, n as i64), "matmul m=1").unwrap();
}

pub(crate) fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn what_one_machine_measured_answers_on_another_soon_after_it_is_published() {
    let (server, one, two) = (Server::shared(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let database = server.database();
    let first = machine(&server, &database, "owner", one.path());
    let second = machine(&server, &database, "owner", two.path());
    assert!(!second.ask(&key(1), &device(1), BEFORE_A_RACE), "nobody knows it yet");
    put(&first, 1, now());
    first.publish();
    let asked = Instant::now();
    assert!(second.ask(&key(1), &device(1), BEFORE_A_RACE));
    // A busy machine wakes a waiting thread late.
    let most = if long() { 100 } else { 1000 };
    assert!(asked.elapsed() < Duration::from_millis(most), "{:?}", asked.elapsed());
    let Match::Exact(record) = second.lookup(&key(1), &device(1)) else { panic!("it is not there") };
    assert_eq!(winner(&record), 1);
    let came = &record.editions[0];
    assert!(came.origin != second.id() && came.origin != first.id(), "its origin is the hash of a key");
    assert_eq!(came.trials.len(), 1, "the answer travels without those it beat");
    assert!(came.skipped.iter().any(|s| s.variant == "naive"), "but who was met there is no newcomer here");
    // What is known here is not asked for again, and one's own never comes back.
    assert!(!second.ask(&key(1), &device(1), BEFORE_A_RACE) && !first.ask(&key(1), &device(1), BEFORE_A_RACE));
}

#[test]
fn bodies_come_on_demand_and_carry_every_trial() {
    let (server, one) = (Server::shared(), tempfile::tempdir().unwrap());
    let database = server.database();
    let store = machine(&server, &database, "owner", one.path());
    put(&store, 1, now());
    store.publish();
    let mut session = server.session("owner", &database);
    // A transaction that others have open on this server delays followers.
    let until = Instant::now() + Duration::from_secs(30);
    let (all, mark) = loop {
        let result = tables::since(&mut session, Some(&device(1).slug()), "", &Default::default(), true).unwrap();
        if !result.0.is_empty() || Instant::now() > until {
            break result;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let record = all[0].open().unwrap();
    assert_eq!((all.len(), record.editions[0].trials.len()), (1, 2));
    let (rest, _) = tables::since(&mut session, None, "", &mark, true).unwrap();
    assert!(rest.is_empty(), "nothing is told twice where nothing was written");
}

#[test]
fn only_what_its_origin_signed_is_taken() {
    let (server, one, two) = (Server::shared(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let database = server.database();
    let first = machine(&server, &database, "owner", one.path());
    let second = machine(&server, &database, "owner", two.path());
    let attacks = [
        // The first: whoever has seen an origin's key remembers it.
        "update warplap.origin set key = (select key from warplap.origin o where o.id <> origin.id limit 1)",
        "update warplap.edition set answer = replace(answer, '\"mc\":', '\"mc\":9')",
        "update warplap.edition set tuned_at = tuned_at - 1",
        "update warplap.edition set signature = reverse(signature)",
        "update warplap.edition set digest = reverse(digest)",
        "update warplap.edition set origin = (select id from warplap.origin o where o.id <> edition.origin limit 1)",
        "update warplap.origin set revoked = now()",
        "update warplap.origin set admitted = null",
    ];
    for (n, attack) in attacks.iter().enumerate() {
        let n = n as u64 + 1;
        put(&first, n, now());
        first.publish();
        let mut owner = server.session("owner", &database);
        owner.run("create table if not exists public.before as select * from warplap.origin").unwrap();
        owner.run(attack).unwrap();
        assert!(!second.ask(&key(n), &device(1), BEFORE_A_RACE), "{attack}");
        owner
            .run(
                "delete from warplap.edition; update warplap.origin o set key = b.key, admitted = b.admitted, \
                 revoked = b.revoked from public.before b where b.id = o.id",
            )
            .unwrap();
    }
    put(&first, 99, now());
    first.publish();
    assert!(second.ask(&key(99), &device(1), BEFORE_A_RACE), "after all these it still works");
}

#[test]
fn a_near_store_keeps_its_own_and_the_best_three_of_others() {
    let (server, own) = (Server::shared(), tempfile::tempdir().unwrap());
    let database = server.database();
    for n in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let other = machine(&server, &database, "owner", folder.path());
        put(&other, 1, now() - n);
        other.publish();
    }
    let store = machine(&server, &database, "owner", own.path());
    assert!(store.ask(&key(1), &device(1), BEFORE_A_RACE));
    let Match::Exact(record) = store.lookup(&key(1), &device(1)) else { panic!("it is not there") };
    assert_eq!(record.editions.len(), 3);
}

#[test]
fn what_is_missed_is_wanted_by_the_fleet() {
    let (server, own) = (Server::shared(), tempfile::tempdir().unwrap());
    let database = server.database();
    let store = machine(&server, &database, "owner", own.path());
    for n in [1, 2, 2] {
        store.miss(&key(n), &device(1), "matmul m=1");
    }
    store.publish();
    let wanted = warplap_fleet::wants::all(&mut server.session("owner", &database), None).unwrap();
    let keys: Vec<&str> = wanted.iter().map(|w| w.key.as_str()).collect();
    assert_eq!(keys.len(), 2, "{keys:?}");
    assert!(wanted.iter().all(|w| w.device == device(1).slug() && w.editions == 0));
}
