//! What is asked of the tables: keys, editions and marks come in; sealed editions, marks and counts go out. One function a
//! question, each on a connection that is open.

use postgres::Row;
use postgres::types::ToSql;
use warplap_core::store::PublicKey;

use super::sealed::Sealed;
use super::session::Session;

/// The version of the tables this program knows.
pub const SCHEMA: i32 = 1;

/// The answers of others that are taken for one key.
const BEST: i64 = 3;

const SEALED: &str =
    "d.slug, e.op, e.hash, e.soft, e.origin, e.tuned_at, e.grade, e.answer, e.digest, e.signature, o.key";

/// What is asked for a key: its device's number, its versions, its hash, an origin that is left out, how many.
pub const ANSWERS: &str = "select origin, op, tuned_at, grade, answer, digest, signature from warplap.edition \
     where device = $1 and soft = $2 and hash = $3 and origin <> $4 and counts \
     order by grade desc, tuned_at desc limit $5";

/// A sealed edition and the key of its origin, as the tables have them: nothing is believed yet.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The edition.
    pub sealed: Sealed,
    /// The key that is said to have signed it.
    pub key: String,
    /// The compressed body, where it was asked for.
    pub body: Option<Vec<u8>>,
}

impl Claimed {
    fn of(row: &Row) -> Claimed {
        let sealed = Sealed {
            device: row.get(0),
            op: row.get(1),
            hash: row.get(2),
            soft: row.get(3),
            origin: row.get(4),
            tuned_at: row.get(5),
            grade: row.get(6),
            answer: row.get(7),
            digest: row.get(8),
            signature: row.get(9),
        };
        Claimed { sealed, key: row.get(10), body: row.try_get(11).ok() }
    }

    /// The record, once everything that is claimed holds.
    pub fn open(&self) -> Result<warplap_core::record::Record, String> {
        let key: PublicKey = self.key.parse().map_err(|e: warplap_core::store::KeyError| e.to_string())?;
        let short = self.sealed.open(&key)?;
        match &self.body {
            Some(body) => self.sealed.open_body(body),
            None => Ok(short),
        }
    }
}

/// The version of the tables, and the id of the fleet.
pub fn about(session: &mut Session) -> Result<(i32, String), postgres::Error> {
    let rows = session.rows("select schema, id from warplap.about", &[])?;
    Ok(rows.first().map_or((0, String::new()), |row| (row.get(0), row.get(1))))
}

/// The best answers for a key by others than `own`. One table is read: what a device's number and an origin's key are
/// never changes, and the session remembers it.
pub fn answers(
    session: &mut Session,
    device: &str,
    soft: &str,
    hash: &str,
    own: &str,
) -> Result<Vec<Claimed>, postgres::Error> {
    let Some(id) = session.device(device)? else { return Ok(Vec::new()) };
    let rows = session.rows(ANSWERS, &[&id, &soft, &hash, &own, &BEST])?;
    let mut result = Vec::with_capacity(rows.len());
    for row in rows {
        let origin: String = row.get(0);
        let Some(key) = session.key_of(&origin)? else { continue };
        let sealed = Sealed {
            device: device.into(),
            op: row.get(1),
            hash: hash.into(),
            soft: soft.into(),
            origin,
            tuned_at: row.get(2),
            grade: row.get(3),
            answer: row.get(4),
            digest: row.get(5),
            signature: row.get(6),
        };
        result.push(Claimed { sealed, key, body: None });
    }
    Ok(result)
}

/// Where a follower stands: the fleet, the server behind it and the last transaction it has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Followed {
    /// The fleet's id and its server's: a restored copy counts transactions anew.
    pub far: String,
    /// All before this transaction is known.
    pub upto: String,
}

/// The editions of others since a mark (all without one, or where the mark is of another server), for one device or all,
/// with bodies or without. None is left out: whoever had not committed yet is told the next time.
pub fn since(
    session: &mut Session,
    device: Option<&str>,
    own: &str,
    mark: &Followed,
    bodies: bool,
) -> Result<(Vec<Claimed>, Followed), postgres::Error> {
    let mut moment = session.moment()?;
    let here = moment.query_one(
        "select a.id || '/' || s.system_identifier::text, pg_snapshot_xmin(pg_current_snapshot())::text \
         from warplap.about a, pg_control_system() s",
        &[],
    )?;
    let now = Followed { far: here.get(0), upto: here.get(1) };
    let from = if mark.far == now.far { mark.upto.as_str() } else { "0" };
    let body = if bodies { ", e.body" } else { "" };
    let only = if device.is_some() { "d.slug = $4" } else { "$4::text is null" };
    let sql = format!(
        "select {SEALED}{body} from warplap.edition e join warplap.device d on d.id = e.device \
         join warplap.origin o on o.id = e.origin \
         where e.xid >= $1::text::xid8 and e.xid < $2::text::xid8 and e.origin <> $3 and {only} and e.counts"
    );
    let rows = moment.query(&sql, &[&from, &now.upto, &own, &device])?;
    moment.commit()?;
    Ok((rows.iter().map(Claimed::of).collect(), now))
}

/// Publishes editions in one transaction: each is put where there is none of its origin, or an older one. How many were
/// new.
pub fn publish(session: &mut Session, editions: &[(Sealed, Vec<u8>, String)]) -> Result<u64, postgres::Error> {
    let mut all = session.begin()?;
    let mut new = 0;
    for (sealed, body, hard) in editions {
        let device = device_id(&mut all, &sealed.device, hard)?;
        new += all.execute(
            "insert into warplap.edition as e \
             (device, soft, hash, origin, op, tuned_at, grade, answer, digest, body, signature) \
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
             on conflict (device, soft, hash, origin) do update set op = excluded.op, tuned_at = excluded.tuned_at, \
             grade = excluded.grade, answer = excluded.answer, digest = excluded.digest, body = excluded.body, \
             signature = excluded.signature where e.tuned_at < excluded.tuned_at \
             or (e.tuned_at = excluded.tuned_at and e.digest <> excluded.digest)",
            &[
                &device,
                &sealed.soft,
                &sealed.hash,
                &sealed.origin,
                &sealed.op,
                &sealed.tuned_at,
                &sealed.grade,
                &sealed.answer,
                &sealed.digest,
                body,
                &sealed.signature,
            ],
        )?;
    }
    all.commit()?;
    Ok(new)
}

/// The number of a device, which is made where there is none.
pub(crate) fn device_id(all: &mut postgres::Transaction<'_>, slug: &str, hard: &str) -> Result<i32, postgres::Error> {
    let find = "select id from warplap.device where slug = $1";
    if let Some(row) = all.query_opt(find, &[&slug])? {
        return Ok(row.get(0));
    }
    all.execute("insert into warplap.device (slug, hard) values ($1, $2) on conflict do nothing", &[&slug, &hard])?;
    Ok(all.query_one(find, &[&slug])?.get(0))
}

/// How many rows a query of one number counts.
pub fn count(session: &mut Session, sql: &'static str, with: &[&(dyn ToSql + Sync)]) -> Result<i64, postgres::Error> {
    Ok(session.rows(sql, with)?.first().map_or(0, |row| row.get(0)))
}
