//! What is wrong with an expression, and where: a sentence, and a caret under the column.

use std::fmt;
use std::ops::Range;

/// An expression that cannot be used. Its text has three lines: the sentence, the expression, and a caret under the
/// place that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExprError {
    /// What is wrong and what would be right.
    pub reason: String,
    /// The whole expression.
    pub text: String,
    /// The bytes of the expression that the sentence is about.
    pub at: Range<usize>,
}

impl ExprError {
    pub(super) fn new(reason: impl Into<String>, text: &str, at: Range<usize>) -> Self {
        ExprError { reason: reason.into(), text: text.to_string(), at }
    }

    /// The column, counted in characters from 1.
    pub fn column(&self) -> usize {
        self.before().chars().count() + 1
    }

    fn before(&self) -> &str {
        self.text.get(..self.at.start).unwrap_or(&self.text)
    }
}

/// Characters that are shown before and behind the place in a long expression.
const AROUND: usize = 60;

impl fmt::Display for ExprError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A line break or a tab inside would tear the caret from its column.
        let flat = |text: &str| text.replace(|c: char| c.is_whitespace() || c.is_control(), " ");
        let wide = self.text.get(self.at.clone()).map_or(1, |t| t.chars().count().max(1));
        // Of a long one only what stands around the place is shown.
        let (column, all) = (self.column(), self.text.chars().count());
        let from = if all > 2 * AROUND { (column - 1).saturating_sub(AROUND) } else { 0 };
        let shown: String = flat(&self.text).chars().skip(from).take(2 * AROUND).collect();
        let (before, after) = (if from > 0 { "…" } else { "" }, if from + 2 * AROUND < all { "…" } else { "" });
        let gap = column - 1 - from + before.chars().count();
        writeln!(f, "{} (column {column})", self.reason)?;
        writeln!(f, "  {before}{shown}{after}")?;
        write!(f, "  {}{}", " ".repeat(gap), "^".repeat(wide.min(AROUND)))
    }
}

impl std::error::Error for ExprError {}
