//! Who holds a lock: what a holder wrote into its file comes in; a process that can be named, and whether it is stopped,
//! goes out.

use std::fmt;
use std::fs;

use crate::io::sanitize_text::shown;
use crate::locks::lease::named;

/// A process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pid: u32,
    // Whether it is a process of this machine.
    here: bool,
}

impl Holder {
    /// Who wrote a lock file's text; `None` where nobody did.
    pub(crate) fn read(text: &str) -> Option<Holder> {
        // The name of somebody who died is left over: whoever has the lock now did not write its own.
        let name = named(text).filter(|name| !name.here || name.lives())?;
        Some(Holder { pid: name.pid, here: name.here })
    }

    /// Whether it is stopped, as Ctrl-Z and debuggers do.
    pub fn is_stopped(&self) -> bool {
        self.here && matches!(status(self.pid, "State").as_deref(), Some(s) if s.starts_with(['T', 't']))
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.here {
            return write!(f, "process {} of another machine or container", self.pid);
        }
        if self.pid == std::process::id() {
            return f.write_str("another thread of this process");
        }
        write!(f, "process {}", self.pid)?;
        if let Some(name) = status(self.pid, "Name") {
            write!(f, " ({name})")?;
        }
        if self.is_stopped() { f.write_str(", which is stopped") } else { Ok(()) }
    }
}

/// What the system says of a process, in letters that a terminal may be sent.
fn status(pid: u32, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(shown(line.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::lease::{boot, own_name};

    #[test]
    fn holders_are_named_as_far_as_they_are_known() {
        let own = Holder::read(&own_name()).unwrap();
        assert_eq!(own.to_string(), "another thread of this process");
        assert!(!own.is_stopped());
        let far = Holder::read("elsewhere/pid:[1] 17 4\nabc\n").unwrap();
        assert_eq!(far.to_string(), "process 17 of another machine or container");
        assert!(!far.is_stopped());
        let dead = format!("{} 4194303 77\n", boot());
        for nobody in ["", "x", "boot seven 1", "boot 7", &dead] {
            assert_eq!(Holder::read(nobody), None, "{nobody}");
        }
    }
}
