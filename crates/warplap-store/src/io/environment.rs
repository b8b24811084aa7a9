//! The environment: a variable's name comes in; its value goes out, unless this program runs with rights that its user
//! does not have. Then the user would choose what is loaded and run with them.

use std::ffi::OsString;
use std::sync::OnceLock;

/// A variable of the environment; none in a program with borrowed rights, and none where it is empty.
pub fn var(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty() && is_ours())
}

/// As [`var`], where it is text of more than spaces.
pub fn text(name: &str) -> Option<String> {
    var(name)?.into_string().ok().filter(|value| !value.trim().is_empty())
}

/// Whether the environment may be listened to: not in a set-user-id or set-group-id program, nor in one whose file
/// carries capabilities.
pub fn is_ours() -> bool {
    static OURS: OnceLock<bool> = OnceLock::new();
    // A program that gives its rights away later was started with them all the same.
    *OURS.get_or_init(|| same_ids() && !is_secure())
}

#[cfg(unix)]
fn same_ids() -> bool {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    getuid() == geteuid() && getgid() == getegid()
}

#[cfg(not(unix))]
fn same_ids() -> bool {
    true
}

/// What the kernel tells a program of itself when it starts it: that it is to be careful (`AT_SECURE`).
#[cfg(target_os = "linux")]
fn is_secure() -> bool {
    const AT_SECURE: usize = 23;
    const WORD: usize = size_of::<usize>();
    let facts = match std::fs::read("/proc/self/auxv") {
        Ok(facts) => facts,
        // The kernel hides a program with borrowed rights from the user who started it, and with it this file.
        Err(e) => return e.kind() == std::io::ErrorKind::PermissionDenied,
    };
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, usize::from_ne_bytes);
    facts.chunks_exact(2 * WORD).any(|fact| word(&fact[..WORD]) == AT_SECURE && word(&fact[WORD..]) != 0)
}

#[cfg(not(target_os = "linux"))]
fn is_secure() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_listens_to_its_environment() {
        assert!(is_ours() && var("PATH").is_some() && var("WARPLAP_NOBODY_SETS_THIS").is_none());
    }
}
