//! A guest: a process that runs code nobody vouches for, spoken to in plain bytes. Bytes and open files go in, bytes
//! come back before a deadline; whatever it does, it is stopped between two turns and ended as a whole.

use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::Signal;

use crate::process::{Gone, Process, Program};

/// How long an answer is looked for after the deadline.
const LATE: Duration = Duration::from_millis(5);

/// Open files that go with one message.
const FILES: usize = 8;

/// A process that runs somebody else's code. Dropping it ends it, with everyone of its group.
pub struct ChildProcess {
    process: Process,
}

impl ChildProcess {
    /// Starts a program. Its standard input is a socket to the caller; what it prints is remembered in short.
    pub fn start(program: &Program) -> io::Result<Self> {
        Ok(ChildProcess { process: Process::start(program)? })
    }

    /// Sends bytes, and up to eight open files that come with the first of them.
    pub fn send(&mut self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), Gone> {
        self.try_send(bytes, files).map_err(|e| self.process.gone(&e))
    }

    fn try_send(&mut self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        if files.is_empty() {
            return (&self.process.socket).write_all(bytes);
        }
        if files.len() > FILES || bytes.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        beside.push(SendAncillaryMessage::ScmRights(files));
        let sent = sendmsg(&self.process.socket, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL)?;
        (&self.process.socket).write_all(&bytes[sent..])
    }

    /// Fills a buffer with what it says before a deadline.
    pub fn receive(&mut self, buffer: &mut [u8], deadline: Instant) -> Result<(), Gone> {
        let late = |e: &io::Error| matches!(e.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
        let heard = match self.process.until(deadline).read_exact(buffer) {
            // Whoever was stopped himself while he waited (a terminal's Ctrl-Z) finds the answer there.
            Err(e) if late(&e) => self.process.until(Instant::now() + LATE).read_exact(buffer),
            heard => heard,
        };
        heard.map_err(|e| self.process.gone(&e))
    }

    /// Stops it between two turns: what it left running must not cost others their time.
    pub fn freeze(&self) {
        self.process.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.process.signal(Signal::CONT);
    }

    /// The last thing it printed, in short.
    pub fn last_words(&self) -> Option<String> {
        self.process.last_words()
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Ends it and everyone of its group, and waits until it is gone.
    pub fn kill(&mut self) {
        self.process.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> ChildProcess {
        let arguments = vec!["-c".into(), script.into()];
        ChildProcess::start(&Program { path: "/bin/sh".into(), arguments, environment: Vec::new() }).unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn what_it_started_ends_with_it_also_where_it_has_ended_before() {
        for script in ["sleep 60 & printf '%09d' $! >&0; wait", "sleep 60 & printf '%09d' $! >&0"] {
            let mut guest = shell(script);
            let mut number = [0; 9];
            guest.receive(&mut number, soon()).unwrap();
            let started: u32 = String::from_utf8_lossy(&number).parse().unwrap();
            std::thread::sleep(Duration::from_millis(50));
            guest.kill();
            let status = || std::fs::read_to_string(format!("/proc/{started}/status")).unwrap_or_default();
            let until = soon();
            while status().contains("State:") && !status().contains("State:\tZ") && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(!status().contains("State:\tS"), "{script}: {}", status());
        }
    }

    #[test]
    fn one_that_is_stopped_goes_on_where_it_was_and_silence_ends_at_the_deadline() {
        let mut guest = shell("read line <&0; echo $line >&0; read line <&0; echo >&0; read line <&0; kill -STOP $$");
        guest.freeze();
        guest.send(b"well\n", &[]).unwrap();
        let mut said = [0; 5];
        assert_eq!(guest.receive(&mut said, Instant::now() + Duration::from_millis(100)), Err(Gone::Silent));
        guest.thaw();
        guest.receive(&mut said, soon()).unwrap();
        assert_eq!(&said, b"well\n");
        guest.send(b"\n", &[]).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        // It has answered before a deadline that has passed meanwhile.
        guest.receive(&mut said[..1], Instant::now() - Duration::from_millis(10)).unwrap();
        guest.send(b"\n", &[]).unwrap();
        assert_eq!(guest.receive(&mut said, Instant::now() + Duration::from_millis(100)), Err(Gone::Silent));
    }

    #[test]
    fn what_it_prints_is_remembered_in_short_and_without_control_characters() {
        let mut guest = shell("yes | head -c 9000000; printf 'la\\033[31mst' >&2; exit 3");
        let ended = guest.receive(&mut [0], soon()).unwrap_err();
        let Gone::Ended(how) = ended else { panic!("{ended:?}") };
        assert!(how.contains("exit code 3"), "{how}");
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(guest.last_words().as_deref(), Some("la[31mst"));
    }
}
