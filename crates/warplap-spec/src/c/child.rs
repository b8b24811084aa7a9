//! Child processes with a deadline: a command comes in; how it ended and what it said go out.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How a child ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// `None` when it was stopped at its deadline.
    pub(crate) status: Option<ExitStatus>,
    /// What it wrote to stdout and stderr.
    pub(crate) said: String,
}

/// The most a child may say, and how much of its beginning and of its end is read.
const MOST: u64 = 64 << 20;
const READ: u64 = 128 << 10;

/// Runs a command; its output goes through the file `log`, so that no pipe can fill up. At the deadline it is ended
/// with everyone it started.
pub(crate) fn run(command: &mut Command, log: &Path, deadline: Duration) -> io::Result<Ended> {
    let file = File::create(log)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file.try_clone()?).process_group(0);
    let mut child = command.spawn()?;
    let started = Instant::now();
    let mut pause = Duration::from_micros(200);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        let talkative = file.metadata().is_ok_and(|meta| meta.len() > MOST);
        if started.elapsed() > deadline || talkative {
            end(&mut child)?;
            if talkative {
                return Err(io::Error::other(format!("it printed more than {} MB", MOST >> 20)));
            }
            break None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(4));
    };
    let said = ends_of(&File::open(log)?)?;
    let _ = std::fs::remove_file(log);
    Ok(Ended { status, said })
}

fn end(child: &mut Child) -> io::Result<()> {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    child.kill()?;
    child.wait().map(drop)
}

/// What a file holds, or its beginning and its end.
fn ends_of(file: &File) -> io::Result<String> {
    let len = file.metadata()?.len();
    let part = |from: u64, bytes: u64| {
        let mut part = vec![0; bytes as usize];
        file.read_exact_at(&mut part, from).map(|()| part)
    };
    let mut all = part(0, len.min(READ))?;
    if len > READ {
        let rest = (len - READ).min(READ);
        all.extend(part(len - rest, rest)?);
    }
    Ok(String::from_utf8_lossy(&all).into_owned())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, seconds: f64) -> io::Result<Ended> {
        let folder = tempfile::tempdir()?;
        run(Command::new("sh").args(["-c", script]), &folder.path().join("log"), Duration::from_secs_f64(seconds))
    }

    #[test]
    fn what_is_said_is_read_up_to_a_bound_and_a_child_that_holds_the_file_keeps_nobody_waiting() {
        let ended = shell("echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo last", 20.0).unwrap();
        assert!(ended.said.starts_with("first\n") && ended.said.ends_with("last\n") && ended.said.len() < 300_000);
        let started = Instant::now();
        assert!(shell("sleep 30 & sleep 30", 0.2).unwrap().status.is_none());
        assert!(started.elapsed() < Duration::from_secs(5));
        assert!(shell("exec yes", 60.0).unwrap_err().to_string().contains("more than 64 MB"));
    }
}
