//! What the program reads beside: tables of vLLM's, sweeps, a compiler's log.

use warplap::cuda::Report;
use warplap_cli::fuzzing;

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A table of vLLM's: the first line is its file's name.
pub(crate) fn moe(bytes: &[u8]) -> String {
    let text = text(bytes);
    let (name, body) = text.split_once('\n').unwrap_or((&text, ""));
    super::said(fuzzing::moe(name, body))
}

/// A sweep: few problems, and every one of them differs.
pub(crate) fn sweep(bytes: &[u8]) -> String {
    let problems = fuzzing::sweep(&text(bytes));
    if let Ok(problems) = &problems {
        assert!((1..=1000).contains(&problems.len()));
        assert!(problems.windows(2).all(|two| two[0] != two[1]), "{problems:?}");
    }
    super::said(problems)
}

/// What a compiler said of a kernel.
pub(crate) fn log(bytes: &[u8]) -> String {
    Report::parse(&text(bytes)).refusal().map_or("no objection".into(), |refusal| refusal.to_string())
}
