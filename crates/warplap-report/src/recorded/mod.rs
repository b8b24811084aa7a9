//! Recorded spaces: every config of a real kernel with the time it took. Files come in (our own form, Kernel Tuner's
//! cachefiles, T4 results); a space whose times are known goes out, for replaying searches without the device.

mod kernel_tuner;
mod mend;
mod neutral;
mod replay;
mod score;
mod t4;

use std::path::Path;

use serde_json::Value as Json;

use neutral::Neutral;
pub use replay::{Replayed, replay};
pub use score::{Baseline, Curve};
use warplap_core::space::{Axis, Config, Space, SpaceError};

/// The most a file may hold, in bytes.
const MOST: u64 = 1 << 30;

/// A hundred years: nothing that was timed took as long.
const LONGEST_MS: f64 = 3.2e12;

/// Why a recorded space cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordedError {
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It is not of a form that is known.
    #[error("{0}")]
    Form(String),
    /// Its axes or restrictions cannot be used.
    #[error("{0}")]
    Space(#[from] SpaceError),
}

/// One config and what became of it: milliseconds, or why there are none.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Value numbers by axis.
    pub point: Vec<u16>,
    /// Milliseconds of one launch, or the word for its failure.
    pub time_ms: Result<f64, String>,
}

/// A space with the time of each of its configs.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its name.
    pub name: String,
    /// The kernel.
    pub kernel: String,
    /// The device it was measured on.
    pub device: String,
    /// Where it comes from.
    pub source: String,
    /// The terms it may be passed on under.
    pub licence: String,
    /// The rules it was made with, as written there.
    pub restrictions: Vec<String>,
    /// Exactly the recorded configs.
    pub space: Space,
    /// Whether the file ended in the middle of a record: everything before is here.
    pub torn: bool,
    times: Vec<Result<f64, String>>,
}

impl Recorded {
    /// A recorded space of these rows. Of rows with the same config the last one counts.
    pub fn new(axes: Vec<Axis>, rows: Vec<Row>) -> Result<Self, RecordedError> {
        if rows.is_empty() {
            return Err(RecordedError::Form("it holds no measured config: expected at least one".into()));
        }
        unique(&axes)?;
        let space = Space::of_points(axes, rows.iter().map(|r| r.point.clone()).collect())?;
        let diagram = space.diagram()?;
        let mut times = vec![Err("unknown".to_string()); usize::try_from(diagram.count()).unwrap_or(0)];
        for row in rows {
            if let Some(index) = diagram.index(&row.point) {
                // A time that is none is a failure, whatever the file calls it.
                let sane = |t: f64| if t > 0.0 && t <= LONGEST_MS { Ok(t) } else { Err("no time".to_string()) };
                times[index as usize] = row.time_ms.and_then(sane);
            }
        }
        let text = String::new;
        Ok(Recorded {
            name: text(),
            kernel: text(),
            device: text(),
            source: text(),
            licence: text(),
            restrictions: Vec::new(),
            space,
            torn: false,
            times,
        })
    }

    /// Reads a file of any form that is known.
    pub fn read(path: &Path) -> Result<Self, RecordedError> {
        let text = warplap_core::user_files::text(path, MOST)?;
        let mut recorded = Self::parse(&text)?;
        if recorded.name.is_empty() {
            recorded.name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        }
        Ok(recorded)
    }

    /// Reads a text of any form that is known. It may end anywhere: what stands whole before is read.
    pub fn parse(text: &str) -> Result<Self, RecordedError> {
        let form = |e: serde_json::Error| RecordedError::Form(format!("it is not a recorded space: {e}"));
        let (json, torn) = match serde_json::from_str::<Json>(text) {
            Ok(json) => (json, false),
            Err(error) => mend::mended(text).ok_or_else(|| form(error))?,
        };
        // Our own form has its configs in one list and their times in another.
        let json = if torn && json.get("params").is_some() { mend::closed(text).unwrap_or(json) } else { json };
        let read = match &json {
            _ if json.get("params").is_some() => serde_json::from_value::<Neutral>(json).map_err(form)?.recorded(torn),
            _ if json.get("tune_params_keys").is_some() => kernel_tuner::read(&json),
            _ if json.get("results").is_some() => t4::read(&json),
            _ => Err(RecordedError::Form(
                "it is of no form that is known: expected 'params' (ours), 'tune_params_keys' (a Kernel Tuner \
                 cachefile) or 'results' (T4)"
                    .into(),
            )),
        };
        read.map(|recorded| Recorded { torn, ..recorded })
    }

    /// The space a file defines by parameters and restrictions alone, whether or not it was measured.
    pub fn definition(text: &str) -> Result<Space, RecordedError> {
        let form = |e: serde_json::Error| RecordedError::Form(format!("it does not define a space: {e}"));
        serde_json::from_str::<Neutral>(text).map_err(form)?.space()
    }

    /// In our own form, one config a line.
    pub fn to_text(&self) -> String {
        let neutral = Neutral::of(self);
        let text = serde_json::to_string(&neutral).unwrap_or_default();
        text.replace("],[", "],\n[")
    }

    /// How many configs there are.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// A config by index.
    pub fn point(&self, index: usize) -> Vec<u16> {
        self.space.diagram().ok().and_then(|d| d.point(index as u128)).unwrap_or_default()
    }

    /// Its milliseconds, or the word for its failure.
    pub fn time_ms(&self, index: usize) -> Result<f64, &str> {
        self.times[index].as_ref().copied().map_err(String::as_str)
    }

    /// The milliseconds of all that did not fail.
    pub fn times(&self) -> impl Iterator<Item = f64> {
        self.times.iter().filter_map(|t| t.as_ref().ok().copied())
    }

    /// Every config that was right with its milliseconds.
    pub fn right(&self) -> Vec<(Config, f64)> {
        let timed = |i: usize| Some((self.space.config(&self.point(i)), *self.times[i].as_ref().ok()?));
        (0..self.len()).filter_map(timed).collect()
    }

    /// The fastest configs, best first.
    pub fn best(&self, most: usize) -> Vec<Config> {
        let mut order: Vec<usize> = (0..self.len()).filter(|i| self.times[*i].is_ok()).collect();
        let time = |i: usize| self.times[i].as_ref().copied().unwrap_or(f64::INFINITY);
        order.sort_by(|a, b| time(*a).total_cmp(&time(*b)));
        order.into_iter().take(most).map(|i| self.space.config(&self.point(i))).collect()
    }
}

/// An error where two axes share a name.
fn unique(axes: &[Axis]) -> Result<(), SpaceError> {
    let twice = axes.iter().enumerate().find(|(n, a)| axes[..*n].iter().any(|b| b.name() == a.name()));
    twice.map_or(Ok(()), |(_, axis)| Err(SpaceError::Twice(axis.name().into())))
}

#[cfg(test)]
mod tests;
