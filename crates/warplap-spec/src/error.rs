//! What is wrong with a spec file: the file, the line where there is one, and a sentence with the remedy.

use std::fmt;
use std::path::{Path, PathBuf};

use warplap::core::sanitize_text::cut;

/// Characters of one line of a reason.
const LONGEST: usize = 1000;

/// A spec file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1, where it can be told.
    pub line: Option<usize>,
    /// What is wrong and what was expected.
    pub reason: String,
}

impl SpecError {
    /// About a file as a whole.
    pub fn new(file: &Path, reason: impl fmt::Display) -> Self {
        // A reason may quote what stands in the file, and be long.
        let lines: Vec<String> = reason.to_string().lines().map(|line| cut(line, LONGEST).into_owned()).collect();
        SpecError { file: file.to_path_buf(), line: None, reason: lines.join("\n") }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file.display(), self.reason),
            None => write!(f, "{}: {}", self.file.display(), self.reason),
        }
    }
}

impl std::error::Error for SpecError {}
