//! The post: what is new near is sent to the far side, by a thread of its own and until it has arrived. How far it came
//! is a mark of the near store, which is kept with it: a process that ends in between loses nothing, the next one goes on.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use warplap_core::key::Key;
use warplap_core::record::{Record, TuningRun};
use warplap_core::store::{Checked, Mark, Missed, SecretKey, Store};
use warplap_worker::artifact::Artifacts;

use super::address::Address;
use super::error::FarError;
use super::kernels::{self, Kernel};
use super::line::Line;
use super::rest::{self, Rest};
use super::sealed::Sealed;
use super::silence::Silence;
use super::tables;
use super::wants;

/// Editions sent in one transaction.
const BATCH: usize = 64;

/// How long one batch may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is remembered of how far the post came, among the store's own notes.
const OWNER: &str = "store";
const NOTE: &str = "fleet-published";

/// Keys that were missed wait here until they are sent; more are not remembered.
const MOST_MISSED: usize = 10_000;

/// The post of one process to one far store.
pub(crate) struct Post {
    near: Store,
    line: Line,
    title: String,
    key: Option<SecretKey>,
    /// Where compiled kernels are kept.
    directory: Option<PathBuf>,
    rest: Rest,
    silence: Arc<Silence>,
    state: Mutex<PostState>,
    changed: Condvar,
}

#[derive(Default)]
struct PostState {
    /// Whose thread is running: none in a child made by fork.
    pid: u32,
    /// How often there was news, and how much of it has been seen to.
    news: u64,
    done: u64,
    /// How often the far side has said its first word.
    reached: u64,
    missed: HashMap<String, Missed>,
}

impl Post {
    pub(crate) fn new(
        near: Store,
        address: &Address,
        key: Option<SecretKey>,
        directory: Option<PathBuf>,
        silence: Arc<Silence>,
    ) -> Arc<Post> {
        Arc::new(Post {
            near,
            line: Line::to(address.clone()),
            title: address.title().into(),
            key,
            directory,
            rest: Rest::beside(&silence),
            silence,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// There is something to send.
    pub(crate) fn news(self: &Arc<Post>) {
        // Without a key nothing can be published.
        if self.key.is_none() {
            return;
        }
        let mut state = self.state();
        state.news += 1;
        self.changed.notify_all();
        if state.pid != std::process::id() {
            state.pid = std::process::id();
            let post = self.clone();
            if let Err(e) = std::thread::Builder::new().name("warplap-post".into()).spawn(move || post.carry()) {
                tracing::debug!("no thread for the post: {e}");
                state.pid = 0;
            }
        }
    }

    /// A key that was missed.
    pub(crate) fn missed(self: &Arc<Post>, missed: Missed) {
        {
            let mut state = self.state();
            if state.missed.len() >= MOST_MISSED || self.key.is_none() {
                return;
            }
            state.missed.insert(format!("{}\n{}", missed.device_slug(), missed.key), missed);
        }
        self.news();
    }

    /// Waits until all that was there when it was called has arrived; `false` where it has not yet. A far side that has
    /// not said its first word is waited for as long as anybody else does, whatever the patience.
    pub(crate) fn arrived(self: &Arc<Post>, wait: Duration) -> bool {
        if self.key.is_none() {
            return false;
        }
        self.news();
        let began = Instant::now();
        let mut state = self.state();
        let (wanted, reached) = (state.news, state.reached);
        while state.done < wanted {
            let patience = if state.reached == reached { wait.min(rest::PATIENCE) } else { wait };
            let left = patience.saturating_sub(began.elapsed());
            if self.rest.check().is_err() {
                return false;
            }
            if left.is_zero() {
                drop(state);
                if patience < wait {
                    let silent = Err::<(), _>(FarError::Slow(patience));
                    let _ = self.rest.hear((&self.title, "publishing"), began, silent);
                }
                return false;
            }
            state = self
                .changed
                .wait_timeout(state, left.min(Duration::from_millis(50)))
                .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
        true
    }

    /// Sends what is new while there is any, and goes when there was none for a while.
    fn carry(self: Arc<Post>) {
        loop {
            let mut state = self.state();
            let until = Instant::now() + Duration::from_secs(5);
            while state.news == state.done {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    state.pid = 0;
                    return;
                }
                state = self.changed.wait_timeout(state, left).map_or_else(|p| p.into_inner().0, |(state, _)| state);
            }
            let news = state.news;
            drop(state);
            if let Some(left) = self.rest.left() {
                std::thread::sleep(left.min(Duration::from_secs(1)));
                continue;
            }
            let began = Instant::now();
            let sent = self.send();
            let sent = self.rest.hear((&self.title, "publishing"), began, sent);
            if sent.is_ok() {
                self.state().done = news;
            }
            self.changed.notify_all();
        }
    }

    /// Sends everything since the mark, and moves the mark.
    pub(crate) fn send(&self) -> Result<u64, FarError> {
        let Some(key) = &self.key else { return Ok(0) };
        let (schema, far) = self.line.ask(PATIENCE, tables::about)?;
        self.silence.end();
        self.state().reached += 1;
        if schema != tables::SCHEMA {
            return Err(FarError::Schema(format!(
                "its tables are of version {schema}, this program knows {}",
                tables::SCHEMA
            )));
        }
        let note = self.near.note(OWNER, NOTE).unwrap_or_default();
        let mark = note["mark"].as_str().filter(|_| note["far"] == far.as_str()).map(|mark| Mark(mark.into()));
        let near = |e: warplap_core::store::StoreError| FarError::Refused(format!("the near store: {e}"));
        let (entries, upto) = self.near.since(mark.as_ref()).map_err(near)?;
        let mut new = 0;
        for batch in entries.chunks(BATCH) {
            let checked: Vec<Checked> = batch.iter().map(|entry| self.near.check(entry)).collect();
            let editions: Vec<_> = checked.iter().flat_map(|checked| self.sealed(checked, key)).collect();
            if editions.is_empty() {
                continue;
            }
            // First the kernels: whoever hears of a winner finds them there.
            self.send_kernels(&checked, key)?;
            new += self.line.ask(PATIENCE, move |session| tables::publish(session, &editions))?;
        }
        self.near.put_note(OWNER, NOTE, &json!({"far": far, "mark": upto.0})).map_err(near)?;
        let missed: Vec<Missed> = self.state().missed.values().cloned().collect();
        if !missed.is_empty() {
            let sent = missed.clone();
            self.line.ask(PATIENCE, move |session| wants::add(session, &sent))?;
            let mut state = self.state();
            for missed in missed {
                state.missed.remove(&format!("{}\n{}", missed.device_slug(), missed.key));
            }
        }
        Ok(new)
    }

    /// Sends the compiled kernels of this store's own winners and ties, those that are not there yet.
    fn send_kernels(&self, checked: &[Checked], key: &SecretKey) -> Result<(), FarError> {
        let own = checked.iter().flat_map(|checked| self.own(checked)).map(|(_, edition)| edition);
        let digests: BTreeSet<String> = own.flat_map(|edition| edition.artifacts.iter().cloned()).collect();
        let Some(directory) = self.directory.as_ref().filter(|_| !digests.is_empty()) else { return Ok(()) };
        let kept = match Artifacts::open(directory) {
            Ok(kept) => kept,
            Err(why) => {
                tracing::warn!("compiled kernels are not published: {why}");
                return Ok(());
            }
        };
        let origin = key.public().origin();
        let unsent = self.line.ask(PATIENCE, move |session| kernels::unsent(session, &origin, &digests))?;
        for digest in unsent {
            if let Some(kernel) = Kernel::seal(&kept, &digest, key) {
                self.line.ask(PATIENCE, move |session| kernels::send(session, std::slice::from_ref(&kernel)))?;
            }
        }
        Ok(())
    }

    /// The editions of a record that are this store's own.
    fn own<'r>(&'r self, checked: &'r Checked) -> impl Iterator<Item = (&'r Record, &'r TuningRun)> {
        let record = match checked {
            Checked::Whole(record) => Some(&**record),
            _ => None,
        };
        let own = |e: &&TuningRun| e.origin == self.near.id();
        record.into_iter().flat_map(move |r| r.editions.iter().filter(own).map(move |e| (r, e)))
    }

    /// Who measured here says so: the editions of a record that are this store's own, sealed.
    fn sealed(&self, checked: &Checked, key: &SecretKey) -> Vec<(Sealed, Vec<u8>, String)> {
        let sealed = |(record, edition): (&Record, &TuningRun)| match Sealed::seal(record, edition, key) {
            Ok((sealed, body)) => Some((sealed, body, serde_json::to_string(&record.device).unwrap_or_default())),
            Err(why) => {
                tracing::warn!("{}: it is not published: {why}", Key::new(&record.op, record.key.clone()));
                None
            }
        };
        self.own(checked).filter_map(sealed).collect()
    }

    fn state(&self) -> MutexGuard<'_, PostState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
