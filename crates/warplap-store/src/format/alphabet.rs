//! Alphabets: a name or a text of a record comes in; whether it is made of nothing else than it may be goes out.
//!
//! What is read from a record is shown on terminals, written into headers and handed to compilers. So names are made of
//! letters and digits and little else, and no text has what ends a string, a comment or a line.

use crate::io::sanitize_text::{is_harmful, is_unseen};
use crate::records::candidate::Candidate;
use crate::records::config::Value;
use crate::records::record::{Record, TuningRun};

fn made_of(text: &str, also: &str, longest: usize) -> bool {
    (1..=longest).contains(&text.len()) && text.chars().all(|c| c.is_alphanumeric() || also.contains(c))
}

/// Whether a text can be a variant's id.
pub fn is_variant(text: &str) -> bool {
    made_of(text, "_-.:+@<>[] ", 256)
}

/// Whether a text can be an axis' name.
pub fn is_axis(text: &str) -> bool {
    made_of(text, "_-.", 128)
}

/// Whether a value can be one of an axis.
pub fn is_value(value: &Value) -> bool {
    match value {
        Value::Bool(_) | Value::Int(_) => true,
        Value::Float(x) => x.0.is_finite(),
        Value::Text(text) => text.is_empty() || made_of(text, "_-.:+@<>/[]() ,=|", 1024),
    }
}

/// A word for a message: shortened, and made of what can be seen.
fn shown(text: &str) -> String {
    crate::names::shorten(text)
}

fn odd_candidate(candidate: &Candidate) -> Option<String> {
    let Candidate { variant, config, source } = candidate;
    if !is_variant(variant) {
        return Some(format!("'{}' is no variant's name", shown(variant)));
    }
    if !made_of(&source.0, "", 64) {
        return Some(format!("'{}' is no source's identity", shown(&source.0)));
    }
    let odd = config.0.iter().find(|(axis, value)| !is_axis(axis) || !is_value(value))?;
    Some(format!("'{}={}' is no setting of an axis", shown(odd.0), shown(&odd.1.to_string())))
}

fn odd_edition(edition: &TuningRun) -> Option<String> {
    let TuningRun { verdict, trials, skipped, end_to_end_race, sizes, .. } = edition;
    if !made_of(&edition.origin, "_-", 64) {
        return Some(format!("'{}' is no store's id", shown(&edition.origin)));
    }
    if !made_of(&edition.program, ".+-", 64) {
        return Some(format!("'{}' is no program's version", shown(&edition.program)));
    }
    if let Some(fact) = odd_fact(&edition.soft) {
        return Some(fact);
    }
    if let Some(s) = skipped.iter().find(|s| !is_variant(&s.variant) || !made_of(&s.source.0, "", 64)) {
        return Some(format!("'{}' is no variant's name", shown(&s.variant)));
    }
    let named = std::iter::once(&verdict.winner).chain(&verdict.runner_up).chain(&verdict.ties);
    let contest = end_to_end_race.iter().flat_map(|contest| [&contest.winner, &contest.other]);
    if sizes.iter().any(|size| size.problem.chars().any(is_harmful)) {
        return Some("a size that it knows is no problem".into());
    }
    let of_sizes = sizes.iter().flat_map(|s| std::iter::once(&s.winner).chain(s.behind.iter().map(|(c, _)| c)));
    named.chain(contest).chain(of_sizes).chain(trials.iter().map(|t| &t.candidate)).find_map(odd_candidate)
}

/// A fact of a fingerprint that is none.
fn odd_fact(facts: &std::collections::BTreeMap<String, String>) -> Option<String> {
    let odd = |(name, value): &(&String, &String)| !is_axis(name) || value.len() > 4096 || value.chars().any(is_unseen);
    facts.iter().find(odd).map(|(name, _)| format!("'{}' is no fact of a device", shown(name)))
}

/// The first name or value of a record that is made of something else than it may be.
pub(crate) fn odd(record: &Record) -> Option<String> {
    for (what, text) in [("key", &record.key), ("problem", &record.problem)] {
        if let Some(c) = text.chars().find(|c| is_harmful(*c)) {
            return Some(format!("its {what} has the character {:?}", c));
        }
    }
    odd_fact(&record.device).or_else(|| record.editions.iter().find_map(odd_edition))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kernels_and_settings_are_taken_and_code_is_not() {
        for good in ["gemm_tiled", "torch.nn.linear", "f.<locals>.g", "x-y:z", "größe", "sm_90a:128x64"] {
            assert!(is_variant(good), "{good}");
        }
        for bad in [
            "",
            "../x",
            "a\"b",
            "a;b",
            "x */ system(0) /*",
            "system(\"id\")",
            "a\nb",
            "a\u{9b}31m",
            "$(id)",
            "a\\b",
            "`id`",
        ] {
            assert!(!is_variant(bad) && !is_axis(bad), "{bad}");
        }
        assert!(is_axis("BLOCK_M") && !is_axis("N 4 */") && !is_axis("a b"));
        for good in ["avx2", "None", "(1, 2)", "torch.float16", "i,j,k", ""] {
            assert!(is_value(&Value::from(good)), "{good}");
        }
        for bad in ["1\n#include <x>", "\"x\"", "4;system(0)", "{}", "\u{202e}x"] {
            assert!(!is_value(&Value::from(bad)), "{bad}");
        }
        assert!(!is_value(&Value::from(f64::NAN)));
    }
}
