//! One connection: an address comes in; a client goes out that remembers what it has prepared, and what never changes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use postgres::config::SslMode;
use postgres::types::ToSql;
use postgres::{Client, NoTls, Row, Statement, Transaction};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;
use warplap_core::store::PublicKey;

use super::address::Address;
use super::error::FarError;

/// A connection and what is prepared on it.
pub struct Session {
    client: Client,
    prepared: HashMap<&'static str, Statement>,
    devices: HashMap<String, i32>,
    keys: HashMap<String, String>,
}

impl Session {
    /// Connects.
    pub fn open(address: &Address) -> Result<Session, FarError> {
        let down = |e: postgres::Error| FarError::of(&e);
        let client = match address.config.get_ssl_mode() {
            SslMode::Disable => address.config.connect(NoTls).map_err(down)?,
            _ => address.config.connect(MakeRustlsConnect::new(trusting(address)?)).map_err(down)?,
        };
        Ok(Session { client, prepared: HashMap::new(), devices: HashMap::new(), keys: HashMap::new() })
    }

    /// Connects, for somebody who waits no longer than this: a server may take a connection and say nothing.
    pub fn open_within(address: &Address, patience: Duration) -> Result<Session, FarError> {
        let ((opened, opening), address) = (channel(), address.clone());
        let thread = std::thread::Builder::new().name("warplap-connect".into());
        let begun = thread.spawn(move || drop(opened.send(Session::open(&address))));
        begun.map_err(|e| FarError::Down(format!("there is no thread to connect on: {e}")))?;
        opening.recv_timeout(patience).unwrap_or(Err(FarError::Slow(patience)))
    }

    /// Whether the connection is gone.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// The rows of a query, which is prepared once for each connection.
    pub fn rows(&mut self, sql: &'static str, with: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, postgres::Error> {
        let statement = match self.prepared.get(sql) {
            Some(statement) => statement.clone(),
            None => {
                let statement = self.client.prepare(sql)?;
                self.prepared.insert(sql, statement.clone());
                statement
            }
        };
        self.client.query(&statement, with)
    }

    /// The number of a device in this database. It is asked for once.
    pub fn device(&mut self, slug: &str) -> Result<Option<i32>, postgres::Error> {
        if let Some(id) = self.devices.get(slug) {
            return Ok(Some(*id));
        }
        let result =
            self.rows("select id from warplap.device where slug = $1", &[&slug])?.first().map(|row| row.get(0));
        if let Some(id) = result {
            self.devices.insert(slug.into(), id);
        }
        Ok(result)
    }

    /// The public key of an origin, as the tables have it. One whose hash is the origin is asked for once.
    pub fn key_of(&mut self, origin: &str) -> Result<Option<String>, postgres::Error> {
        if let Some(key) = self.keys.get(origin) {
            return Ok(Some(key.clone()));
        }
        let rows = self.rows("select key from warplap.origin where id = $1", &[&origin])?;
        let result: Option<String> = rows.first().map(|row| row.get(0));
        let fits = |key: &&String| key.parse().is_ok_and(|key: PublicKey| key.origin() == origin);
        if let Some(key) = result.as_ref().filter(fits) {
            self.keys.insert(origin.into(), key.clone());
        }
        Ok(result)
    }

    /// Commands that give nothing back.
    pub fn run(&mut self, sql: &str) -> Result<(), postgres::Error> {
        self.client.batch_execute(sql)
    }

    /// A transaction.
    pub fn begin(&mut self) -> Result<Transaction<'_>, postgres::Error> {
        self.client.transaction()
    }

    /// A transaction that reads, and sees one moment.
    pub fn moment(&mut self) -> Result<Transaction<'_>, postgres::Error> {
        use postgres::IsolationLevel::RepeatableRead;
        self.client.build_transaction().isolation_level(RepeatableRead).read_only(true).start()
    }
}

/// Encryption with a server whose name an authority has vouched for.
fn trusting(address: &Address) -> Result<ClientConfig, FarError> {
    let mut roots = RootCertStore::empty();
    let bad = |why: String| FarError::Down(why);
    match &address.authorities {
        Some(path) => {
            let refused = |e: &dyn std::fmt::Display| {
                bad(format!("sslrootcert {}: {e}: expected a file of certificates (PEM)", path.display()))
            };
            for certificate in CertificateDer::pem_file_iter(path).map_err(|e| refused(&e))? {
                roots.add(certificate.map_err(|e| refused(&e))?).map_err(|e| refused(&e))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(bad("no authority is known that could vouch for the server: name a file with sslrootcert".into()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|e| bad(e.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
