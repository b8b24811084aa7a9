//! The targets: bytes come in, what was said of them goes out; what must hold is asserted on the way. One list, in the
//! order they are run.

mod fleet;
mod spaces;
mod specs;
mod store;
mod tables;
mod texts;
mod workers;

use warplap::core::sanitize_text;

/// One parser.
pub(crate) struct Target {
    /// Its name, which is also its folder in the corpus.
    pub(crate) name: &'static str,
    /// What is tried.
    pub(crate) run: fn(&[u8]) -> String,
}

const fn target(name: &'static str, run: fn(&[u8]) -> String) -> Target {
    Target { name, run }
}

/// Every parser that reads what others may have written.
pub(crate) const TARGETS: &[Target] = &[
    target("file", store::file),
    target("record", store::record),
    target("bundle", store::bundle),
    target("lines", store::lines),
    target("signed", store::signed),
    target("reader", store::reader),
    target("note", store::note),
    target("identity", store::identity),
    target("lease", store::lease),
    target("key", store::key),
    target("recorded", spaces::recorded),
    target("definition", spaces::definition),
    target("expression", spaces::expression),
    target("rule", spaces::rule),
    target("config", spaces::config),
    target("spec", specs::spec),
    target("t1", specs::t1),
    target("npy", specs::npy),
    target("order", workers::order),
    target("report", workers::report),
    target("cell", workers::cell),
    target("artifact", workers::artifact),
    target("problem", texts::problem),
    target("address", texts::address),
    target("words", texts::words),
    target("moe", tables::moe),
    target("sweep", tables::sweep),
    target("log", tables::log),
    target("job", fleet::jobs),
];

/// What was said, of a success or a failure.
fn said<T>(answer: Result<T, impl std::fmt::Display>) -> String {
    answer.map_or_else(|e| e.to_string(), |_| "understood".into())
}

/// Whether a sentence is short enough to be read, whatever it quotes.
fn is_short(sentence: &str) -> bool {
    sentence.len() < 5000
}

/// Whether a sentence about what others wrote has nothing in it that a terminal would obey.
fn is_seen(sentence: &str) -> bool {
    sanitize_text::visible(sentence) == sentence
}
