//! The roster: who belongs to a fleet. Tables are made, keys are let in and sent away, cards are listed.

use std::path::Path;

use serde::Serialize;
use warplap_core::store::{PublicKey, SecretKey};

use super::KEY_FILE;
use super::error::FarError;
use super::session::Session;
use super::tables;
use crate::{GUARDS_SQL, SCHEMA_SQL};

/// A machine that may publish, or asks to.
#[derive(Clone, Debug, Serialize)]
pub struct Member {
    /// The hash of its key: what its editions carry.
    pub origin: String,
    /// Its public key.
    pub key: String,
    /// What it calls itself.
    pub node: String,
    /// The login that brought it.
    pub role: String,
    /// `asking`, `in` or `sent away`.
    pub standing: String,
    /// How many editions it has published.
    pub editions: i64,
}

/// Makes the tables and roles where there are none; what could not be done, for people.
pub fn init(session: &mut Session) -> Result<Option<String>, FarError> {
    let says = |e: postgres::Error| FarError::of(&e);
    let there = session.rows("select to_regclass('warplap.about') is not null", &[]).map_err(says)?;
    if there.first().is_some_and(|row| row.get(0)) {
        let (schema, _) = tables::about(session).map_err(says)?;
        if schema > tables::SCHEMA {
            let known = tables::SCHEMA;
            return Err(FarError::Schema(format!("its tables are of version {schema}, this program knows {known}")));
        }
    }
    session.run(&format!("begin; {SCHEMA_SQL}; commit")).map_err(|e| {
        let error = FarError::of(&e);
        let _ = session.run("rollback");
        error
    })?;
    let guarded = session.run(&format!("begin; {GUARDS_SQL}; commit"));
    Ok(guarded.err().map(|e| {
        let _ = session.run("rollback");
        format!("readers can hold the locks tuners take turns by: {}; let a superuser run init", FarError::of(&e))
    }))
}

/// Lets this store join under a key of its own, which is made where it has none. Whoever may admit others is admitted at
/// once. Gives the origin, the key and whether it is in.
pub fn join(session: &mut Session, near: &Path, node: &str) -> Result<(String, PublicKey, bool), FarError> {
    let path = near.join(KEY_FILE);
    let refused = |e: warplap_core::store::KeyError| FarError::Refused(format!("this store's key: {e}"));
    if !path.exists() {
        SecretKey::generate().and_then(|key| key.write(&path)).map_err(refused)?;
    }
    let key = SecretKey::read(&path).map_err(refused)?.public();
    let (id, text) = (key.origin(), key.to_string());
    let says = |e: postgres::Error| FarError::of(&e);
    const ADD: &str = "insert into warplap.origin (id, key, node) values ($1, $2, $3) on conflict do nothing";
    session.rows(ADD, &[&id, &text, &node]).map_err(says)?;
    const MAY: &str = "select pg_has_role(current_user, 'warplap_keeper', 'member')";
    let keeper = session.rows(MAY, &[]).map_err(says)?.first().is_some_and(|row| row.get(0));
    if keeper {
        // Somebody who was sent away does not come back by asking again.
        const ADMIT: &str =
            "update warplap.origin set admitted = now() where id = $1 and admitted is null and revoked is null";
        session.rows(ADMIT, &[&id]).map_err(says)?;
    }
    const IS_IN: &str = "select admitted is not null and revoked is null from warplap.origin where id = $1";
    let is_in = session.rows(IS_IN, &[&id]).map_err(says)?.first().is_some_and(|row| row.get(0));
    Ok((id, key, is_in))
}

/// Everybody, those who ask first.
pub fn members(session: &mut Session) -> Result<Vec<Member>, postgres::Error> {
    const SQL: &str = "select o.id, o.key, o.node, o.role::text, \
         case when o.revoked is not null then 'sent away' when o.admitted is null then 'asking' else 'in' end, \
         (select count(*) from warplap.edition e where e.origin = o.id) \
         from warplap.origin o order by o.admitted is not null, o.since";
    let read = |row: &postgres::Row| Member {
        origin: row.get(0),
        key: row.get(1),
        node: row.get(2),
        role: row.get(3),
        standing: row.get(4),
        editions: row.get(5),
    };
    Ok(session.rows(SQL, &[])?.iter().map(read).collect())
}

/// Lets somebody in; `false` where there is no such origin, or it was sent away.
pub fn admit(session: &mut Session, id: &str) -> Result<bool, postgres::Error> {
    const SQL: &str =
        "update warplap.origin set admitted = coalesce(admitted, now()) where id = $1 and revoked is null returning id";
    Ok(!session.rows(SQL, &[&id])?.is_empty())
}

/// Sends somebody away: nothing of theirs is taken any more.
pub fn send_away(session: &mut Session, id: &str) -> Result<bool, postgres::Error> {
    const SQL: &str = "update warplap.origin set revoked = coalesce(revoked, now()) where id = $1 returning id";
    Ok(!session.rows(SQL, &[&id])?.is_empty())
}

/// What a fleet has of one kind of device.
#[derive(Clone, Debug, Serialize)]
pub struct RosterClass {
    /// The device's folder name.
    pub device: String,
    /// Its hard fingerprint, as JSON.
    pub hard: String,
    /// Keys that somebody has tuned.
    pub keys: i64,
    /// Those who measured.
    pub origins: i64,
    /// Keys that are wanted and nobody has tuned.
    pub wanted: i64,
    /// Keys that failed too often.
    pub failed: i64,
}

/// The kinds of device a fleet knows.
pub fn classes(session: &mut Session) -> Result<Vec<RosterClass>, postgres::Error> {
    const SQL: &str = "select d.slug, d.hard, \
         (select count(distinct e.hash) from warplap.edition e where e.device = d.id), \
         (select count(distinct e.origin) from warplap.edition e where e.device = d.id), \
         (select count(*) from warplap.want w where w.device = d.id and not exists \
            (select 1 from warplap.edition e where e.device = w.device and e.hash = w.hash)), \
         (select count(*) from warplap.want w where w.device = d.id and w.failed >= 3 and cardinality(w.nodes) >= 2) \
         from warplap.device d order by d.slug";
    let read = |row: &postgres::Row| RosterClass {
        device: row.get(0),
        hard: row.get(1),
        keys: row.get(2),
        origins: row.get(3),
        wanted: row.get(4),
        failed: row.get(5),
    };
    Ok(session.rows(SQL, &[])?.iter().map(read).collect())
}
