//! A Key: what a Record is found by.

/// What a Record is found by, apart from the device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The operation's name.
    pub op: String,
    /// The canonical text.
    pub text: String,
}

impl Key {
    /// A key from its text.
    pub fn new(op: &str, text: String) -> Self {
        Key { op: op.to_string(), text }
    }

    /// The file name of the key: 32 hexadecimal digits of the text's BLAKE3.
    pub fn hash(&self) -> String {
        blake3::hash(self.text.as_bytes()).to_hex()[..32].to_string()
    }
}
