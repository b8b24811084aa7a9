//! Fields: the text form that the command line, the store and the docs share, `name=value,name=value`. Reading names
//! the field that is wrong and what was expected there.

use std::fmt::{self, Display};
use std::str::FromStr;

use crate::io::sanitize_text::{brief, is_harmful};

/// Named facts in printing order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(pub Vec<(&'static str, String)>);

impl Fields {
    /// No fields yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// These fields and one more.
    pub fn with(mut self, name: &'static str, value: impl Display) -> Self {
        self.0.push((name, value.to_string()));
        self
    }

    /// These fields and one more, which stands before another.
    pub fn with_before(mut self, next: &str, name: &'static str, value: impl Display) -> Self {
        let at = self.0.iter().position(|(name, _)| *name == next).unwrap_or(self.0.len());
        self.0.insert(at, (name, value.to_string()));
        self
    }

    /// These fields and one more, unless it has its usual value.
    pub fn with_unless<T: Display + PartialEq>(self, name: &'static str, value: T, usual: T) -> Self {
        if value == usual { self } else { self.with(name, value) }
    }
}

impl Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.0.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{name}={}", escaped(value))?;
        }
        Ok(())
    }
}

/// A value as it stands in a text: what would end it, or be trimmed off, is written as `%` and two digits a byte. So no
/// two lists of values have one text.
pub(crate) fn escaped(value: &str) -> String {
    let trimmed = value.trim() == value;
    let ends = |c: char| matches!(c, '%' | ',' | ';') || c.is_ascii_whitespace() || !(c.is_ascii() || trimmed);
    coded(value, |c| ends(c) || is_harmful(c))
}

/// A text of somebody else's making without what no key may have: each such character is written as `%` and two digits
/// a byte.
pub fn harmless(text: &str) -> String {
    coded(text, is_harmful)
}

fn coded(text: &str, which: impl Fn(char) -> bool) -> String {
    let mut coded = String::with_capacity(text.len());
    for c in text.chars() {
        match which(c) {
            true => coded.extend(c.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("%{byte:02x}"))),
            false => coded.push(c),
        }
    }
    coded
}

/// The value behind a text. What is not an escape stands for itself.
fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut value, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 3).filter(|c| bytes[at] == b'%' && c.iter().all(u8::is_ascii_hexdigit));
        match code.and_then(|c| u8::from_str_radix(std::str::from_utf8(c).ok()?, 16).ok()) {
            Some(byte) => {
                value.push(byte);
                at += 3;
            }
            None => {
                value.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(value).unwrap_or_else(|_| text.to_string())
}

/// A problem text that cannot be used: which field, what was found, what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemError {
    /// The text is not `op:field=value,…`.
    #[error("'{}' is not a problem: expected op:field=value,field=value", brief(text))]
    Form {
        /// What was given.
        text: String,
    },
    /// The operation does not exist.
    #[error("unknown operation '{}': expected one of {known}", brief(name))]
    UnknownOp {
        /// What was given.
        name: String,
        /// What there is.
        known: String,
    },
    /// A field is missing.
    #[error("field '{}' is missing: expected {expected}", brief(field))]
    Missing {
        /// Its name.
        field: String,
        /// What should stand there.
        expected: String,
    },
    /// A field is not known.
    #[error("unknown field '{}'{hint}: expected one of {known}", brief(field))]
    Unknown {
        /// Its name.
        field: String,
        /// `, did you mean …` or nothing.
        hint: String,
        /// The fields there are.
        known: String,
    },
    /// A field is there twice.
    #[error("field '{}' is given twice: expected it once", brief(field))]
    Twice {
        /// Its name.
        field: String,
    },
    /// A field's value cannot be used.
    #[error("field '{}' is '{}': expected {expected}", brief(field), brief(result))]
    Value {
        /// Its name.
        field: String,
        /// What was given.
        result: String,
        /// What should stand there.
        expected: String,
    },
}

impl ProblemError {
    /// A value that cannot be used.
    pub fn value(field: &str, result: impl Display, expected: impl Display) -> Self {
        ProblemError::Value { field: field.into(), result: result.to_string(), expected: expected.to_string() }
    }
}

/// The largest size of one dimension: products of three of them stay exact in 64 bits.
pub const MAX_SIZE: u64 = 1 << 20;

/// Hands out the fields of a problem text one by one.
#[derive(Clone, Debug)]
pub struct FieldReader {
    inputs: Vec<(String, String)>,
    asked: Vec<String>,
}

impl FieldReader {
    /// Splits `name=value,name=value`.
    pub fn new(text: &str) -> Result<Self, ProblemError> {
        let mut inputs: Vec<(String, String)> = Vec::new();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (name, value) =
                part.split_once('=').ok_or_else(|| ProblemError::value(part, "", "field=value, for example m=1024"))?;
            let (name, value) = (name.trim().to_string(), unescaped(value.trim()));
            if inputs.iter().any(|(n, _)| *n == name) {
                return Err(ProblemError::Twice { field: name });
            }
            inputs.push((name, value));
        }
        Ok(FieldReader { inputs, asked: Vec::new() })
    }

    fn take(&mut self, name: &str) -> Option<String> {
        self.asked.push(name.to_string());
        let at = self.inputs.iter().position(|(n, _)| n == name)?;
        Some(self.inputs.remove(at).1)
    }

    /// A size from 1 to [`MAX_SIZE`].
    pub fn size(&mut self, name: &str) -> Result<u64, ProblemError> {
        let expected = format!("a whole number from 1 to {MAX_SIZE}");
        let text =
            self.take(name).ok_or_else(|| ProblemError::Missing { field: name.into(), expected: expected.clone() })?;
        match text.parse::<u64>() {
            Ok(v) if (1..=MAX_SIZE).contains(&v) => Ok(v),
            _ => Err(ProblemError::value(name, text, expected)),
        }
    }

    /// A size that may be left out.
    pub fn size_or(&mut self, name: &str, usual: u64) -> Result<u64, ProblemError> {
        if self.inputs.iter().any(|(n, _)| n == name) {
            return self.size(name);
        }
        self.asked.push(name.to_string());
        Ok(usual)
    }

    /// A finite number in a range, which may be left out.
    pub fn number_or(&mut self, name: &str, low: f64, high: f64, usual: f64) -> Result<f64, ProblemError> {
        let Some(text) = self.take(name) else {
            return Ok(usual);
        };
        match text.parse::<f64>() {
            Ok(v) if v.is_finite() && v >= low && v <= high => Ok(v),
            _ => Err(ProblemError::value(name, text, format!("a number from {low} to {high}"))),
        }
    }

    /// A word of a closed list (anything that reads itself from text), which may be left out.
    pub fn word_or<T: FromStr>(&mut self, name: &str, expected: &str, usual: T) -> Result<T, ProblemError> {
        let Some(text) = self.take(name) else {
            return Ok(usual);
        };
        text.parse::<T>().map_err(|_| ProblemError::value(name, text, expected))
    }

    /// The same where it must be there.
    pub fn word<T: FromStr>(&mut self, name: &str, expected: &str) -> Result<T, ProblemError> {
        let missing = || ProblemError::Missing { field: name.into(), expected: expected.into() };
        let text = self.take(name).ok_or_else(missing)?;
        text.parse::<T>().map_err(|_| ProblemError::value(name, text, expected))
    }

    /// Whether a field is there that was not yet taken.
    pub fn has(&self, name: &str) -> bool {
        self.inputs.iter().any(|(n, _)| n == name)
    }

    /// Refuses fields that are not in a list, with the nearest known name as a hint.
    pub fn only(&self, known: &[&str]) -> Result<(), ProblemError> {
        let Some((field, _)) = self.inputs.iter().find(|(n, _)| !known.contains(&n.as_str())) else {
            return Ok(());
        };
        let near = known.iter().map(|name| (distance(name, field), name)).min();
        let hint = match near {
            Some((d, name)) if d <= 2 => format!(", did you mean '{name}'?"),
            _ => String::new(),
        };
        Err(ProblemError::Unknown { field: field.clone(), hint, known: known.join(", ") })
    }

    /// Ends the reading: a field that nobody asked for is unknown.
    pub fn finish(self) -> Result<(), ProblemError> {
        self.only(&self.asked.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

/// Levenshtein distance, for hints.
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let cost = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_field_and_what_was_expected() {
        let mut reader = FieldReader::new("m=0,q=1").unwrap();
        let error = reader.size("m").unwrap_err().to_string();
        assert!(error.contains("'m'") && error.contains("from 1 to"), "{error}");
        let mut reader = FieldReader::new("desnity=0.5").unwrap();
        reader.number_or("density", 0.0, 1.0, 1.0).unwrap();
        assert!(reader.finish().unwrap_err().to_string().contains("did you mean 'density'?"));
        assert!(FieldReader::new("m=1,m=2").unwrap_err().to_string().contains("twice"));
        let mut reader = FieldReader::new("density=nan").unwrap();
        assert!(reader.number_or("density", 0.0, 1.0, 1.0).is_err());
    }
}
