//! A job: one key to tune for one class of devices, or a part of one.

use serde::{Deserialize, Serialize};
use warplap_core::bucket::Bucket;
use warplap_core::candidate::Candidate;
use warplap_core::measure::Policy;
use warplap_core::split::{Gathered, Part, Share};

use super::{LineError, line, name, policy, read, wrong};

/// The most candidates of finals.
const MOST_FINALISTS: usize = 64;
/// The most cards that a job names.
const MOST_CARDS: usize = 1024;
/// The longest budget of a job, in seconds.
const MOST_BUDGET: f64 = 86_400.0;

/// One key to tune for one class of devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Its name in events.
    pub id: String,
    /// The operation.
    pub op: String,
    /// The problem in its one text form.
    pub problem: String,
    /// How candidates are measured, as [`Policy`] writes itself.
    pub policy: String,
    /// The rounding from problem to key.
    pub bucket: String,
    /// The class of devices: the folder name, `Fingerprint::slug`.
    pub device: String,
    /// Its versions: `Fingerprint::soft_id`.
    pub soft: String,
    /// Seconds.
    pub budget: f64,
    /// The search's name.
    pub search: String,
    /// The how manieth try it is.
    #[serde(default = "super::first")]
    pub attempt: u32,
    /// The cards it may run on, as [`super::Class::seat`] names them; any of its class where none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<String>,
    /// What of its key it does, where the key's space is split over cards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Box<JobPart>>,
}

/// What a job of a split space does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobPart {
    /// Says what the card can do.
    Ceilings,
    /// Races one share of the space, with the anchors.
    Share(Share),
    /// Races the best of all shares together.
    Finals(Vec<Candidate>),
    /// Keeps what all cards found.
    Keep(Box<Gathered>),
}

impl JobPart {
    /// What is to be raced, if anything.
    pub fn race(&self) -> Option<Part> {
        match self {
            JobPart::Share(share) => Some(Part::Share(*share)),
            JobPart::Finals(who) => Some(Part::Finals(who.clone())),
            JobPart::Ceilings | JobPart::Keep(_) => None,
        }
    }

    fn check(&self) -> Result<(), LineError> {
        match self {
            JobPart::Share(share) if !share.is_sound() => {
                Err(wrong("part", &format!("share {} of {}", share.nth, share.of), "a share below their number"))
            }
            JobPart::Finals(who) if who.is_empty() || who.len() > MOST_FINALISTS => {
                Err(wrong("part", &format!("finals of {}", who.len()), "1 to 64 candidates"))
            }
            _ => Ok(()),
        }
    }
}

impl Job {
    /// Reads a line.
    pub fn read(line: &str) -> Result<Job, LineError> {
        let job: Job = read(line, "job")?;
        job.check()?;
        Ok(job)
    }

    /// The line of it.
    pub fn line(&self) -> String {
        line(self)
    }

    fn check(&self) -> Result<(), LineError> {
        name("id", &self.id, 128)?;
        name("op", &self.op, 64)?;
        name("device", &self.device, 64)?;
        name("soft", &self.soft, 64)?;
        name("search", &self.search, 64)?;
        if !(self.budget > 0.0 && self.budget <= MOST_BUDGET) {
            return Err(wrong("budget", &self.budget.to_string(), "seconds, more than 0 and at most 86400"));
        }
        if self.cards.len() > MOST_CARDS {
            return Err(wrong("cards", &self.cards.len().to_string(), "at most 1024 names"));
        }
        self.cards.iter().try_for_each(|card| name("cards", card, 256))?;
        self.part.as_deref().map_or(Ok(()), JobPart::check)?;
        self.policy()?;
        self.bucket()?;
        Ok(())
    }

    /// The measuring policy.
    pub fn policy(&self) -> Result<Policy, LineError> {
        policy(&self.policy)
    }

    /// The bucket.
    pub fn bucket(&self) -> Result<Bucket, LineError> {
        Bucket::named(&self.bucket).map_err(|_| wrong("bucket", &self.bucket, "changing, exact or pow2"))
    }
}
