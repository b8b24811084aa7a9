//! Reading an expression letter by letter: a text goes in, tokens with their places go out.

use std::ops::Range;

use super::error::ExprError;

/// The smallest parts of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Int(i64),
    Float(f64),
    Text(String),
    Name(String),
    Sign(&'static str),
    End,
}

/// Longest first: `**` must not be read as `*` twice.
const SIGNS: [&str; 28] = [
    "**", "//", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+", "-", "*", "/", "%", "<", ">", "=", "&", "|", "^",
    "~", "(", ")", "[", "]", ",", "!",
];

/// Splits a text into tokens; the last is always `End`.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token, Range<usize>)>, ExprError> {
    let mut result = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        }
        let (token, end) = match c {
            '0'..='9' | '.' => number(text, at)?,
            '\'' | '"' => quoted(text, at, c)?,
            c if c.is_alphabetic() || c == '_' => name(text, at),
            _ => {
                let sign = SIGNS
                    .into_iter()
                    .find(|s| text[at..].starts_with(s))
                    .ok_or_else(|| ExprError::new(format!("'{c}' has no meaning here"), text, at..at + c.len_utf8()))?;
                (Token::Sign(sign), at + sign.len())
            }
        };
        if let Token::Sign(sign @ ("&&" | "||" | "!" | "=")) = token {
            let right = match sign {
                "&&" => "and",
                "||" => "or",
                "!" => "not",
                _ => "==",
            };
            return Err(ExprError::new(format!("'{sign}' is not used here: write '{right}'"), text, at..end));
        }
        result.push((token, at..end));
        at = end;
    }
    result.push((Token::End, text.len()..text.len()));
    Ok(result)
}

fn name(text: &str, start: usize) -> (Token, usize) {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let mut end = start + text[start..].find(|c| !part(c)).unwrap_or(text.len() - start);
    // `math.ceil` is `ceil`.
    if &text[start..end] == "math" && text[end..].starts_with('.') {
        let from = end + 1;
        end = from + text[from..].find(|c| !part(c)).unwrap_or(text.len() - from);
        return (Token::Name(text[from..end].to_string()), end);
    }
    (Token::Name(text[start..end].to_string()), end)
}

fn number(text: &str, start: usize) -> Result<(Token, usize), ExprError> {
    let rest = &text[start..];
    let hex = rest.starts_with("0x") || rest.starts_with("0X");
    let mut end = 0;
    let bytes = rest.as_bytes();
    while end < bytes.len() {
        let c = bytes[end];
        let exponent_sign = !hex && matches!(c, b'+' | b'-') && end > 0 && matches!(bytes[end - 1], b'e' | b'E');
        if !(c.is_ascii_alphanumeric() || c == b'.' || c == b'_' || exponent_sign) {
            break;
        }
        end += 1;
    }
    let written = rest[..end].replace('_', "");
    let token = if hex {
        i64::from_str_radix(&written[2..], 16).ok().map(Token::Int)
    } else {
        // A whole number beyond 63 bits goes on as a float, as everywhere in expressions.
        written.parse().ok().map(Token::Int).or_else(|| written.parse().ok().map(Token::Float))
    };
    let wrong = || ExprError::new(format!("'{}' is not a number", &rest[..end]), text, start..start + end);
    Ok((token.ok_or_else(wrong)?, start + end))
}

fn quoted(text: &str, start: usize, quote: char) -> Result<(Token, usize), ExprError> {
    let inside = &text[start + 1..];
    match inside.find(quote) {
        Some(length) => Ok((Token::Text(inside[..length].to_string()), start + 1 + length + 1)),
        None => Err(ExprError::new("this text has no closing quote", text, start..text.len())),
    }
}
