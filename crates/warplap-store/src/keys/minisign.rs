//! Signatures beside a file, in the form of the program minisign: bytes and a key come in, four lines of text go out, and
//! back. What is signed is the file's BLAKE2b hash; a second signature covers the first and a comment, so that the
//! comment can be believed without the file.
//!
//! ```text
//! untrusted comment: …
//! <"ED", the key's id (8 bytes), the signature (64 bytes), in base64>
//! trusted comment: …
//! <the signature of signature and comment (64 bytes), in base64>
//! ```
//! A file of signatures may hold several of them, one behind the other; minisign itself looks at the first.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use blake2::{Blake2b512, Digest};

use crate::io::sanitize_text::is_unseen;
use crate::keys::signing::{PublicKey, SecretKey};

const UNTRUSTED: &str = "untrusted comment: ";
const TRUSTED: &str = "trusted comment: ";
const HASHED: &[u8] = b"ED";
const UNHASHED: &[u8] = b"Ed";
const KEY: &[u8] = b"Ed";
/// The largest file of signatures that is read.
pub const MAX_SIGNATURES: u64 = 64 << 10;
/// The most signatures in one file.
const MOST: usize = 16;
const MAX_COMMENT: usize = 2048;

/// Why a text holds no signatures.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no signature of minisign's form: {0}")]
pub struct NoSignature(String);

/// The hash of a file that a signature is of.
pub struct Hashed([u8; 64]);

impl Hashed {
    /// Hashes a file's bytes.
    pub fn of(bytes: &[u8]) -> Hashed {
        Hashed(Blake2b512::digest(bytes).into())
    }
}

/// A signature beside a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinisignSignature {
    id: [u8; 8],
    signature: [u8; 64],
    comment: String,
    global: [u8; 64],
}

impl MinisignSignature {
    /// Signs a file, and a comment of one line with it.
    pub fn new(key: &SecretKey, file: &Hashed, comment: &str) -> MinisignSignature {
        let comment: String = comment.chars().map(|c| if is_unseen(c) { '?' } else { c }).take(MAX_COMMENT).collect();
        let signature = key.sign(&file.0);
        let global = key.sign(&[&signature[..], comment.as_bytes()].concat());
        MinisignSignature { id: key.public().minisign_id(), signature, comment, global }
    }

    /// Whether a key made it for this file, comment included.
    pub fn is_of(&self, key: &PublicKey, file: &Hashed) -> bool {
        key.signed(&file.0, &self.signature) && self.vouches(key)
    }

    /// Whether its comment is what a key wrote there. It says nothing about the file but what the comment says.
    pub fn vouches(&self, key: &PublicKey) -> bool {
        key.signed(&[&self.signature[..], self.comment.as_bytes()].concat(), &self.global)
    }

    /// Whether it carries the id of a key: a word for messages, which anybody can write there.
    pub fn names(&self, key: &PublicKey) -> bool {
        self.id == key.minisign_id()
    }

    /// The id it carries, as minisign shows it.
    pub fn id(&self) -> String {
        format!("{:016X}", u64::from_le_bytes(self.id))
    }

    /// The comment that the second signature covers.
    pub fn comment(&self) -> &str {
        &self.comment
    }

    /// Reads a file of signatures: one, or several behind each other.
    pub fn parse_all(bytes: &[u8]) -> Result<Vec<MinisignSignature>, NoSignature> {
        let no = |why: &str| NoSignature(why.into());
        if bytes.len() as u64 > MAX_SIGNATURES {
            return Err(no("it is too long"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| no("it is not text"))?;
        let lines: Vec<&str> = text.lines().collect();
        if lines.is_empty() || !lines.len().is_multiple_of(4) || lines.len() / 4 > MOST {
            return Err(no("expected four lines for each, and at most 16 of them"));
        }
        lines.chunks(4).map(MinisignSignature::parse).collect()
    }

    fn parse(lines: &[&str]) -> Result<MinisignSignature, NoSignature> {
        let no = |why: &str| NoSignature(why.into());
        let [untrusted, signed, comment, global] = lines else { return Err(no("expected four lines")) };
        if !untrusted.starts_with(UNTRUSTED) {
            return Err(no("its first line is no untrusted comment"));
        }
        let comment = comment.strip_prefix(TRUSTED).ok_or_else(|| no("its third line is no trusted comment"))?;
        if comment.len() > MAX_COMMENT || comment.chars().any(|c| is_unseen(c) && c != '\t') {
            return Err(no("its trusted comment is too long, or has letters that are not seen"));
        }
        let signed = decoded::<74>(signed).ok_or_else(|| no("its second line is not 74 bytes in base64"))?;
        let global = decoded::<64>(global).ok_or_else(|| no("its fourth line is not 64 bytes in base64"))?;
        let (form, rest) = signed.split_at(2);
        if form == UNHASHED {
            return Err(no("it is of the old form without a hash; sign again with minisign 0.10 or newer"));
        }
        let (id, signature) = rest.split_at(8);
        let parts = <[u8; 8]>::try_from(id).ok().zip(<[u8; 64]>::try_from(signature).ok());
        let (id, signature) = parts.filter(|_| form == HASHED).ok_or_else(|| no("it is of another kind"))?;
        Ok(MinisignSignature { id, signature, comment: comment.to_string(), global })
    }
}

impl std::fmt::Display for MinisignSignature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let signed = STANDARD.encode([HASHED, &self.id, &self.signature].concat());
        writeln!(f, "{UNTRUSTED}signature of a warplap bundle by key {}\n{signed}", self.id())?;
        writeln!(f, "{TRUSTED}{}\n{}", self.comment, STANDARD.encode(self.global))
    }
}

/// A public key in minisign's form.
pub(crate) fn key_text(id: [u8; 8], key: &[u8; 32]) -> String {
    STANDARD.encode([KEY, &id, key].concat())
}

/// The 32 bytes of a public key in minisign's form: the word alone, or its file of two lines.
pub(crate) fn read_key(text: &str) -> Option<[u8; 32]> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next()?;
    let word = if first.starts_with(UNTRUSTED) { lines.next()? } else { first };
    let bytes = decoded::<42>(word).filter(|bytes| bytes.starts_with(KEY) && lines.next().is_none())?;
    bytes[10..].try_into().ok()
}

fn decoded<const N: usize>(text: &str) -> Option<[u8; N]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_of_one_key_one_file_and_one_comment_and_reads_back() {
        let (one, other) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
        let file = Hashed::of(b"a file");
        let made = MinisignSignature::new(&one, &file, "serial=1\nexpires=2");
        assert_eq!(made.comment(), "serial=1?expires=2");
        assert!(made.is_of(&one.public(), &file) && !made.is_of(&other.public(), &file));
        assert!(!made.is_of(&one.public(), &Hashed::of(b"a filf")));
        let text = made.to_string();
        assert_eq!(MinisignSignature::parse_all(text.as_bytes()).unwrap(), std::slice::from_ref(&made));
        let both = format!("{text}{}", MinisignSignature::new(&other, &file, ""));
        assert_eq!(MinisignSignature::parse_all(both.as_bytes()).unwrap().len(), 2);
        let moved = MinisignSignature { comment: "serial=9".into(), ..made };
        assert!(!moved.is_of(&one.public(), &file) && !moved.vouches(&one.public()));
    }

    #[test]
    fn no_flipped_bit_of_a_signature_file_is_taken_for_the_same() {
        let key = SecretKey::generate().unwrap();
        let file = Hashed::of(b"a file");
        let text = MinisignSignature::new(&key, &file, "serial=1").to_string().into_bytes();
        // The first line says nothing that counts, but its beginning.
        let first = text.iter().position(|b| *b == b'\n').unwrap();
        for bit in (0..text.len() * 8).filter(|bit| bit / 8 > first || bit / 8 < UNTRUSTED.len()) {
            let mut bad = text.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // The id inside is a word for messages alone.
            let taken =
                MinisignSignature::parse_all(&bad).is_ok_and(|all| all.iter().any(|s| s.is_of(&key.public(), &file)));
            let of_id = (first + 3..first + 16).contains(&(bit / 8));
            assert!(!taken || of_id, "bit {bit}");
        }
    }

    #[test]
    fn a_key_in_minisigns_form_is_the_same_key() {
        let key = SecretKey::generate().unwrap().public();
        let file = format!("untrusted comment: minisign public key\n{}\n", key.minisign());
        assert_eq!((key.minisign().parse::<PublicKey>().unwrap(), file.parse::<PublicKey>().unwrap()), (key, key));
        for bad in ["RW", "RWx=", &key.minisign()[1..], &format!("{file}more\n"), "untrusted comment: x\n"] {
            assert!(bad.parse::<PublicKey>().is_err(), "{bad}");
        }
    }
}
