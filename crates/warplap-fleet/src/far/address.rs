//! Addresses: a URL comes in; whom to connect to, how, and where the near store is go out.
//!
//! `postgres://user@host:port/database`, with the parameters of libpq that the client knows, and `near` (the directory
//! of the near store) and `sslrootcert` (a file of authorities).

use std::path::{Path, PathBuf};
use std::time::Duration;

use postgres::Config;
use postgres::config::{Host, SslMode};
use warplap_core::store::decoded;

use super::passwords;

/// How long connecting may take where the URL does not say.
const CONNECTING: Duration = Duration::from_secs(1);

/// How long a session keeps a lock that its holder's machine cannot be asked about.
const FREED: &str = "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 \
                     -c idle_in_transaction_session_timeout=10s -c statement_timeout=30s -c search_path=pg_catalog";

/// Whom to connect to, and how.
#[derive(Clone)]
pub struct Address {
    /// For the client.
    pub config: Config,
    /// The near store's directory, where the URL names one.
    pub near: Option<PathBuf>,
    /// A file of authorities that may vouch for the server; else those of the system.
    pub authorities: Option<PathBuf>,
    title: String,
}

impl Address {
    /// Reads a URL; what is wrong with it, for people and without its password.
    pub fn read(url: &str) -> Result<Address, String> {
        let (body, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut near, mut authorities, mut rest) = (None, None, Vec::new());
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("near", path)) => near = Some(directory(path)?),
                Some(("sslrootcert", path)) => authorities = Some(directory(path)?),
                // Whoever encrypts holds the server to its name and its authority here.
                Some(("sslmode", "verify-full" | "verify-ca")) => rest.push("sslmode=require"),
                _ => rest.push(part),
            }
        }
        let plain = if rest.is_empty() { body.to_string() } else { format!("{body}?{}", rest.join("&")) };
        let mut config: Config = plain.parse().map_err(|e: postgres::Error| {
            format!("the URL cannot be read: {}: expected postgres://user@host/database", cause(&e))
        })?;
        if config.get_hosts().is_empty() {
            return Err("the URL names no host: expected postgres://user@host/database".into());
        }
        let said = rest.iter().any(|part| part.starts_with("sslmode="));
        if !said && !config.get_hosts().iter().all(is_near) {
            // `prefer` would fall back to plain text without a word.
            config.ssl_mode(SslMode::Require);
        } else if !said {
            config.ssl_mode(SslMode::Disable);
        } else if config.get_ssl_mode() == SslMode::Prefer {
            return Err("sslmode=prefer would send passwords in plain text where the server has no TLS: expected \
                        sslmode=require or disable"
                .into());
        }
        if config.get_user().is_none() {
            let named = std::env::var("PGUSER").or_else(|_| std::env::var("USER"));
            config.user(named.as_deref().unwrap_or("postgres"));
        }
        if config.get_dbname().is_none() {
            let user = config.get_user().unwrap_or("postgres").to_string();
            config.dbname(&user);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECTING);
        }
        let title = titled(&config);
        if config.get_password().is_none()
            && let Some(password) = passwords::find(&config)
        {
            config.password(password);
        }
        config.tcp_user_timeout(Duration::from_secs(5)).keepalives_idle(Duration::from_secs(5));
        config.application_name("warplap").options(FREED);
        Ok(Address { config, near, authorities, title })
    }

    /// Where it is, for people: no password in it.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The same for sessions that end when they are idle for this long, locks and all.
    pub fn ending_when_idle(&self, seconds: u32) -> Address {
        let mut other = self.clone();
        other.config.options(&format!("{FREED} -c idle_session_timeout={seconds}s"));
        other
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Address({})", self.title)
    }
}

/// What an error says, with what is behind it.
pub(crate) fn cause(error: &postgres::Error) -> String {
    let mut text = error.to_string();
    let mut behind: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(error) = behind {
        text = format!("{text}: {error}");
        behind = error.source();
    }
    text
}

fn directory(text: &str) -> Result<PathBuf, String> {
    let path =
        decoded(text).ok_or_else(|| format!("'{text}': expected a path, two hexadecimal digits behind each %"))?;
    if path.is_empty() { Err("an empty path: expected a directory or a file".into()) } else { Ok(path.into()) }
}

/// Whether nobody is on the way to a host.
fn is_near(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        Host::Unix(_) => true,
    }
}

fn titled(config: &Config) -> String {
    let named = |host: &Host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => Path::display(path).to_string(),
    };
    let hosts: Vec<String> = config.get_hosts().iter().map(named).collect();
    let ports: Vec<String> = config.get_ports().iter().map(ToString::to_string).collect();
    let ports = if ports.is_empty() { String::new() } else { format!(":{}", ports.join(",")) };
    let (user, database) = (config.get_user().unwrap_or(""), config.get_dbname().unwrap_or(""));
    format!("postgres://{user}@{}{ports}/{database}", hosts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_and_its_password_is_never_shown() {
        let address = Address::read("postgres://ann:secret@db.example:5433/tuned?near=/a%20b&sslrootcert=/ca").unwrap();
        assert_eq!(address.title(), "postgres://ann@db.example:5433/tuned");
        assert!(!format!("{address:?}").contains("secret"));
        assert_eq!(address.near, Some("/a b".into()));
        assert_eq!(address.authorities, Some("/ca".into()));
        assert_eq!(address.config.get_ssl_mode(), SslMode::Require);
    }

    #[test]
    fn plain_text_leaves_the_machine_only_where_the_url_says_so() {
        let mode = |url: &str| Address::read(url).unwrap().config.get_ssl_mode();
        assert_eq!(mode("postgres://a@127.0.0.1/d"), SslMode::Disable);
        assert_eq!(mode("postgres://a@%2Frun%2Fpostgresql/d"), SslMode::Disable);
        assert_eq!(mode("postgres://a@localhost,far.example/d"), SslMode::Require);
        assert_eq!(mode("postgres://a@far.example/d?sslmode=disable"), SslMode::Disable);
        for checked in ["verify-full", "verify-ca", "require"] {
            assert_eq!(mode(&format!("postgres://a@localhost/d?sslmode={checked}")), SslMode::Require);
        }
        assert!(Address::read("postgres://a@far.example/d?sslmode=prefer").unwrap_err().contains("require"));
    }

    #[test]
    fn what_cannot_be_read_says_what_was_expected() {
        for bad in ["postgres://", "postgres://a@h/d?near=", "postgres://a@h/d?near=%zz", "postgres://a@h:x/d"] {
            assert!(Address::read(bad).unwrap_err().contains("expected"), "{bad}");
        }
    }
}
