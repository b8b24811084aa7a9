//! What readers, tuners and those who were sent away may not do.

use warplap_core::store::BEFORE_A_RACE;

use crate::server::Server;
use crate::sharing::{machine, now, put};
use crate::store_support::{device, key};

/// A statement that has to be refused, and by whom it is tried.
fn refused(server: &Server, database: &str, user: &str, sql: &str) {
    let answer = server.session(user, database).run(sql);
    assert!(answer.is_err(), "{user} could: {sql}");
}

/// A row of an edition for one origin.
fn insert(origin: &str, tuned_at: &str, answer: &str) -> String {
    let (soft, hash, digest, signature) = ("s".repeat(16), "h".repeat(32), "d".repeat(64), "g".repeat(128));
    format!(
        "insert into warplap.edition (device, soft, hash, origin, op, tuned_at, grade, answer, digest, body, signature) \
         values (1, '{soft}', '{hash}', {origin}, 'matmul', {tuned_at}, 3, {answer}, '{digest}', '', '{signature}')"
    )
}

#[test]
fn ten_forbidden_acts_are_refused_ten_times() {
    let (server, folders) = (Server::start(), [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()]);
    let database = server.database();
    for (name, role) in [("rita", "reader"), ("tom", "tuner"), ("tina", "tuner"), ("kim", "keeper")] {
        server.login(name, role);
    }
    let toms = machine(&server, &database, "tom", folders[0].path());
    let tinas = machine(&server, &database, "tina", folders[1].path());
    put(&toms, 1, now());
    put(&tinas, 2, now());
    toms.publish();
    tinas.publish();
    let mut owner = server.session("owner", &database);
    assert_eq!(owner.rows("select * from warplap.edition", &[]).unwrap().len(), 2, "their own they can");
    let of = |role: &str| format!("(select id from warplap.origin where role = '{role}')");
    let fresh = now().to_string();
    // As a tuner: under another's name, over another's row, removing, emptying, setting the transaction, from the
    // future, and more than fits.
    refused(&server, &database, "tom", &insert(&of("tina"), &fresh, "'{}'"));
    let others = format!(
        "with hit as (update warplap.edition set answer = '' where origin = {} returning 1) \
                          select 1 / count(*) from hit",
        of("tina")
    );
    refused(&server, &database, "tom", &others);
    refused(&server, &database, "tom", "delete from warplap.edition");
    refused(&server, &database, "tom", "truncate warplap.edition");
    refused(&server, &database, "tom", "update warplap.edition set xid = '1'::xid8");
    refused(&server, &database, "tom", &insert(&of("tom"), &(now() + 3600).to_string(), "'{}'"));
    refused(&server, &database, "tom", &insert(&of("tom"), &fresh, "repeat('x', 70000)"));
    refused(&server, &database, "tom", "update warplap.origin set admitted = now()");
    // As a reader: writing, and holding the locks that tuners wait for.
    refused(&server, &database, "rita", &insert(&of("tom"), &fresh, "'{}'"));
    refused(&server, &database, "rita", "select pg_advisory_lock(1)");
    assert!(server.session("rita", &database).rows("select * from warplap.edition", &[]).is_ok(), "reading they may");
    // Somebody who was sent away.
    server.session("kim", &database).run("update warplap.origin set revoked = now() where role = 'tom'").unwrap();
    refused(&server, &database, "tom", &insert(&of("tom"), &fresh, "'{}'"));
    put(&toms, 3, now());
    toms.publish();
    assert_eq!(owner.rows("select * from warplap.edition", &[]).unwrap().len(), 2);
    assert!(!tinas.ask(&key(1), &device(1), BEFORE_A_RACE), "and what was published before is not taken any more");
}

#[test]
fn an_older_edition_changes_nothing() {
    let (server, folder) = (Server::shared(), tempfile::tempdir().unwrap());
    let database = server.database();
    let store = machine(&server, &database, "owner", folder.path());
    put(&store, 1, now());
    store.publish();
    let mut owner = server.session("owner", &database);
    let before: i64 = owner.rows("select tuned_at from warplap.edition", &[]).unwrap()[0].get(0);
    // The same row, as a copy of the store from last week would send it.
    let sql = "insert into warplap.edition as e (device, soft, hash, origin, op, tuned_at, grade, answer, digest, body, \
               signature) select device, soft, hash, origin, op, tuned_at - 1000, grade, answer, digest, body, signature \
               from warplap.edition on conflict (device, soft, hash, origin) do update set tuned_at = excluded.tuned_at \
               where e.tuned_at < excluded.tuned_at";
    owner.run(sql).unwrap();
    assert_eq!(owner.rows("select tuned_at from warplap.edition", &[]).unwrap()[0].get::<_, i64>(0), before);
}
