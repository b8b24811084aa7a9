//! Letters: which characters a text from outside may bring along. A text comes in; one that can be shown goes out.

use std::borrow::Cow;

/// Whether a character may turn, hide or colour what stands beside it on a screen.
pub fn is_unseen(c: char) -> bool {
    let turns = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
    c.is_control() || turns || matches!(c, '\u{ad}' | '\u{61c}' | '\u{feff}')
}

/// Whether a character has no business in the text of a key or a problem: it is not seen, or ends a string.
pub fn is_harmful(c: char) -> bool {
    is_unseen(c) || matches!(c, '"' | '\'' | '\\' | '`')
}

/// A text for a screen: what is not seen stands there by its number, `\u{9b}`; lines and tabs stay.
pub fn visible(text: &str) -> Cow<'_, str> {
    let odd = |c: char| is_unseen(c) && !matches!(c, '\n' | '\t');
    if !text.chars().any(odd) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match odd(c) {
            true => shown.extend(c.escape_unicode()),
            false => shown.push(c),
        }
    }
    shown.into()
}

/// A text that may be long, for a message: its beginning, and how much more there is.
pub fn brief(text: &str) -> Cow<'_, str> {
    cut(text, 120)
}

/// As [`brief`], with as many characters as are to be shown.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => text.into(),
        Some((end, _)) => format!("{}… ({} characters in all)", &text[..end], text.chars().count()).into(),
    }
}

/// The most characters of a message.
pub const MESSAGE: usize = 300;

/// A message for people, whatever was put in it: of a long one its beginning and its end, where it says what was
/// expected.
pub fn message(text: &str) -> Cow<'_, str> {
    const END: usize = 120;
    let count = text.chars().count();
    if count <= MESSAGE {
        return text.into();
    }
    let left_out = format!(" … ({count} characters in all) … ");
    let begin: String = text.chars().take(MESSAGE - END - left_out.chars().count()).collect();
    let end: String = text.chars().skip(count - END).collect();
    format!("{begin}{left_out}{end}").into()
}

/// What a reader of a format says about a text of somebody else's making, which it may quote: fit to be shown.
pub fn shown(said: impl std::fmt::Display) -> String {
    cut(&visible(&said.to_string()), 400).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_instead() {
        assert_eq!(visible("a\u{9b}31mb\u{1b}[2J\u{7}\r"), "a\\u{9b}31mb\\u{1b}[2J\\u{7}\\u{d}");
        assert_eq!(visible("x\u{202e}y\u{200b}"), "x\\u{202e}y\\u{200b}");
        assert_eq!(visible("µs → größer\n\tok"), "µs → größer\n\tok");
        assert_eq!(brief("short"), "short");
        assert_eq!((message("short"), message(&"ä".repeat(MESSAGE))), ("short".into(), "ä".repeat(MESSAGE).into()));
        for count in [MESSAGE + 1, 1_000_000] {
            let long = format!("FIELD: {}: expected this", "ä".repeat(count));
            let said = message(&long);
            assert!(said.chars().count() == MESSAGE && said.starts_with("FIELD: ä") && said.ends_with("expected this"));
        }
        assert!(brief(&"ä".repeat(20_000)).ends_with("ä… (20000 characters in all)"));
        assert_eq!(shown("unknown field `a\u{9b}`"), "unknown field `a\\u{9b}`");
        assert!(shown("x".repeat(1 << 20)).len() < 500);
    }
}
