//! Keys: Ed25519. A secret key is a file of one line that its owner alone may read; a public key is a word that can be
//! sent in a letter, ours or that of the program minisign.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::str::FromStr;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

use crate::backends::files::{Files, ReadError};
use crate::keys::minisign;

const PUBLIC: &str = "warplap-key-ed25519:";
const SECRET: &str = "warplap-secret-ed25519:";
/// Nothing longer is a key.
const MAX_FILE: u64 = 4096;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// It is no key.
    #[error("this is no key: expected {PUBLIC} and 64 hexadecimal digits, or a public key of minisign (RW…)")]
    Form,
    /// Its file cannot be used.
    #[error("{path}: {why}")]
    File {
        /// The file.
        path: String,
        /// What is wrong, and what to do.
        why: String,
    },
}

/// Who signed: 32 bytes, written `warplap-key-ed25519:` and 64 digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Whether a signature of `message` is this key's.
    pub fn signed(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        let key = VerifyingKey::from_bytes(&self.0);
        key.is_ok_and(|key| key.verify_strict(message, &Signature::from_bytes(signature)).is_ok())
    }

    /// The origin of what its owner measured: 16 hexadecimal digits of the key's hash.
    pub fn origin(&self) -> String {
        hex(&self.hash())
    }

    /// The key as minisign takes it (`minisign -P`).
    pub fn minisign(&self) -> String {
        minisign::key_text(self.minisign_id(), &self.0)
    }

    /// The key's file as minisign takes it (`minisign -p`).
    pub fn minisign_file(&self) -> String {
        format!("untrusted comment: minisign public key {}\n{}\n", self.origin().to_uppercase(), self.minisign())
    }

    /// The 32 bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A key of 32 bytes; an error where they are none.
    pub fn of(bytes: [u8; 32]) -> Result<Self, KeyError> {
        // What is no point of the curve can sign nothing.
        VerifyingKey::from_bytes(&bytes).map(|_| PublicKey(bytes)).map_err(|_| KeyError::Form)
    }

    /// The id minisign knows it by, which it shows as the origin.
    pub(crate) fn minisign_id(&self) -> [u8; 8] {
        let mut id = self.hash();
        id.reverse();
        id
    }

    fn hash(&self) -> [u8; 8] {
        let mut first = [0; 8];
        first.copy_from_slice(&blake3::hash(&self.0).as_bytes()[..8]);
        first
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PUBLIC}{}", hex(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let own = text.trim().strip_prefix(PUBLIC).and_then(unhex::<32>);
        PublicKey::of(own.or_else(|| minisign::read_key(text)).ok_or(KeyError::Form)?)
    }
}

/// A key that signs. It is wiped from memory when it is dropped.
pub struct SecretKey(SigningKey);

impl SecretKey {
    /// A new key out of the system's randomness.
    pub fn generate() -> Result<Self, KeyError> {
        let mut bytes = [0; 32];
        let refused =
            |e: getrandom::Error| KeyError::File { path: "the system's randomness".into(), why: e.to_string() };
        getrandom::fill(&mut bytes).map_err(refused)?;
        Ok(SecretKey(SigningKey::from_bytes(&bytes)))
    }

    /// The key that tells others who signed.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// Writes it to a new file that its owner alone may read.
    pub fn write(&self, path: &Path) -> Result<(), KeyError> {
        let refused = |e: std::io::Error| KeyError::File {
            path: path.display().to_string(),
            why: format!("{e}: expected a new file in a folder that can be written"),
        };
        let text = format!("{SECRET}{}\n", hex(&self.0.to_bytes()));
        let mut file = Files::default().create(path).map_err(refused)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(refused)
    }

    /// Reads it. A file that anybody else may read or write is refused.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let bad = |why: String| KeyError::File { path: path.display().to_string(), why };
        let (bytes, meta) = Files::default().read_with(path, MAX_FILE).map_err(|e| match e {
            ReadError::Io(e) => bad(format!("{e}: expected the file of warplap store keygen")),
            ReadError::Bad(why) => bad(format!("{why}: expected a file of your own (chmod 600)")),
        })?;
        if let Some(mode) = shared(&meta) {
            return Err(bad(format!("others may use it (mode {mode:04o}): expected 0600 (chmod 600)")));
        }
        let text = String::from_utf8(bytes).unwrap_or_default();
        let bytes = text.trim().strip_prefix(SECRET).and_then(unhex::<32>);
        let bytes =
            bytes.ok_or_else(|| bad("it is no secret key: expected the file of warplap store keygen".into()))?;
        Ok(SecretKey(SigningKey::from_bytes(&bytes)))
    }

    /// Signs a message.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey of {}", self.public())
    }
}

/// The mode of a file that others than its owner may use.
#[cfg(unix)]
fn shared(meta: &std::fs::Metadata) -> Option<u32> {
    let mode = std::os::unix::fs::MetadataExt::mode(meta) & 0o7777;
    (mode & 0o077 != 0).then_some(mode)
}

#[cfg(not(unix))]
fn shared(_: &std::fs::Metadata) -> Option<u32> {
    None
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * n..2 * n + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_of_one_key_and_one_message() {
        let (one, other) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
        let signature = one.sign(b"message");
        assert!(one.public().signed(b"message", &signature));
        assert!(!other.public().signed(b"message", &signature));
        assert!(!one.public().signed(b"messagf", &signature));
        for bit in 0..512 {
            let mut bad = signature;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!one.public().signed(b"message", &bad), "bit {bit}");
        }
        assert_eq!(one.public().origin().len(), 16);
        assert_eq!(one.public().to_string().parse::<PublicKey>().unwrap(), one.public());
        for bad in ["", "warplap-key-ed25519:", "warplap-key-ed25519:zz", &"0".repeat(64)] {
            assert!(bad.parse::<PublicKey>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_secret_key_is_a_file_of_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let key = SecretKey::generate().unwrap();
        key.write(&path).unwrap();
        assert_eq!(SecretKey::read(&path).unwrap().public(), key.public());
        assert!(key.write(&path).is_err(), "a key that is there is never replaced");
        assert!(!format!("{key:?}").contains(&hex(&key.0.to_bytes())));
        #[cfg(unix)]
        {
            use std::os::unix::fs::{PermissionsExt, symlink};
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            for mode in [0o640, 0o604, 0o660] {
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
                assert!(SecretKey::read(&path).unwrap_err().to_string().contains("600"), "{mode:o}");
            }
            symlink(&path, dir.path().join("link")).unwrap();
            assert!(SecretKey::read(&dir.path().join("link")).unwrap_err().to_string().contains("symbolic link"));
        }
    }
}
