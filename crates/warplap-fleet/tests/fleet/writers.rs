//! Many writers: a follower misses none of them, and what was acknowledged survives a power cut.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use warplap_core::store::SecretKey;
use warplap_fleet::sealed::Sealed;
use warplap_fleet::tables::{self, Followed};

use crate::server::Server;
use crate::store_support::{device, edition, key, long, record, say};

const WRITERS: u64 = 16;

/// A writer's key, let in.
fn signer(server: &Server, database: &str) -> SecretKey {
    let secret = SecretKey::generate().unwrap();
    let (id, public) = (secret.public().origin(), secret.public().to_string());
    let sql = format!("insert into warplap.origin (id, key, admitted) values ('{id}', '{public}', now())");
    server.session("owner", database).run(&sql).unwrap();
    secret
}

fn sealed(secret: &SecretKey, n: u64) -> (Sealed, Vec<u8>, String) {
    let record = record(&key(n), &device(1), edition("x", 1_000, n as i64));
    let (sealed, body) = Sealed::seal(&record, &record.editions[0], secret).unwrap();
    (sealed, body, serde_json::to_string(&record.device).unwrap())
}

#[test]
fn a_follower_among_writers_loses_nothing_and_one_that_goes_by_numbers_does() {
    let _alone = crate::alone();
    let commits: u64 = if long() { 25_000 } else { 2_000 };
    let server = Server::start();
    let database = server.database();
    let secret = Arc::new(signer(&server, &database));
    // The control: a number drawn from a sequence, as one would without thinking.
    server.session("owner", &database).run("create table public.control (n bigserial, hash text)").unwrap();
    let (next, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let write = || {
        let (secret, next) = (secret.clone(), next.clone());
        let mut session = server.session("owner", &database);
        std::thread::spawn(move || {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= commits {
                    return;
                }
                let one = sealed(&secret, n);
                let mut all = session.begin().unwrap();
                all.execute("insert into public.control (hash) values ($1)", &[&one.0.hash]).unwrap();
                all.commit().unwrap();
                tables::publish(&mut session, &[one]).unwrap();
            }
        })
    };
    // Numbers are drawn before their rows are seen: so the control's writers linger a little between the two.
    server
        .session("owner", &database)
        .run(
            "create function public.linger() returns trigger language plpgsql as \
             $$ begin perform pg_sleep(random() * 0.004); return null; end $$; \
             create constraint trigger linger after insert on public.control deferrable initially deferred \
             for each row execute function public.linger()",
        )
        .unwrap();
    let writers: Vec<_> = (0..WRITERS).map(|_| write()).collect();
    let follow = {
        let (ended, mut session) = (ended.clone(), server.session("owner", &database));
        std::thread::spawn(move || {
            let (mut seen, mut numbers, mut last) = (HashSet::new(), HashSet::new(), 0i64);
            let mut mark = Followed::default();
            loop {
                let over = ended.load(Ordering::Acquire);
                let (new, upto) = tables::since(&mut session, None, "", &mark, false).unwrap();
                seen.extend(new.into_iter().map(|claim| claim.sealed.hash));
                mark = upto;
                for row in session.rows("select n, hash from public.control where n > $1 order by n", &[&last]).unwrap()
                {
                    last = row.get(0);
                    numbers.insert(row.get::<_, String>(1));
                }
                if over {
                    return (seen.len() as u64, numbers.len() as u64);
                }
            }
        })
    };
    writers.into_iter().for_each(|w| w.join().unwrap());
    ended.store(true, Ordering::Release);
    let (seen, numbers) = follow.join().unwrap();
    assert_eq!(seen, commits, "the follower lost some");
    assert!(numbers < commits, "the control was expected to lose some");
    say(
        std::io::stderr(),
        format!("  {commits} commits by {WRITERS} writers: 0 lost; by a sequence {} lost", commits - numbers),
    );
}

#[test]
fn what_was_acknowledged_survives_power_cuts() {
    let _alone = crate::alone();
    let cuts = if long() { 8 } else { 2 };
    let server = Server::start();
    let database = server.database();
    let secret = Arc::new(signer(&server, &database));
    let (acknowledged, ended) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let next = Arc::new(AtomicU64::new(0));
    let url = server.url("owner", &database);
    let write = |_| {
        let (secret, next, ended, acknowledged) = (secret.clone(), next.clone(), ended.clone(), acknowledged.clone());
        let address = warplap_fleet::Address::read(&url).unwrap();
        std::thread::spawn(move || {
            while !ended.load(Ordering::Acquire) {
                let Ok(mut session) = warplap_fleet::Session::open(&address) else {
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                };
                while !ended.load(Ordering::Acquire) {
                    let one = sealed(&secret, next.fetch_add(1, Ordering::Relaxed));
                    let hash = one.0.hash.clone();
                    match tables::publish(&mut session, &[one]) {
                        Ok(_) => acknowledged.lock().unwrap().push(hash),
                        Err(_) => break,
                    }
                }
            }
        })
    };
    let writers: Vec<_> = (0..WRITERS).map(write).collect();
    for _ in 0..cuts {
        let before = acknowledged.lock().unwrap().len();
        let until = Instant::now() + Duration::from_secs(60);
        while acknowledged.lock().unwrap().len() < before + 100 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        server.cut();
        server.up();
    }
    ended.store(true, Ordering::Release);
    writers.into_iter().for_each(|w| w.join().unwrap());
    let mut session = server.session("owner", &database);
    let there: HashSet<String> =
        session.rows("select hash from warplap.edition", &[]).unwrap().iter().map(|row| row.get(0)).collect();
    let acknowledged = acknowledged.lock().unwrap();
    let lost = acknowledged.iter().filter(|hash| !there.contains(*hash)).count();
    assert_eq!(lost, 0);
    assert!(acknowledged.len() >= 100 * cuts, "only {} were written", acknowledged.len());
    say(
        std::io::stderr(),
        format!("  {cuts} power cuts under {WRITERS} writers: {} acknowledged, 0 lost", acknowledged.len()),
    );
}
