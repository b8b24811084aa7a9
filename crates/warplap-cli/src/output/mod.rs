//! What the program writes: lines, tables, stories, progress.

pub(crate) mod answer;
pub(crate) mod console;
pub(crate) mod live;
pub(crate) mod notices;
pub(crate) mod progress;
pub(crate) mod story;
pub(crate) mod strip;
pub(crate) mod table;
pub(crate) mod units;
