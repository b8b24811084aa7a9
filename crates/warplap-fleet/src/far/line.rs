//! A line to the far side: questions come in from any thread, one thread of ours owns the connection, and answers go out
//! within a patience. It connects when it is first asked and hangs up when nobody asks for a while.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::address::Address;
use super::error::FarError;
use super::session::Session;

/// After so long without a question the connection is closed, or kept awake where it holds locks.
const IDLE: Duration = Duration::from_secs(8);

type Question = Box<dyn FnOnce(&mut Option<Session>, &Address) + Send>;

/// A line to one address.
pub(crate) struct Line {
    address: Arc<Address>,
    // With the process it belongs to: in a child made by fork there is no such thread.
    thread: Mutex<Option<(u32, Sender<Question>)>>,
    /// How much is held on the connection: it is not closed while there is anything.
    pub(crate) held: Arc<AtomicUsize>,
    /// Set where an answer came and whoever asked had gone.
    pub(crate) late: Arc<AtomicBool>,
}

impl Line {
    pub(crate) fn to(address: Address) -> Line {
        Line { address: Arc::new(address), thread: Mutex::default(), held: Arc::default(), late: Arc::default() }
    }

    /// Asks, and waits no longer than this for the answer. On a connection that turns out to be gone it is asked a second
    /// time, on a new one.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        patience: Duration,
        mut question: impl FnMut(&mut Session) -> Result<T, postgres::Error> + Send + 'static,
    ) -> Result<T, FarError> {
        let ((answer, heard), late) = (channel(), self.late.clone());
        self.send(Box::new(move |session, address| {
            let result = answered(session, address, &mut question);
            let is_answer = result.is_ok();
            if answer.send(result).is_err() && is_answer {
                late.store(true, Ordering::Release);
            }
        }));
        match heard.recv_timeout(patience) {
            Ok(answer) => answer,
            Err(_) => Err(FarError::Slow(patience)),
        }
    }

    /// Says something and waits for nothing.
    pub(crate) fn say(&self, mut saying: impl FnMut(&mut Session) -> Result<(), postgres::Error> + Send + 'static) {
        self.send(Box::new(move |session, _| {
            // On a new connection there would be nothing to say it of.
            if let Some(session) = session {
                let _ = saying(session);
            }
        }));
    }

    fn send(&self, question: Question) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let here = std::process::id();
        let question = match thread.as_ref().filter(|(pid, _)| *pid == here) {
            Some((_, line)) => match line.send(question) {
                Ok(()) => return,
                // The thread has hung up.
                Err(unsent) => unsent.0,
            },
            None => {
                // A parent's line is the parent's: nothing of it may be closed here.
                std::mem::forget(thread.take());
                question
            }
        };
        let (line, questions) = channel();
        let _ = line.send(question);
        let (address, held) = (self.address.clone(), self.held.clone());
        let begun = std::thread::Builder::new().name("warplap-far".into());
        if let Err(e) = begun.spawn(move || serve(&questions, &address, &held)) {
            tracing::debug!("no thread for the far side: {e}");
        }
        *thread = Some((here, line));
    }
}

fn answered<T>(
    session: &mut Option<Session>,
    address: &Address,
    question: &mut impl FnMut(&mut Session) -> Result<T, postgres::Error>,
) -> Result<T, FarError> {
    if session.as_ref().is_some_and(Session::is_closed) {
        *session = None;
    }
    let fresh = session.is_none();
    let mut open = match session.take() {
        Some(open) => open,
        None => Session::open(address)?,
    };
    let answer = question(&mut open);
    let gone = open.is_closed();
    if !gone {
        *session = Some(open);
    }
    match answer {
        Err(_) if gone && !fresh => answered(session, address, question),
        other => other.map_err(|e| FarError::of(&e)),
    }
}

fn serve(questions: &Receiver<Question>, address: &Address, held: &AtomicUsize) {
    let mut session = None;
    loop {
        match questions.recv_timeout(IDLE) {
            Ok(question) => question(&mut session, address),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) if held.load(Ordering::Acquire) == 0 => return,
            Err(RecvTimeoutError::Timeout) => {
                // The server frees what a silent session holds.
                let awake = session.as_mut().map(|open: &mut Session| open.run("select 1"));
                if !matches!(awake, Some(Ok(()))) {
                    session = None;
                }
            }
        }
    }
}
