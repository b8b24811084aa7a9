//! Compiled kernels on their way: those of winners go out with a signature of who compiled them, and come in where the
//! near store trusts that key. They are code: nothing else about them is believed.

use std::collections::BTreeSet;

use warplap_core::store::{PublicKey, SecretKey, Store};
use warplap_worker::artifact::Artifacts;

use super::sealed::{bytes, digits};
use super::session::Session;

/// The largest kernel that travels, in bytes.
const MOST: usize = 16 << 20;

/// Kernels asked for in one question.
const BATCH: usize = 64;

/// A compiled kernel under a signature.
pub(crate) struct Kernel {
    digest: String,
    origin: String,
    body: Vec<u8>,
    signature: String,
}

impl Kernel {
    /// Signs what is kept under a digest; nothing where it is not there or too large.
    pub(crate) fn seal(kept: &Artifacts, digest: &str, key: &SecretKey) -> Option<Kernel> {
        let body = kept.bytes(digest).filter(|body| body.len() <= MOST)?;
        let origin = key.public().origin();
        let signature = digits(&key.sign(message(digest, &origin, &body).as_bytes()));
        Some(Kernel { digest: digest.into(), origin, body, signature })
    }

    /// Whether a key of this origin has signed it.
    fn is_signed(&self, key: &PublicKey) -> bool {
        let message = message(&self.digest, &self.origin, &self.body);
        key.origin() == self.origin
            && bytes(&self.signature).is_some_and(|signature| key.signed(message.as_bytes(), &signature))
    }
}

fn message(digest: &str, origin: &str, body: &[u8]) -> String {
    format!("warplap artifact 1\n{digest}\n{origin}\n{}\n", blake3::hash(body).to_hex())
}

/// Those of some digests that an origin has not sent yet.
pub(crate) fn unsent(
    session: &mut Session,
    origin: &str,
    digests: &BTreeSet<String>,
) -> Result<Vec<String>, postgres::Error> {
    let asked: Vec<&String> = digests.iter().collect();
    let rows = session
        .rows("select digest from warplap.artifact where origin = $1 and digest = any($2)", &[&origin, &asked])?;
    let there: BTreeSet<String> = rows.iter().map(|row| row.get(0)).collect();
    Ok(digests.difference(&there).cloned().collect())
}

/// Sends kernels.
pub(crate) fn send(session: &mut Session, kernels: &[Kernel]) -> Result<(), postgres::Error> {
    const SQL: &str = "insert into warplap.artifact (digest, origin, body, signature) values ($1, $2, $3, $4) \
                       on conflict do nothing";
    for Kernel { digest, origin, body, signature } in kernels {
        session.rows(SQL, &[digest, origin, body, signature])?;
    }
    Ok(())
}

/// Takes over kernels that somebody whom the near store trusts has signed; how many came, and how many were left because
/// nobody had.
pub(crate) fn take(
    session: &mut Session,
    near: &Store,
    kept: &Artifacts,
    digests: &BTreeSet<String>,
) -> Result<(usize, usize), postgres::Error> {
    let missing: Vec<&String> = digests.iter().filter(|digest| kept.bytes(digest).is_none()).collect();
    let trusted = near.trusted().map(|trusted| trusted.trusted_keys()).unwrap_or_default();
    let origins: Vec<String> = trusted.iter().map(PublicKey::origin).collect();
    let mut taken = BTreeSet::new();
    for asked in missing.chunks(BATCH).filter(|_| !origins.is_empty()) {
        const SQL: &str = "select a.digest, a.origin, a.body, a.signature from warplap.artifact a \
                           join warplap.origin o on o.id = a.origin where a.digest = any($1) and a.origin = any($2) \
                           and o.admitted is not null and o.revoked is null";
        for row in session.rows(SQL, &[&asked, &origins])? {
            let kernel = Kernel { digest: row.get(0), origin: row.get(1), body: row.get(2), signature: row.get(3) };
            let signed = trusted.iter().any(|key| kernel.is_signed(key));
            match signed.then(|| kept.put_bytes(&kernel.digest, &kernel.body)) {
                Some(Ok(())) => drop(taken.insert(kernel.digest)),
                Some(Err(why)) => tracing::warn!("a compiled kernel of {} is not kept: {why}", kernel.origin),
                None => tracing::warn!("a compiled kernel of {}: its signature does not fit", kernel.origin),
            }
        }
    }
    Ok((taken.len(), missing.len() - taken.len()))
}
