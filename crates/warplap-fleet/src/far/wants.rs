//! What is wanted: keys that were missed come in; jobs to do, and what became of them, go out.

use serde::Serialize;
use warplap_core::store::Missed;

use super::session::Session;
use super::tables::device_id;

/// A key that fails so often, on two nodes or more, is left alone.
pub const TRIES: i32 = 3;

/// A key that somebody wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wanted {
    /// The device's folder name.
    pub device: String,
    /// The operation.
    pub op: String,
    /// The key's text.
    pub key: String,
    /// The key's hash.
    pub hash: String,
    /// The problem, in problem syntax.
    pub problem: String,
    /// How often it was asked for.
    pub asked: i64,
    /// How often it failed.
    pub failed: i32,
    /// Why it failed last.
    pub why: Option<String>,
    /// Whether it failed too often to be tried again.
    pub given_up: bool,
    /// How many have tuned it by now.
    pub editions: i64,
}

/// Adds keys to those that are wanted, or counts them once more.
pub fn add(session: &mut Session, missed: &[Missed]) -> Result<(), postgres::Error> {
    let mut all = session.begin()?;
    for one in missed {
        let hard = serde_json::to_string(&one.device).unwrap_or_default();
        let device = device_id(&mut all, &one.device_slug(), &hard)?;
        all.execute(
            "insert into warplap.want as w (device, hash, op, key, problem) values ($1, $2, $3, $4, $5) \
             on conflict (device, hash) do update set asked = w.asked + 1, last = now() \
             where w.last < now() - interval '1 minute'",
            &[&device, &one.key().hash(), &one.op, &one.key, &one.problem],
        )?;
    }
    all.commit()
}

/// Everything that is wanted, the most wanted first.
pub fn all(session: &mut Session, device: Option<&str>) -> Result<Vec<Wanted>, postgres::Error> {
    const SQL: &str = "select d.slug, w.op, w.key, w.hash, w.problem, w.asked, w.failed, w.why, \
         w.failed >= 3 and cardinality(w.nodes) >= 2, \
         (select count(*) from warplap.edition e where e.device = w.device and e.hash = w.hash) \
         from warplap.want w join warplap.device d on d.id = w.device \
         where $1::text is null or d.slug = $1 order by w.asked desc, d.slug, w.op, w.hash";
    let read = |row: &postgres::Row| Wanted {
        device: row.get(0),
        op: row.get(1),
        key: row.get(2),
        hash: row.get(3),
        problem: row.get(4),
        asked: row.get(5),
        failed: row.get(6),
        why: row.get(7),
        given_up: row.get(8),
        editions: row.get(9),
    };
    Ok(session.rows(SQL, &[&device])?.iter().map(read).collect())
}

/// Remembers that a key failed on a node, and why.
pub fn failed(session: &mut Session, device: &str, hash: &str, node: &str, why: &str) -> Result<(), postgres::Error> {
    const SQL: &str = "update warplap.want w set failed = w.failed + 1, why = left($4, 1000), nodes = \
         case when $3 = any(w.nodes) then w.nodes else w.nodes || $3 end \
         from warplap.device d where d.id = w.device and d.slug = $1 and w.hash = $2";
    session.rows(SQL, &[&device, &hash, &node, &why]).map(drop)
}
