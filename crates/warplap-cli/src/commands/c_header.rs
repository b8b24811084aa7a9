//! A C header of winners: what the store knows of a problem comes in; `#define`s go out, one section a device. What a
//! record says is data: names are held to the language, values are numbers, words or strings, comments stay comments.

use warplap::core::candidate::Candidate;
use warplap::core::record::TuningRun;
use warplap::core::sanitize_text::visible;
use warplap::core::space::Value;

use crate::failure::Failure;
use crate::kept::Kept;

/// Words that mean something else in C or C++: to define one changes every line behind it.
const KEYWORDS: &[&str] = &[
    "alignas",
    "alignof",
    "asm",
    "auto",
    "bool",
    "break",
    "case",
    "char",
    "class",
    "const",
    "continue",
    "default",
    "defined",
    "delete",
    "do",
    "double",
    "else",
    "enum",
    "extern",
    "false",
    "float",
    "for",
    "goto",
    "if",
    "inline",
    "int",
    "long",
    "main",
    "namespace",
    "new",
    "operator",
    "private",
    "public",
    "register",
    "restrict",
    "return",
    "short",
    "signed",
    "sizeof",
    "static",
    "struct",
    "switch",
    "template",
    "this",
    "throw",
    "true",
    "try",
    "typedef",
    "typename",
    "union",
    "unsigned",
    "using",
    "virtual",
    "void",
    "volatile",
    "while",
];

/// A name that the preprocessor takes, made of any text.
fn macro_name(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

fn is_identifier(text: &str) -> bool {
    let word = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    word && !text.is_empty() && !text.starts_with(|c: char| c.is_ascii_digit()) && !KEYWORDS.contains(&text)
}

/// A text inside of a comment: it can neither end it nor go on behind its line.
fn comment(text: &str) -> String {
    visible(text)
        .replace(['\n', '\t'], " ")
        .replace("*/", "* /")
        .replace("/*", "/ *")
        .replace('\\', "/")
        .replace("??", "? ?")
}

/// A value as a `#define` has it: a number, a word, or a string.
fn literal(value: &Value) -> String {
    match value {
        Value::Bool(b) => u8::from(*b).to_string(),
        Value::Int(i) => i.to_string(),
        Value::Float(x) if x.0.is_finite() => value.to_string(),
        Value::Text(word) if is_identifier(word) => word.clone(),
        other => string(&other.to_string()),
    }
}

/// A C string of any text, whatever stands in it: three octal digits end by themselves.
fn string(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\' | b'?') || b == b' ';
    let coded = text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("\\{b:03o}") });
    format!("\"{}\"", coded.collect::<String>())
}

/// The lines of one winner.
fn section(edition: &TuningRun) -> Result<String, Failure> {
    let winner = &edition.verdict.winner;
    let mut lines = format!("/* {} in {:.3} us */\n", comment(&winner.to_string()), edition.verdict.median_us);
    for (name, value) in &winner.config.0 {
        if !is_identifier(name) {
            let name = visible(name);
            let expected = "a C identifier that means nothing else";
            return Err(Failure::NoAnswer(format!("the axis '{name}' cannot be a macro: expected {expected}")));
        }
        lines.push_str(&format!("#define {name} {}\n", literal(value)));
    }
    Ok(lines)
}

/// Whether a winner is one of the settings its variant has here; one of a variant that is not here cannot be held to
/// them.
fn is_setting(kept: &Kept, winner: &Candidate) -> bool {
    let Some(variant) = kept.variants.iter().find(|v| v.id == winner.variant && !v.axes.is_empty()) else {
        return true;
    };
    let named = |(name, values): &(String, Vec<String>)| {
        winner.config.get(name).is_some_and(|value| values.contains(&value.to_string()))
    };
    variant.axes.len() == winner.config.0.len() && variant.axes.iter().all(named)
}

/// The winners of every device the store knows, this one as the default.
pub(super) fn header(kept: &Kept) -> Result<String, Failure> {
    let winner = &kept.edition.verdict.winner;
    if !is_setting(kept, winner) {
        let why = "is not among the settings its variant has here: expected a record of this program (tune it again)";
        return Err(Failure::NoAnswer(format!("the stored winner {} {why}", visible(&winner.to_string()))));
    }
    let guard = format!("WARPLAP_{}_H", macro_name(kept.key.split(',').next().unwrap_or(kept.op)));
    let mut text = format!(
        "/* Written by warplap {} for {}. */\n#ifndef {guard}\n#define {guard}\n\n",
        comment(&kept.edition.program),
        comment(&kept.problem)
    );
    let mut others: Vec<(&str, &TuningRun)> = kept
        .everywhere
        .iter()
        .filter(|(slug, _)| *slug != kept.device)
        .filter_map(|(slug, record)| Some((slug.as_str(), record.editions.last()?)))
        .collect();
    others.sort_by_key(|(slug, _)| *slug);
    for (n, (slug, edition)) in others.iter().enumerate() {
        let word = if n == 0 { "#if" } else { "#elif" };
        text.push_str(&format!("{word} defined(WARPLAP_DEVICE_{})\n{}", macro_name(slug), section(edition)?));
    }
    let here =
        format!("/* WARPLAP_DEVICE_{}, and the default */\n{}", macro_name(&kept.device), section(&kept.edition)?);
    match others.is_empty() {
        true => text.push_str(&here),
        false => text.push_str(&format!("#else\n{here}#endif\n")),
    }
    text.push_str("\n#endif\n");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_or_value_that_is_code_stays_a_name_or_value() {
        assert_eq!(comment("x */ int y = system(\"id\"); /*"), "x * / int y = system(\"id\"); / *");
        assert_eq!(comment("a\\\nb ??/ \u{9b}"), "a/ b ? ?/ /u{9b}");
        assert_eq!(literal(&Value::from("avx2")), "avx2");
        assert_eq!(literal(&Value::from("system(0)")), "\"system(0)\"");
        assert_eq!(literal(&Value::from("1\n#include \"x\"")), "\"1\\012#include \\042x\\042\"");
        assert_eq!(literal(&Value::from("return")), "\"return\"");
        assert_eq!((literal(&Value::from(true)), literal(&Value::from(-3))), ("1".into(), "-3".into()));
        for bad in ["", "4", "a b", "if", "x(y) system(0)", "N\n#define M", "größe"] {
            assert!(!is_identifier(bad), "{bad}");
        }
    }
}
