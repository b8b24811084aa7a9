//! A Key: what a Record is found by. One canonical text of problem, bucket, measuring policy and objective.
//!
//! The text is `op:fields;bucket=…,policy`, and `,objective=…` behind it where a race is not run for time.

use std::fmt;

/// What a Record is found by, apart from the device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The operation's name.
    pub op: String,
    /// What of the problem decides who wins.
    pub fields: String,
    /// The rounding from problem to key.
    pub bucket: String,
    /// How candidates are measured.
    pub policy: String,
    /// What they are raced for; nothing where that is time.
    pub objective: String,
    /// All of it in one canonical text.
    pub text: String,
}

const BUCKET: &str = ";bucket=";
const OBJECTIVE: &str = ",objective=";

impl Key {
    /// A key from its text, which need not be one that this program writes.
    pub fn new(op: &str, text: String) -> Self {
        let body = text.strip_prefix(op).and_then(|t| t.strip_prefix(':')).unwrap_or(&text);
        let (fields, how) = body.rsplit_once(BUCKET).unwrap_or((body, ""));
        let (how, objective) = how.split_once(OBJECTIVE).unwrap_or((how, ""));
        let (bucket, policy) = how.split_once(',').unwrap_or((how, ""));
        let [fields, bucket, policy, objective] = [fields, bucket, policy, objective].map(str::to_string);
        Key { op: op.to_string(), fields, bucket, policy, objective, text }
    }

    /// The key of a race for time, by what of the problem decides who wins.
    pub fn of(op: &str, fields: String, bucket: String, policy: String) -> Self {
        let text = format!("{op}:{fields}{BUCKET}{bucket},{policy}");
        Key { op: op.to_string(), fields, bucket, policy, objective: String::new(), text }
    }

    /// The key of the same problem raced for something else than time, by its word: who wins by energy and who wins by
    /// time are two answers to two questions.
    pub fn raced_for(mut self, objective: &str) -> Self {
        self.text = format!("{}{OBJECTIVE}{objective}", self.text);
        self.objective = objective.to_string();
        self
    }

    /// The file name of the key: 32 hexadecimal digits of the text's BLAKE3.
    pub fn hash(&self) -> String {
        blake3::hash(self.text.as_bytes()).to_hex()[..32].to_string()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_into_the_parts_it_was_written_from() {
        let text = "kernel:name=k,arguments=f32[9];bucket=exact,queue=stream,l2=hot,objective=energy";
        let key = Key::new("kernel", text.into());
        let parts = (&*key.fields, &*key.bucket, &*key.policy, &*key.objective);
        assert_eq!(parts, ("name=k,arguments=f32[9]", "exact", "queue=stream,l2=hot", "energy"));
        let foreign = Key::new("../x", "t".into());
        assert_eq!((&*foreign.fields, &*foreign.bucket, &*foreign.text), ("t", "", "t"));
    }
}
