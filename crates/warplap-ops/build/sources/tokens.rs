//! Rust text as words, strings and marks: comments and the items under `#[cfg(test)]` are gone.

/// One piece of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'t> {
    /// A name, a keyword or a number.
    Word(&'t str),
    /// What stands between the quotes of a string.
    Text(&'t str),
    /// `::`
    Colons,
    /// Any other character.
    Mark(char),
}

use Token::{Colons, Mark, Text, Word};

/// What an item that can be under `#[cfg(test)]` begins with. A field, an arm or a statement is kept.
const ITEMS: [&str; 14] = [
    "async",
    "const",
    "enum",
    "extern",
    "fn",
    "impl",
    "macro_rules",
    "mod",
    "pub",
    "static",
    "struct",
    "trait",
    "unsafe",
    "use",
];

/// What the compiler sees of a text outside of tests.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    without_tests(&all(text))
}

fn all(text: &str) -> Vec<Token<'_>> {
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        if rest.starts_with("//") {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        } else if rest.starts_with("/*") {
            rest = &rest[comment(rest)..];
        } else if let Some((hashes, begin)) = raw(rest) {
            let end = format!("\"{}", "#".repeat(hashes));
            let inside = rest[begin..].find(&end).map_or(rest.len(), |at| begin + at);
            out.push(Text(&rest[begin..inside]));
            rest = rest.get(inside + end.len()..).unwrap_or("");
        } else if first == '"' {
            let inside = 1 + closing(&rest[1..], '"');
            out.push(Text(&rest[1..inside]));
            rest = rest.get(inside + 1..).unwrap_or("");
        } else if first == '\'' {
            // A character, or the name of a lifetime.
            let mut after = rest[1..].chars();
            let (one, two) = (after.next(), after.next());
            rest = match (one, two) {
                (Some('\\'), _) | (Some(_), Some('\'')) => rest.get(closing(&rest[1..], '\'') + 2..).unwrap_or(""),
                _ => rest[1..].trim_start_matches(is_word),
            };
        } else if is_word(first) {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            out.push(Word(&rest[..end]));
            rest = &rest[end..];
        } else if let Some(after) = rest.strip_prefix("::") {
            out.push(Colons);
            rest = after;
        } else {
            if !first.is_whitespace() {
                out.push(Mark(first));
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    out
}

/// The length of a comment, in which others may lie.
fn comment(text: &str) -> usize {
    let (mut deep, mut at) = (0, 0);
    while at < text.len() {
        let step = match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (1, 2),
            [b'*', b'/', ..] => (-1, 2),
            _ => (0, 1),
        };
        (deep, at) = (deep + step.0, at + step.1);
        if deep == 0 {
            break;
        }
    }
    at
}

/// How many hashes guard a raw string that begins here, and where its inside does.
fn raw(text: &str) -> Option<(usize, usize)> {
    let prefix = ["r", "br", "cr"].into_iter().find(|p| text.starts_with(p))?;
    let hashes = text[prefix.len()..].bytes().take_while(|b| *b == b'#').count();
    let quote = prefix.len() + hashes;
    text[quote..].starts_with('"').then_some((hashes, quote + 1))
}

/// Where the quote that closes a literal stands.
fn closing(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at,
            _ => {}
        }
    }
    text.len()
}

fn without_tests<'t>(all: &[Token<'t>]) -> Vec<Token<'t>> {
    const TEST: [Token<'static>; 7] =
        [Mark('#'), Mark('['), Word("cfg"), Mark('('), Word("test"), Mark(')'), Mark(']')];
    let (mut out, mut at) = (Vec::new(), 0);
    while at < all.len() {
        if all[at..].starts_with(&TEST) {
            let item = after_attributes(all, at);
            if matches!(all.get(item), Some(Word(word)) if ITEMS.contains(word)) {
                at = after_item(all, item);
                continue;
            }
        }
        out.push(all[at]);
        at += 1;
    }
    out
}

fn after_attributes(all: &[Token<'_>], mut at: usize) -> usize {
    while all[at..].starts_with(&[Mark('#'), Mark('[')]) {
        let mut deep = 0;
        while let Some(token) = all.get(at) {
            deep += i32::from(*token == Mark('[')) - i32::from(*token == Mark(']'));
            at += 1;
            if deep == 0 && *token == Mark(']') {
                break;
            }
        }
    }
    at
}

/// An item ends with a semicolon, or with the brace that closes its first one.
fn after_item(all: &[Token<'_>], mut at: usize) -> usize {
    let mut deep = 0;
    while let Some(token) = all.get(at) {
        at += 1;
        match token {
            Mark('(' | '[' | '{') => deep += 1,
            Mark(')' | ']') => deep -= 1,
            Mark('}') => {
                deep -= 1;
                if deep == 0 {
                    break;
                }
            }
            Mark(';') if deep == 0 => break,
            _ => {}
        }
    }
    at
}
