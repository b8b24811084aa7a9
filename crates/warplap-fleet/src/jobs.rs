//! Jobs and events: lines of JSON come in; what to tune for which class of devices, and what became of it, goes out.
//!
//! An engine takes job lines and gives event lines. It places jobs and repeats them; it keeps no truth. A job is done
//! when the store has a current edition of its key, so a job that runs twice harms nobody.

use serde::{Deserialize, Serialize};
use warplap_core::bucket::Bucket;
use warplap_core::candidate::Candidate;
use warplap_core::measure::{CacheState, Clock, Policy, Queueing};
use warplap_core::roofline::Ceilings;
use warplap_core::split::{Gathered, Heat, Part, Share};

/// The longest line that is read, in bytes: ten thousand trials of a share.
pub const MOST_LINE: usize = 1 << 22;
/// The most candidates of finals.
const MOST_FINALISTS: usize = 64;
/// The most cards that a job names.
const MOST_CARDS: usize = 1024;
/// The longest reason that is kept, in bytes.
const MOST_WHY: usize = 2000;
/// The longest budget of a job, in seconds.
const MOST_BUDGET: f64 = 86_400.0;

/// Why a line is no job or no event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// It is not JSON of the right form.
    #[error("not a {what} line: {why}")]
    Form {
        /// What was expected.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// It is too long.
    #[error("a line of {0} bytes: expected at most {MOST_LINE}")]
    Long(usize),
    /// A field holds what cannot be.
    #[error("{field} is '{value}': expected {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it holds.
        value: String,
        /// What was expected.
        expected: &'static str,
    },
}

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
    #[serde(default = "first")]
    pub attempt: u32,
    /// The cards it may run on, as [`Class::seat`] names them; any of its class where none is named.
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

fn first() -> u32 {
    1
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

/// Reads a policy as it writes itself.
pub fn policy(text: &str) -> Result<Policy, LineError> {
    let all = [Queueing::Stream, Queueing::Graph].into_iter().flat_map(|queueing| {
        [CacheState::Hot, CacheState::Cold].into_iter().flat_map(move |cache| {
            [Clock::Use, Clock::BackToBack].into_iter().map(move |clock| Policy { queueing, cache, clock })
        })
    });
    let mut all = all.filter(|policy| policy.to_string() == text);
    all.next().ok_or_else(|| wrong("policy", text, "queue=stream|graph,cache=hot|cold,clock=use|back-to-back"))
}

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Somebody works on it.
    Begun,
    /// The store has its answer.
    Done,
    /// Whoever worked on it is gone; it will be tried again.
    Lost,
    /// It will not be tried again.
    Failed,
    /// This is a device of another class.
    Refused,
    /// Nothing about a job: the worker is there.
    Alive,
}

impl State {
    /// Whether nothing more will be heard of the job from who says it.
    pub fn is_last(self) -> bool {
        matches!(self, State::Done | State::Failed | State::Refused)
    }
}

/// What became of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// The job; empty where a worker only says that it is there.
    pub id: String,
    /// What it says.
    pub state: State,
    /// The machine.
    #[serde(default)]
    pub node: String,
    /// The how manieth try.
    #[serde(default = "first")]
    pub attempt: u32,
    /// The reason, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Seconds it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Who won.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub winner: Option<String>,
    /// The winner's time in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_us: Option<f64>,
    /// Whether nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_store: Option<bool>,
    /// The class of the device that says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// When, in seconds of the machine's clock since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<f64>,
    /// What its card can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceilings: Option<Box<Ceilings>>,
    /// What its card saw of a part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heat: Option<Box<Heat>>,
}

impl Event {
    /// An event with nothing but its state.
    pub fn new(id: &str, state: State, node: &str, attempt: u32) -> Event {
        let (id, node) = (id.to_string(), node.to_string());
        let (why, seconds, winner, median_us, from_store, device) = (None, None, None, None, None, None);
        let (at, ceilings, heat) = (None, None, None);
        Event { id, state, node, attempt, why, seconds, winner, median_us, from_store, device, at, ceilings, heat }
    }

    /// The same with a reason.
    pub fn because(mut self, why: impl ToString) -> Event {
        let mut why = why.to_string();
        if why.len() > MOST_WHY {
            let end = (0..=MOST_WHY).rev().find(|at| why.is_char_boundary(*at)).unwrap_or(0);
            why.truncate(end);
            why.push('…');
        }
        self.why = Some(why);
        self
    }

    /// Reads a line.
    pub fn read(line: &str) -> Result<Event, LineError> {
        read(line, "event")
    }

    /// The line of it.
    pub fn line(&self) -> String {
        line(self)
    }
}

/// A class of devices as an engine found it, with the machines that have one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// The folder name, `Fingerprint::slug`.
    pub device: String,
    /// The versions, `Fingerprint::soft_id`.
    pub soft: String,
    /// `cpu`, `cuda`.
    pub kind: String,
    /// How its devices measure unless somebody says otherwise.
    pub policy: String,
    /// The machine.
    #[serde(default)]
    pub node: String,
    /// The device's name on that machine: `cpu`, `cuda:0`.
    #[serde(default)]
    pub name: String,
    /// Which card it is, whoever asks: a GPU's own name, or `cpu`.
    #[serde(default)]
    pub card: String,
}

impl Class {
    /// Reads a line.
    pub fn read(line: &str) -> Result<Class, LineError> {
        let class: Class = read(line, "class")?;
        name("device", &class.device, 64)?;
        name("soft", &class.soft, 64)?;
        policy(&class.policy)?;
        Ok(class)
    }

    /// The line of it.
    pub fn line(&self) -> String {
        line(self)
    }

    /// Whether a job is for it.
    pub fn suits(&self, job: &Job) -> bool {
        let here = || job.cards.is_empty() || job.cards.contains(&self.seat());
        self.device == job.device && self.soft == job.soft && here()
    }

    /// The card's name in the whole fleet.
    pub fn seat(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.:".contains(c) { c } else { '-' };
        format!("{}:{}", self.node, self.card).chars().map(plain).collect()
    }
}

fn read<'l, T: Deserialize<'l>>(line: &'l str, what: &'static str) -> Result<T, LineError> {
    if line.len() > MOST_LINE {
        return Err(LineError::Long(line.len()));
    }
    serde_json::from_str(line).map_err(|e| LineError::Form { what, why: e.to_string() })
}

fn line(of: &impl Serialize) -> String {
    // Nothing in these types can fail to be written.
    serde_json::to_string(of).unwrap_or_default()
}

fn name(field: &'static str, value: &str, most: usize) -> Result<(), LineError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if value.is_empty() || value.len() > most || !value.chars().all(plain) {
        let shown: String = value.chars().take(64).collect();
        return Err(wrong(field, &shown, "a short name of letters, digits and -_.:"));
    }
    Ok(())
}

fn wrong(field: &'static str, value: &str, expected: &'static str) -> LineError {
    LineError::Field { field, value: value.to_string(), expected }
}

#[cfg(test)]
pub(crate) fn example(id: &str) -> Job {
    Job {
        id: id.into(),
        op: "gemm".into(),
        problem: "gemm:m=8,n=8,k=8,dtype=f32".into(),
        policy: Policy::default().to_string(),
        bucket: "exact".into(),
        device: "xeon-12345678".into(),
        soft: "0123456789abcdef".into(),
        budget: 0.5,
        search: "auto".into(),
        attempt: 1,
        cards: Vec::new(),
        part: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_and_an_event_are_read_as_they_were_written() {
        let job = example("a1");
        assert_eq!(Job::read(&job.line()), Ok(job.clone()));
        assert_eq!(job.policy(), Ok(Policy::default()));
        let mut event = Event::new("a1", State::Failed, "n1", 3).because("no");
        event.seconds = Some(0.25);
        assert_eq!(Event::read(&event.line()), Ok(event.clone()));
        assert!(event.line().contains(r#""state":"failed""#), "{}", event.line());
        let short = Event::read(r#"{"id":"x","state":"begun"}"#).unwrap();
        assert_eq!((short.attempt, short.why), (1, None));
    }

    #[test]
    fn nonsense_is_refused_by_the_name_of_its_field() {
        let with = |field: &str, value: serde_json::Value| {
            let mut job = serde_json::to_value(example("a")).unwrap();
            job[field] = value;
            Job::read(&job.to_string()).unwrap_err().to_string()
        };
        for (field, value) in [
            ("id", "".into()),
            ("id", "../x".into()),
            ("device", "a b".into()),
            ("soft", "x".repeat(65).into()),
            ("budget", 0.into()),
            ("budget", 1e9.into()),
            ("policy", "queue=fast".into()),
            ("bucket", "round".into()),
            ("search", "$(x)".into()),
        ] {
            let said = with(field, value);
            assert!(said.starts_with(field) && said.contains("expected"), "{said}");
        }
        assert!(with("more", 1.into()).contains("unknown field"));
        for line in ["", "{}", "[]", "null", "{\"id\":1}", &format!("{{\"id\":\"{}\"}}", "x".repeat(MOST_LINE))] {
            assert!(Job::read(line).is_err() && Event::read(line).is_err() && Class::read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_job_of_a_part_says_which_and_for_which_cards() {
        let plain = example("a").line();
        assert!(!plain.contains("part") && !plain.contains("cards"), "{plain}");
        let with = |part: &str| Job::read(&plain.replace(r#""attempt":1"#, &format!(r#""attempt":1,{part}"#)));
        let job = with(r#""part":{"share":{"nth":1,"of":4}},"cards":["n1:cuda-0"]"#).unwrap();
        assert_eq!(job.part.as_ref().unwrap().race(), Some(Part::Share(Share { nth: 1, of: 4 })));
        assert_eq!(Job::read(&job.line()), Ok(job.clone()));
        let class = |card: &str| Class {
            device: job.device.clone(),
            soft: job.soft.clone(),
            kind: "cuda".into(),
            policy: job.policy.clone(),
            node: "n1".into(),
            name: "cuda:0".into(),
            card: card.into(),
        };
        assert!(class("cuda-0").suits(&job) && !class("cuda-1").suits(&job) && class("x").suits(&example("a")));
        assert_eq!(with(r#""part":"ceilings""#).unwrap().part.unwrap().race(), None);
        for part in [r#"{"share":{"nth":4,"of":4}}"#, r#"{"finals":[]}"#, r#"{"share":{"nth":0,"of":0}}"#] {
            let said = with(&format!(r#""part":{part}"#)).unwrap_err().to_string();
            assert!(said.starts_with("part") && said.contains("expected"), "{said}");
        }
        assert!(with(r#""cards":["a b"]"#).unwrap_err().to_string().starts_with("cards"));
    }

    #[test]
    fn a_long_reason_is_cut_between_letters() {
        let why = Event::new("a", State::Failed, "", 1).because("ü".repeat(3000)).why.unwrap();
        assert!(why.len() <= MOST_WHY + 3 && why.ends_with('…'));
    }
}
