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

impl fmt::Display for ExprError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A line break or a tab inside would tear the caret from its column.
        let flat = |text: &str| text.replace(|c: char| c.is_whitespace() || c.is_control(), " ");
        let wide = self.text.get(self.at.clone()).map_or(1, |t| t.chars().count().max(1));
        writeln!(f, "{} (column {})", self.reason, self.column())?;
        writeln!(f, "  {}", flat(&self.text))?;
        write!(f, "  {}{}", " ".repeat(self.column() - 1), "^".repeat(wide))
    }
}

impl std::error::Error for ExprError {}
