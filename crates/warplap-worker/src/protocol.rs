//! The protocol: messages between a caller and its workers. A message is two lengths (4 bytes each, little end first),
//! a JSON text, and bytes that are no text (a compiled image).

use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use warplap_core::sandbox::{Passed, ProofStage, Refusal, SandboxRequest};

use crate::artifact::digest;

/// Longer messages are damage.
const LONGEST: u32 = 256 << 20;

/// What a worker is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Who it works for and with what.
    Setup(Setup),
    /// Let a candidate prove itself.
    Prove(SandboxRequest),
    /// Compile a source.
    Compile(CompileOrder),
}

/// Who a worker works for and with what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The caller's version: both sides must speak the same protocol.
    pub(crate) version: String,
    /// The kind of device.
    pub(crate) kind: String,
    /// The device to prove candidates on; `None`: it compiles only.
    pub(crate) ordinal: Option<i32>,
    /// The directory that holds `artifacts-v1`.
    pub(crate) artifacts: Option<PathBuf>,
}

impl Setup {
    /// To prove candidates on a device; `artifacts` is the directory that holds the folder of compiled kernels.
    pub fn prover(kind: &str, ordinal: i32, artifacts: Option<PathBuf>) -> Self {
        Setup { version: version(), kind: kind.into(), ordinal: Some(ordinal), artifacts }
    }

    /// To compile for a kind of device.
    pub fn compiler(kind: &str) -> Self {
        Setup { version: version(), kind: kind.into(), ordinal: None, artifacts: None }
    }
}

/// A source to compile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompileOrder {
    /// What its file would be called.
    pub name: String,
    /// The text.
    pub text: String,
    /// What it may include, by name.
    pub headers: Vec<(String, String)>,
    /// The compiler's options.
    pub options: Vec<String>,
}

impl CompileOrder {
    /// The name of its artifact: everything that decides the bytes, hashed. `compiler` says who compiles it, with
    /// version.
    pub fn digest(&self, compiler: &str) -> String {
        let headers = self.headers.iter().flat_map(|(name, text)| [&name[..], text]);
        let options = self.options.iter().map(String::as_str);
        digest([&self.name[..], &self.text, compiler].into_iter().chain(headers).chain(options))
    }
}

/// What a worker answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// It is set up.
    Ready,
    /// It cannot be.
    Refused(String),
    /// It is about to do this.
    Stage(ProofStage),
    /// What became of a candidate. `fatal`: why the worker cannot go on, if so.
    Done { outcome: Result<Passed, Refusal>, fatal: Option<String> },
    /// The compiler's log; the image comes with it.
    Compiled(String),
    /// The compiler said no.
    DoesNotCompile(String),
}

/// What both sides must be of.
pub(crate) fn version() -> String {
    env!("CARGO_PKG_VERSION").to_string()
}

/// Writes one message.
pub(crate) fn write(to: &mut impl Write, message: &impl Serialize, bytes: &[u8]) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let long = |len: usize| u32::try_from(len).ok().filter(|l| *l <= LONGEST).ok_or(io::ErrorKind::InvalidInput);
    let mut whole = Vec::with_capacity(8 + text.len() + bytes.len());
    whole.extend_from_slice(&long(text.len())?.to_le_bytes());
    whole.extend_from_slice(&long(bytes.len())?.to_le_bytes());
    whole.extend_from_slice(&text);
    whole.extend_from_slice(bytes);
    to.write_all(&whole)?;
    to.flush()
}

/// Reads one message and the bytes that came with it.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<(T, Vec<u8>)> {
    let mut lengths = [[0u8; 4]; 2];
    for length in &mut lengths {
        from.read_exact(length)?;
    }
    let [text, bytes] = lengths.map(u32::from_le_bytes);
    if text.max(bytes) > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message too long to be one"));
    }
    let (mut message, mut image) = (Vec::new(), Vec::new());
    // What is not there is not allocated for.
    for (part, len) in [(&mut message, text), (&mut image, bytes)] {
        if from.take(u64::from(len)).read_to_end(part)? < len as usize {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok((serde_json::from_slice(&message)?, image))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_their_bytes_come_back_in_order() {
        let mut pipe = Vec::new();
        write(&mut pipe, &Report::Compiled("log".into()), &[1, 2, 3]).unwrap();
        write(&mut pipe, &Report::Ready, &[]).unwrap();
        let mut from = &pipe[..];
        let (first, image): (Report, _) = read(&mut from).unwrap();
        assert!(matches!(first, Report::Compiled(log) if log == "log") && image == [1, 2, 3]);
        assert!(matches!(read::<Report>(&mut from).unwrap().0, Report::Ready));
        assert!(read::<Report>(&mut from).is_err());
    }

    #[test]
    fn no_damaged_message_panics_or_is_believed() {
        let mut whole = Vec::new();
        write(&mut whole, &Report::Compiled("log".into()), &[7; 9]).unwrap();
        for len in 0..whole.len() {
            assert!(read::<Report>(&mut &whole[..len]).is_err(), "{len}");
        }
        assert!(read::<Report>(&mut &[0xff; 64][..]).is_err());
        assert!(read::<Report>(&mut &[0; 64][..]).is_err());
    }
}
