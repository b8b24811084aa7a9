//! The form of every file in the store: valid JSON with its own checksum. A body comes in, sealed text goes out, and
//! back.
//!
//! ```text
//! {"checksum": "blake3:<64 digits>", "record":
//! { ... }
//! }
//! ```
//! The checksum covers the body's bytes as they stand, and the frame has one spelling: any changed bit is seen.

use std::io;

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

const OPEN: &str = "{\"checksum\": \"blake3:";
const CLOSE: &str = "\n}\n";
const DIGITS: usize = 64;

/// A body in its frame. `kind` names the body: `record`, `miss`, `note`.
pub(crate) fn seal(kind: &str, body: &str) -> String {
    let sum = blake3::hash(body.as_bytes()).to_hex();
    format!("{OPEN}{sum}\", \"{kind}\":\n{body}{CLOSE}")
}

/// The body of a sealed file, or what is wrong with it.
pub(crate) fn unseal<'a>(kind: &str, text: &'a [u8]) -> Result<&'a str, &'static str> {
    let rest = text.strip_prefix(OPEN.as_bytes()).ok_or("it does not start like a file of this store")?;
    let (sum, rest) = rest.split_at_checked(DIGITS).ok_or("it is cut short")?;
    let frame = format!("\", \"{kind}\":\n");
    let rest = rest.strip_prefix(frame.as_bytes()).ok_or("it does not start like a file of this store")?;
    let body = rest.strip_suffix(CLOSE.as_bytes()).ok_or("it is cut short")?;
    if blake3::hash(body).to_hex().as_bytes() != sum {
        return Err("its checksum does not fit its content");
    }
    std::str::from_utf8(body).map_err(|_| "it is not text")
}

/// Readable JSON: one line for each field down to the trials, one line for each trial.
pub(crate) fn readable<T: Serialize>(value: &T) -> serde_json::Result<String> {
    let mut out = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut out, Readable { depth: 0, filled: false }))?;
    String::from_utf8(out).map_err(serde::ser::Error::custom)
}

/// Levels that get a line each: record, editions, edition, trials; a trial is written in one line.
const LINES: usize = 4;

struct Readable {
    depth: usize,
    filled: bool,
}

impl Readable {
    fn line<W: ?Sized + io::Write>(&self, out: &mut W) -> io::Result<()> {
        if self.depth > LINES {
            return Ok(());
        }
        write!(out, "\n{:1$}", "", 2 * self.depth)
    }

    fn open<W: ?Sized + io::Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.filled = false;
        out.write_all(bracket)
    }

    fn close<W: ?Sized + io::Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        let was = self.depth;
        self.depth = was.saturating_sub(1);
        if self.filled && was <= LINES {
            self.line(out)?;
        }
        self.filled = true;
        out.write_all(bracket)
    }

    fn item<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if !first {
            out.write_all(if self.depth > LINES { b", " } else { b"," })?;
        }
        self.filled = true;
        self.line(out)
    }
}

impl Formatter for Readable {
    fn begin_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"[")
    }
    fn end_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"]")
    }
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.item(out, first)
    }
    fn begin_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"{")
    }
    fn end_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"}")
    }
    fn begin_object_key<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.item(out, first)
    }
    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        CompactFormatter.begin_object_value(out)?;
        out.write_all(b" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_file_is_valid_json_and_opens_again() {
        let body = readable(&serde_json::json!({"a": [1, 2], "b": {}, "c": [[[{"deep": [1, 2.5]}]]]})).unwrap();
        let text = seal("record", &body);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["record"]["a"][1], 2);
        assert_eq!(value["record"]["c"][0][0][0]["deep"][1], 2.5);
        assert_eq!(unseal("record", text.as_bytes()).unwrap(), body);
        assert!(text.contains("{\"deep\": [1, 2.5]}"), "{text}");
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_seen() {
        let text = seal("record", "{\n  \"a\": 1\n}").into_bytes();
        for bit in 0..text.len() * 8 {
            let mut bad = text.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(unseal("record", &bad).is_err(), "bit {bit}");
        }
        for cut in 0..text.len() {
            assert!(unseal("record", &text[..cut]).is_err(), "cut at {cut}");
        }
        assert!(unseal("note", &text).is_err());
    }
}
