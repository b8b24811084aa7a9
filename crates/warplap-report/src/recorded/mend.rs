//! JSON that is not quite: files that end in the middle of a record, and Python's bare `NaN`.

use serde_json::Value as Json;

/// What a text was found to be.
struct MendedText {
    /// The text with bare names of numbers that JSON does not have as `null`.
    clean: Vec<u8>,
    /// Whether every bracket was closed.
    closed: bool,
    /// Where the last record two levels deep ended, and the brackets that were open then.
    record: Option<(usize, Vec<u8>)>,
    /// Where the last value of any kind ended that is surely whole.
    value: Option<(usize, Vec<u8>)>,
}

impl MendedText {
    /// What stands before a place where something ended.
    fn up_to(mut self, end: Option<(usize, Vec<u8>)>) -> Option<Json> {
        let (end, open) = end?;
        self.clean.truncate(end);
        self.clean.extend(open.into_iter().rev());
        serde_json::from_slice(&self.clean).ok()
    }
}

/// Reads a text that should hold records two levels deep. Gives what it holds up to the last whole record, and whether
/// anything was cut off; `None` when there is nothing to save.
pub(super) fn mended(text: &str) -> Option<(Json, bool)> {
    let mut result = scanned(text);
    if result.closed
        && let Ok(json) = serde_json::from_slice(&result.clean)
    {
        return Some((json, false));
    }
    let record = result.record.take();
    result.up_to(record).map(|json| (json, true))
}

/// Reads a text that was cut off. Gives what it holds up to the last whole value.
pub(super) fn closed(text: &str) -> Option<Json> {
    let mut result = scanned(text);
    let value = result.value.take();
    result.up_to(value)
}

fn scanned(text: &str) -> MendedText {
    let (mut clean, mut open) = (Vec::with_capacity(text.len()), Vec::new());
    let (mut in_text, mut escaped) = (false, false);
    let (mut record, mut value) = (None, None);
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        if in_text {
            in_text = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
        } else {
            match byte {
                b'"' => in_text = true,
                b'{' => open.push(b'}'),
                b'[' => open.push(b']'),
                b',' => value = Some((clean.len(), open.clone())),
                b'}' | b']' if open.last() == Some(&byte) => {
                    open.pop();
                }
                b'}' | b']' => break,
                b'N' | b'I' | b'-' => {
                    let name = ["NaN", "Infinity", "-Infinity"].into_iter().find(|n| text[at..].starts_with(n));
                    if let Some(name) = name {
                        clean.extend_from_slice(b"null");
                        at += name.len();
                        continue;
                    }
                }
                _ => {}
            }
        }
        clean.push(byte);
        at += 1;
        if !in_text && matches!(byte, b'}' | b']') {
            value = Some((clean.len(), open.clone()));
            if byte == b'}' && open.len() == 2 {
                record.clone_from(&value);
            }
        }
    }
    MendedText { closed: open.is_empty(), clean, record, value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cut_anywhere_gives_back_every_whole_record() {
        let whole = r#"{"a": [1, "}"], "cache": {"x,\"y": {"t": 1, "n": NaN}, "z": {"t": [2, 3]}, "w": {"t": -3}}}"#;
        let ends: Vec<usize> = ["NaN}", "3]}", "-3}"].iter().map(|end| whole.find(end).unwrap() + end.len()).collect();
        for cut in 0..whole.len() {
            let result = mended(&whole[..cut]).map_or(0, |(json, torn)| {
                assert!(torn, "{cut}");
                json["cache"].as_object().unwrap().len()
            });
            assert_eq!(result, ends.iter().filter(|end| **end <= cut).count(), "{}", &whole[..cut]);
        }
        let (json, torn) = mended(whole).unwrap();
        assert!(!torn && json["cache"].as_object().unwrap().len() == 3 && json["cache"]["x,\"y"]["n"].is_null());
        assert!(mended("").is_none() && mended("[}").is_none());
    }
}
