//! The index of a bundle: where each record stands and its hash, in lines of one width sorted by the hash of the place.
//! A place comes in; the record's span and hash go out, after a search that reads a handful of lines.

use std::ops::Range;

use crate::names::Place;

/// `<32 digits of the place's hash> <offset> <length> <32 digits of the line's hash>\n`
const WIDTH: usize = 32 + 1 + 10 + 1 + 8 + 1 + 32 + 1;

/// An index that is being made.
#[derive(Default)]
pub(super) struct Index(Vec<String>);

/// Where a record stands, counted from the end of the header line, and its hash.
pub(super) struct RecordSpan {
    pub(super) span: Range<u64>,
    pub(super) hash: String,
}

impl Index {
    pub(super) fn add(&mut self, place: &Place, offset: usize, text: &str) {
        let (key, length) = (place_hash(place), text.len());
        self.0.push(format!("{key} {offset:010x} {length:08x} {}\n", line_hash(text.as_bytes())));
    }

    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        self.0.sort_unstable();
        self.0.concat().into_bytes()
    }
}

/// Looks a place up in an index as it stands in a file; `None` where it is not there, or the index is none.
pub(super) fn find(index: &[u8], place: &Place) -> Option<RecordSpan> {
    let key = place_hash(place);
    let lines = index.chunks_exact(WIDTH);
    let (mut from, mut to) = (0, lines.len());
    while from < to {
        let middle = from + (to - from) / 2;
        let line = &index[middle * WIDTH..(middle + 1) * WIDTH];
        match line[..32].cmp(key.as_bytes()) {
            std::cmp::Ordering::Less => from = middle + 1,
            std::cmp::Ordering::Greater => to = middle,
            std::cmp::Ordering::Equal => return read(line),
        }
    }
    None
}

/// Every line of an index.
pub(super) fn all(index: &[u8]) -> impl Iterator<Item = RecordSpan> + '_ {
    index.chunks_exact(WIDTH).filter_map(read)
}

/// Whether bytes have the size of an index of so many records.
pub(super) fn fits(bytes: u64, count: usize) -> bool {
    bytes == (count * WIDTH) as u64
}

fn read(line: &[u8]) -> Option<RecordSpan> {
    let mut words = std::str::from_utf8(line).ok()?.trim_end().split(' ').skip(1);
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let length = u64::from_str_radix(words.next()?, 16).ok()?;
    Some(RecordSpan { span: offset..offset.checked_add(length)?, hash: words.next()?.to_string() })
}

fn place_hash(place: &Place) -> String {
    blake3::hash(format!("{}/{}", place.device(), place.name()).as_bytes()).to_hex()[..32].to_string()
}

pub(super) fn line_hash(text: &[u8]) -> String {
    blake3::hash(text).to_hex()[..32].to_string()
}
