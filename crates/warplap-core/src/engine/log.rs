//! What is told of a race: a problem and what came of it come in; one line when it starts and one when it ends go out, to
//! `tracing` at the level info.

use crate::device::Device;
use crate::engine::settings::Settings;
use crate::error::Error;
use crate::model::erased::ErasedProblem;
use crate::record::TuningRun;

/// A race starts.
pub(crate) fn started<D: Device>(erased: &dyn ErasedProblem<D>, settings: &Settings) {
    tracing::info!("{}: racing for up to {} s", erased.text(), settings.budget.seconds);
}

/// A race has ended after so many seconds.
pub(crate) fn ended<D: Device>(erased: &dyn ErasedProblem<D>, outcome: Result<&TuningRun, &Error>, seconds: f64) {
    let problem = erased.text();
    match outcome {
        Ok(edition) => tracing::info!("{problem}: {} ({seconds:.2} s)", news(erased, edition)),
        // Whoever asked says it.
        Err(Error::NoTime { .. }) => {}
        Err(error) => tracing::info!("{problem}: nobody won: {error} ({seconds:.2} s)"),
    }
}

/// Who won, and by how much over which library; over the reference where no library raced.
fn news<D: Device>(erased: &dyn ErasedProblem<D>, edition: &TuningRun) -> String {
    let verdict = &edition.verdict;
    let (winner, own) = (&verdict.winner, time(verdict.median_us));
    let is_library = |id: &str| erased.find(id).is_some_and(|v| v.is_library());
    if is_library(&winner.variant) {
        return format!("{winner} of a library won with {own}");
    }
    let ranked = edition.ranked();
    let best = |among: &dyn Fn(&str) -> bool| {
        let other = ranked.iter().find(|r| !r.won && among(&r.trial.candidate.variant))?;
        Some((other, other.ratio()?))
    };
    match best(&is_library).or_else(|| best(&|id| erased.is_baseline(id))) {
        Some((other, (times, [low, high]))) => {
            let (candidate, us) = (&other.trial.candidate, time(other.time_us));
            format!("{winner} won with {own}, {times:.2}× as fast as {candidate} with {us} ({low:.2} to {high:.2}×)")
        }
        None => format!("{winner} won with {own}"),
    }
}

/// A time in the unit that suits it.
fn time(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.1} µs"),
        us if us < 1e6 => format!("{:.3} ms", us / 1e3),
        us => format!("{:.3} s", us / 1e6),
    }
}
