//! Jobs and events: lines of JSON come in; what to tune for which class of devices, and what became of it, goes out.
//!
//! An engine takes job lines and gives event lines. It places jobs and repeats them; it keeps no truth. A job is done
//! when the store has a current edition of its key, so a job that runs twice harms nobody.

mod class;
mod event;
mod job;

use serde::{Deserialize, Serialize};
use warplap_core::measure::Policy;

pub use class::Class;
pub use event::{Event, State};
pub use job::{Job, JobPart};

/// The longest line that is read, in bytes: ten thousand trials of a share.
pub const MOST_LINE: usize = 1 << 22;

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

/// The number of a first try.
fn first() -> u32 {
    1
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

/// Reads a policy as it writes itself.
pub fn policy(text: &str) -> Result<Policy, LineError> {
    text.parse().map_err(|_| wrong("policy", text, "queue=stream|graph,cache=hot|cold,clock=use|back-to-back"))
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
    use warplap_core::split::{Part, Share};

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
        assert!(why.len() <= event::MOST_WHY + 3 && why.ends_with('…'));
    }
}
