//! Reading: a TOML spec or Kernel Tuner's T1 JSON comes in; a checked Spec goes out, or an error with the file and the
//! line.

mod arguments;
mod axes;
mod check;
mod draft;
mod launch;
mod listed;
mod objective;
mod t1;
mod value;

use std::ops::Range;
use std::path::{Path, PathBuf};

use warplap::core::problem::distance;

use crate::error::SpecError;
use crate::spec::Spec;
use draft::Draft;

/// The most a spec file may hold, in bytes.
const MOST: u64 = 4 << 20;

/// Reads a spec file and the files it names.
pub(crate) fn load(path: &Path) -> Result<Spec, SpecError> {
    let expected = "expected a spec file (.toml, or Kernel Tuner's T1 .json)";
    let bytes = file(path, MOST).map_err(|why| SpecError::new(path, format!("{why}: {expected}")))?;
    let text = String::from_utf8(bytes).map_err(|_| SpecError::new(path, format!("it is no text: {expected}")))?;
    let json = path.extension().is_some_and(|e| e == "json");
    let places = Places { file: path.to_path_buf(), text };
    let draft = match json {
        true => t1::draft(&places)?,
        false => toml::from_str::<Draft>(&places.text).map_err(|e| places.toml(&e))?,
    };
    check::checked(draft, &places)
}

/// A file's content; the error is a phrase.
pub(crate) fn file(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let meta = std::fs::metadata(path).map_err(|e| e.to_string())?;
    if !meta.is_file() || meta.len() > most {
        return Err(format!("it has {} bytes, and at most {most} are read", meta.len()));
    }
    std::fs::read(path).map_err(|e| e.to_string())
}

/// The text of a spec file, to tell lines by bytes.
pub(crate) struct Places {
    pub(crate) file: PathBuf,
    pub(crate) text: String,
}

impl Places {
    /// An error at some bytes; the empty range at the start stands for no place.
    pub(crate) fn at(&self, bytes: &Range<usize>, reason: impl std::fmt::Display) -> SpecError {
        SpecError { line: self.line_of(bytes), ..SpecError::new(&self.file, reason) }
    }

    /// The line of some bytes, where they stand for a place.
    pub(crate) fn line_of(&self, bytes: &Range<usize>) -> Option<usize> {
        (*bytes != (0..0)).then(|| self.line(bytes.start))
    }

    fn line(&self, at: usize) -> usize {
        self.text.as_bytes()[..at.min(self.text.len())].iter().filter(|b| **b == b'\n').count() + 1
    }

    /// A path as the spec file has it: from the folder the spec file is in.
    pub(crate) fn beside(&self, path: &str) -> PathBuf {
        match self.file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.join(path),
            _ => PathBuf::from(path),
        }
    }

    /// What the TOML reader says, in one sentence with the remedy.
    fn toml(&self, error: &toml::de::Error) -> SpecError {
        let said = error.message();
        let hint = said.strip_prefix("unknown field `").and_then(|rest| {
            let (field, known) = rest.split_once('`')?;
            let names = known.split('`').skip(1).step_by(2);
            let near = names.map(|name| (distance(name, field), name)).min().filter(|(d, _)| *d <= 2)?;
            Some(format!(" (did you mean `{}`?)", near.1))
        });
        let reason = format!("{said}{}", hint.unwrap_or_default());
        let reason = if reason.contains("expected") { reason } else { format!("{reason}: expected a spec in TOML") };
        match error.span() {
            Some(span) => SpecError { line: Some(self.line(span.start)), ..SpecError::new(&self.file, reason) },
            None => SpecError::new(&self.file, reason),
        }
    }
}
