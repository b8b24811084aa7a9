//! A Key: what a Record is found by. Problem, bucket and measuring policy come in; one canonical text goes out.

use std::fmt;

use crate::bucket::Bucket;
use crate::measure::Policy;
use crate::op::Op;
use crate::problem::{Problem, escaped};

/// What a Record is found by, apart from the device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The operation's name.
    pub op: String,
    /// The canonical text: operation, fields, bucket, policy.
    pub text: String,
}

impl Key {
    /// A key from its text.
    pub fn new(op: &str, text: String) -> Self {
        Key { op: op.to_string(), text }
    }

    /// The key of a problem.
    pub fn of<O: Op>(problem: &O::Problem, bucket: &Bucket, policy: Policy) -> Self {
        let fields = problem.key_fields(bucket);
        Key::new(O::NAME, format!("{}:{fields};bucket={},{policy}", O::NAME, escaped(bucket.name())))
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
