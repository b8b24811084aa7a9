//! What goes between processes: the worker's protocol in both directions, a cell's replies, sealed artifacts.

use std::cell::RefCell;
use std::io;
use std::time::Duration;

use warplap_worker::artifact::{Artifact, Artifacts};
use warplap_worker::fuzzing;

use super::store::folder;

/// A message to a worker.
pub(crate) fn order(bytes: &[u8]) -> String {
    message(bytes, fuzzing::order)
}

/// A message from a worker.
pub(crate) fn report(bytes: &[u8]) -> String {
    message(bytes, fuzzing::report)
}

/// A message as it is, and its text under lengths that fit. What was read and written again is written the same.
fn message(bytes: &[u8], read: fn(&[u8]) -> io::Result<Vec<u8>>) -> String {
    let lengths = [(bytes.len() as u32).to_le_bytes(), [0; 4]].concat();
    let framed = [&lengths, bytes].concat();
    let mut answers = Vec::new();
    for bytes in [bytes, &framed] {
        let written = read(bytes);
        if let Ok(written) = &written {
            assert_eq!(&read(written).expect("what was written can be read"), written);
        }
        answers.push(super::said(written));
    }
    answers.join("; ")
}

/// A cell's reply: nothing that cannot be true is believed.
pub(crate) fn cell(bytes: &[u8]) -> String {
    let (calls, passed) = (9, Duration::from_millis(2));
    let reply = fuzzing_reply(bytes, calls, passed);
    if let Ok((nanoseconds, stale)) = reply {
        assert!(u128::from(nanoseconds) <= passed.as_nanos() && stale <= calls);
    }
    super::said(reply)
}

fn fuzzing_reply(bytes: &[u8], calls: u64, passed: Duration) -> Result<(u64, u64), String> {
    warplap_spec::fuzzing::reply(bytes, calls, passed)
}

thread_local! {
    static ARTIFACTS: RefCell<Option<(Artifacts, Vec<u8>)>> = const { RefCell::new(None) };
}

/// An artifact whose bytes were changed: byte by byte the input is laid over what was written. Only what was written is
/// ever loaded.
pub(crate) fn artifact(bytes: &[u8]) -> String {
    let path = folder().join("artifacts-v1/abc");
    ARTIFACTS.with_borrow_mut(|kept| {
        let (artifacts, whole) = kept.get_or_insert_with(|| {
            let artifacts = Artifacts::open(&folder()).expect("a folder of our own");
            let artifact = Artifact { image: vec![7; 100], report: vec![90u32, 0] };
            artifacts.put("abc", &artifact).expect("it can be kept");
            let whole = std::fs::read(&path).expect("what was kept is a file");
            (artifacts, whole)
        });
        // The corpus cannot know this process's key.
        let changed: Vec<u8> = match bytes.split_first_chunk::<2>() {
            Some((at, over)) => {
                let at = usize::from(u16::from_le_bytes(*at)) % whole.len();
                let end = (at + over.len()).min(whole.len());
                [&whole[..at], over, &whole[end..]].concat()
            }
            None => bytes.to_vec(),
        };
        std::fs::write(&path, &changed).expect("a file of our own");
        let result = artifacts.get::<Vec<u32>>("abc");
        assert_eq!(result.is_some(), changed == *whole, "a changed artifact was loaded, or a whole one refused");
        if result.is_some() { "loaded" } else { "refused" }.into()
    })
}
