//! The far side of a store, in PostgreSQL: the core's [`Far`] over a line for questions, one for flights and the post.

pub mod address;
pub mod cards;
mod error;
mod flights;
pub mod follow;
mod kernels;
mod line;
mod passwords;
mod post;
mod rest;
pub mod roster;
pub mod sealed;
pub mod session;
mod silence;
pub mod tables;
pub mod wants;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warplap_core::fingerprint::{Fingerprint, soft_id};
use warplap_core::key::Key;
use warplap_core::record::Record;
use warplap_core::store::{ASKING, Far, Flight, Missed, Right, SecretKey, Store};

pub use address::Address;
pub use error::FarError;
pub use session::Session;

use flights::Flights;
use line::Line;
use post::Post;
use rest::{PATIENCE, Rest};
use silence::Silence;

/// The file of a near store's key, beside its records.
pub const KEY_FILE: &str = "fleet.key";

/// The server ends a session that is silent for so many seconds, with all that it holds; ours speaks more often.
const SILENT: u32 = 25;

/// A far store in PostgreSQL. Nothing is connected before it is first asked.
pub struct Postgres {
    address: Address,
    near: Store,
    /// For questions and flights: whoever was given a turn on it gets an answer on it too.
    line: Arc<Line>,
    flights: Flights,
    post: Arc<Post>,
    asking: Rest,
    turns: Rest,
    /// Under which name this store publishes; empty for one that never joined.
    own: String,
}

impl Postgres {
    /// The far side of a near store, whose key lies in `directory` where it has joined.
    pub fn behind(near: Store, address: Address, directory: Option<PathBuf>) -> Postgres {
        let key = directory.as_ref().map(|directory| directory.join(KEY_FILE)).filter(|path| path.exists());
        let key = key
            .and_then(|path| SecretKey::read(&path).inspect_err(|e| tracing::warn!("nothing is published: {e}")).ok());
        let own = key.as_ref().map(|key| key.public().origin()).unwrap_or_default();
        let line = Arc::new(Line::to(address.ending_when_idle(SILENT)));
        let silence = Arc::new(Silence::of(near.clone(), address.title(), line.late.clone()));
        Postgres {
            flights: Flights::on(line.clone()),
            line,
            post: Post::new(near.clone(), &address, key, directory, silence.clone()),
            asking: Rest::beside(&silence),
            turns: Rest::beside(&silence),
            near,
            address,
            own,
        }
    }

    /// Sends what is new near, now; how many editions were new to the fleet.
    pub fn send(&self) -> Result<u64, FarError> {
        self.post.send()
    }
}

impl Far for Postgres {
    fn title(&self) -> String {
        self.address.title().into()
    }

    fn fetch(&self, key: &Key, device: &Fingerprint, wait: Duration) -> Option<Record> {
        // Whoever has time was given a turn by the same server.
        let rest = if wait > ASKING { &self.turns } else { &self.asking };
        rest.check().ok()?;
        let (wait, began) = (wait.min(PATIENCE), Instant::now());
        let (slug, hash, own) = (device.slug(), key.hash(), self.own.clone());
        // What was found beside the same libraries of the host program, and what was found without any.
        let softs = BTreeSet::from([device.soft_id(), soft_id(&device.versions())]);
        let asked = self.line.ask(wait, move |session| {
            let answers = softs.iter().map(|soft| tables::answers(session, &slug, soft, &hash, &own));
            Ok(answers.collect::<Result<Vec<_>, _>>()?.concat())
        });
        let claimed = rest.hear((self.address.title(), "asking"), began, asked).ok()?;
        // The first question of a process is a good moment to send what an earlier one could not.
        self.post.news();
        let mut result: Option<Record> = None;
        for claim in claimed {
            match claim.open() {
                Ok(record) if record.key == key.text && record.device == device.hard => {
                    result = Some(match result {
                        Some(before) => before.merge(record),
                        None => record,
                    });
                }
                Ok(_) => tracing::warn!("{key}: an answer of {} is of another key", claim.sealed.origin),
                Err(why) => tracing::warn!("{key}: an answer of {} is not taken: {why}", claim.sealed.origin),
            }
        }
        result
    }

    fn flight(&self, key: &Key, device: &Fingerprint, wait: Duration) -> Right {
        if self.turns.check().is_err() {
            return Right::Unknown;
        }
        let (number, began) = (Flights::number(&device.slug(), &device.soft_id(), &key.hash()), Instant::now());
        match self.flights.take(number, wait) {
            Ok(Some(guard)) => Right::Ours(Flight::over(guard)),
            Ok(None) => Right::Theirs,
            Err(e) => {
                let _ = self.turns.hear::<()>((self.address.title(), "taking turns"), began, Err(e));
                Right::Unknown
            }
        }
    }

    fn news(&self) {
        self.post.news();
    }

    fn publish(&self, wait: Duration) {
        self.post.arrived(wait);
    }

    fn want(&self, missed: Missed) {
        self.post.missed(missed);
    }
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Postgres({}, near {})", self.address.title(), self.near.place())
    }
}
