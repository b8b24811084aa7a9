//! Child processes with a deadline: a command comes in; how it ended and what it said go out.

use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How a child ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// `None` when it was stopped at its deadline.
    pub(crate) status: Option<ExitStatus>,
    /// What it wrote to stdout and stderr.
    pub(crate) said: String,
}

/// Runs a command; its output goes through the file `log`, so that no pipe can fill up.
pub(crate) fn run(command: &mut Command, log: &Path, deadline: Duration) -> std::io::Result<Ended> {
    let file = File::create(log)?;
    let mut child = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()?;
    let started = Instant::now();
    let mut pause = Duration::from_micros(200);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if started.elapsed() > deadline {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(4));
    };
    let said = String::from_utf8_lossy(&std::fs::read(log)?).into_owned();
    let _ = std::fs::remove_file(log);
    Ok(Ended { status, said })
}

/// How a process ended, in a few words.
pub(crate) fn words(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let name = match signal {
            4 => " (illegal instruction)",
            6 => " (abort)",
            7 | 10 => " (bus error)",
            8 => " (arithmetic error)",
            9 => " (killed)",
            11 => " (segmentation fault)",
            _ => "",
        };
        return format!("ended by signal {signal}{name}");
    }
    match status.code() {
        Some(code) => format!("ended its process with exit code {code}"),
        None => "ended".into(),
    }
}
