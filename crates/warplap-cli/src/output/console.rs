//! The console: answers go to stdout, everything else to stderr. Colours and bars only where a person looks.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};

use anstyle::{AnsiColor, Style};
use indicatif::ProgressBar;
use serde_json::Value;
use warplap::core::sanitize_text::{is_unseen, message, visible};

use crate::failure::Failure;
use crate::global::Global;

/// Headings.
pub(crate) const HEAD: Style = Style::new().bold();
/// What matters less.
pub(crate) const DIM: Style = Style::new().dimmed();
/// Good news.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// To be looked at.
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
/// Bad news.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// Names.
pub(crate) const NAME: Style = AnsiColor::Cyan.on_default();

/// A text in a style. Streams that are no terminal lose the style again.
pub(crate) fn paint(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// A text as a terminal may get it, whatever stands in names and reasons: of escapes our own styles stay, and all else
/// that is not seen is shown by its number.
pub(crate) fn shown(text: &str) -> String {
    const STYLES: [&str; 7] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m"];
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        shown.push_str(&visible(&rest[..at]));
        rest = &rest[at..];
        let length = STYLES.iter().find(|style| rest.starts_with(**style)).map(|style| style.len());
        match length {
            Some(length) => shown.push_str(&rest[..length]),
            None => shown.push_str("\\u{1b}"),
        }
        rest = &rest[length.unwrap_or(1)..];
    }
    shown.push_str(&visible(rest));
    shown
}

/// JSON in one line, with what is not seen in its own escapes.
fn one_line(value: &Value) -> String {
    let text = value.to_string();
    if !text.chars().any(is_unseen) {
        return text;
    }
    let coded = |c: char| if is_unseen(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    text.chars().map(coded).collect()
}

/// Where a command talks.
pub(crate) struct Console {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) verbose: u8,
    // The bar that is on the screen: other lines go above it.
    bar: Mutex<Option<ProgressBar>>,
}

impl Console {
    pub(crate) fn new(global: &Global) -> Arc<Self> {
        let Global { json, quiet, verbose, .. } = *global;
        Arc::new(Console { json, quiet, verbose, bar: Mutex::default() })
    }

    /// Writes an answer, whole lines of it, to stdout.
    pub(crate) fn say(&self, text: impl Display) -> Result<(), Failure> {
        let mut text = shown(&text.to_string());
        if !text.ends_with('\n') {
            text.push('\n');
        }
        self.above(|| {
            let mut out = anstream::stdout().lock();
            out.write_all(text.as_bytes())?;
            Ok(out.flush()?)
        })
    }

    /// Writes one JSON line to stdout.
    pub(crate) fn line(&self, value: &Value) -> Result<(), Failure> {
        self.lines(std::iter::once(value.clone()))
    }

    /// Writes JSON lines to stdout.
    pub(crate) fn lines(&self, values: impl IntoIterator<Item = Value>) -> Result<(), Failure> {
        // Not through the colour stream: JSON has none, and a hundred thousand lines are searched for nothing.
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        for value in values {
            writeln!(out, "{}", one_line(&value))?;
        }
        Ok(out.flush()?)
    }

    /// A calm line on stderr about what is going on, unless asked to be quiet.
    pub(crate) fn log(&self, text: impl Display) {
        if !self.quiet {
            self.err(text);
        }
    }

    /// A warning on stderr.
    pub(crate) fn warn(&self, text: impl Display) {
        self.err(format_args!("{}: {}", paint(WARN, "warning"), self.of_some_length(&text.to_string())));
    }

    /// Warns of several things of one kind: the first, and how many more.
    pub(crate) fn warn_of(&self, things: &[String]) {
        match things {
            [first, others @ ..] if self.verbose == 0 && !others.is_empty() => {
                self.warn(format_args!("{first} (and {} more like it: -v shows them)", others.len()));
            }
            all => all.iter().for_each(|thing| self.warn(thing)),
        }
    }

    /// The sentence a command ends with.
    pub(crate) fn fail(&self, failure: &Failure) {
        if !matches!(failure, Failure::Pipe) {
            self.err(format_args!("{}: {}", paint(BAD, "error"), self.of_some_length(&failure.to_string())));
        }
    }

    /// A message that is no longer than anybody reads, unless asked to say more.
    fn of_some_length<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.verbose > 0 { text.into() } else { message(text) }
    }

    fn err(&self, text: impl Display) {
        let text = shown(&text.to_string());
        self.above(|| {
            // Nobody is left to hear that stderr cannot be written.
            let _ = writeln!(anstream::stderr().lock(), "{text}");
        });
    }

    fn above<R>(&self, write: impl FnOnce() -> R) -> R {
        let bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Whether a bar may be drawn.
    pub(crate) fn shows_bars(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }

    /// Puts a bar on the screen, or takes it off.
    pub(crate) fn set_bar(&self, bar: Option<ProgressBar>) {
        let old = std::mem::replace(&mut *self.bar.lock().unwrap_or_else(PoisonError::into_inner), bar);
        if let Some(old) = old {
            old.finish_and_clear();
        }
    }

    /// Columns of the terminal that stdout is; `None` where it is none, or the user wants everything.
    pub(crate) fn width(&self) -> Option<usize> {
        if self.verbose > 0 || !std::io::stdout().is_terminal() {
            return None;
        }
        console::Term::stdout().size_checked().map(|(_, columns)| usize::from(columns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_colours_reach_the_terminal_and_nothing_else_does() {
        for style in [HEAD, DIM, GOOD, WARN, BAD, NAME] {
            assert_eq!(shown(&paint(style, "x")), paint(style, "x"));
        }
        let hostile = "a\u{9b}31m\x1b[8mhidden\x1b]0;title\x07\u{202e}";
        let text = shown(&paint(NAME, hostile));
        assert_eq!(text, paint(NAME, "a\\u{9b}31m\\u{1b}[8mhidden\\u{1b}]0;title\\u{7}\\u{202e}"));
        let line = one_line(&serde_json::json!({"why": hostile}));
        assert!(!line.chars().any(is_unseen), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["why"], hostile);
    }
}
