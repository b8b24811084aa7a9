//! Passwords: whom to connect to comes in; the password that libpq would have found (`PGPASSWORD`, the user's password
//! file) goes out. The client crate reads neither.

use std::path::{Path, PathBuf};

use postgres::Config;
use postgres::config::Host;
use warplap_core::user_files;

/// The largest password file that is read.
const MOST: u64 = 1 << 20;

/// The password for a connection, where one is kept.
pub(crate) fn find(config: &Config) -> Option<String> {
    if let Ok(password) = std::env::var("PGPASSWORD") {
        return Some(password);
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".pgpass"));
    let path = std::env::var_os("PGPASSFILE").map(PathBuf::from).or_else(home)?;
    if !is_private(&path) {
        return None;
    }
    let text = user_files::text(&path, MOST).ok()?;
    let host = match config.get_hosts().first()? {
        Host::Tcp(name) => name.clone(),
        Host::Unix(_) => "localhost".into(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    let wanted = [host.as_str(), &port, config.get_dbname().unwrap_or(""), config.get_user().unwrap_or("")];
    text.lines().find_map(|line| matching(line, &wanted))
}

/// The password of a line that fits.
fn matching(line: &str, wanted: &[&str; 4]) -> Option<String> {
    let fields = split(line);
    if line.starts_with('#') || fields.len() != 5 {
        return None;
    }
    let fits = fields.iter().zip(wanted).all(|(field, want)| field == "*" || field == want);
    fits.then(|| fields[4].clone())
}

/// The fields of a line; a backslash takes the next letter as it is.
fn split(line: &str) -> Vec<String> {
    let (mut fields, mut letters) = (vec![String::new()], line.chars());
    while let Some(letter) = letters.next() {
        let Some(last) = fields.last_mut() else { break };
        match letter {
            '\\' => last.extend(letters.next()),
            ':' => fields.push(String::new()),
            other => last.push(other),
        }
    }
    fields
}

/// As libpq has it: a file that others may read is not used.
fn is_private(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let Ok(meta) = std::fs::metadata(path) else { return false };
        if meta.mode() & 0o077 != 0 {
            tracing::warn!("{} is not read: others may (mode {:04o}; chmod 600)", path.display(), meta.mode() & 0o7777);
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let wanted = ["db", "5432", "tuned", "ann"];
        assert_eq!(matching("db:5432:*:ann:p\\:w\\\\x", &wanted), Some("p:w\\x".into()));
        for other in ["db:5433:*:ann:x", "# db:5432:*:ann:x", "db:5432:*:ann", "", ":::::"] {
            assert_eq!(matching(other, &wanted), None, "{other}");
        }
    }
}
