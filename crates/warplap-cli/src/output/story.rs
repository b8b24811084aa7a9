//! The story of a verdict in sentences, the same wherever it is told: who won, by how much, how surely.

use warplap::any::VariantStatus;
use warplap::core::record::TuningRun;

use crate::answer::Tally;
use crate::units;

/// How the verdict came about, in one sentence.
pub(crate) fn decided(edition: &TuningRun) -> String {
    let verdict = &edition.verdict;
    let ahead = match (&verdict.runner_up, verdict.margin) {
        (Some(second), Some(margin)) if !verdict.ties.contains(second) => {
            format!("{:.1} % ahead of {second}", 100.0 * margin.max(0.0))
        }
        (Some(second), _) => format!("a tie with {second}"),
        _ => "nobody else was timed".into(),
    };
    let others = verdict.ties.len().saturating_sub(1);
    let ties = if others > 0 { format!(" and {}", units::some(others, "other", "others")) } else { String::new() };
    let why = verdict.won_by.reason().map(|why| format!(" ({why})")).unwrap_or_default();
    let sure = match verdict.confidence {
        sure if sure > 0.0 => format!("{} within {:.1} % of the best", units::sure(sure), 100.0 * verdict.eps),
        _ => "the samples do not say how surely".into(),
    };
    let tally = Tally::of(edition);
    let raced = format!(
        "{} tried, {} rounds, {} launches, {:.1} s",
        tally.tried,
        verdict.rounds,
        units::count(verdict.launches),
        edition.seconds
    );
    let later = if verdict.grade.is_provisional() { ", provisional: the next tune goes on with it" } else { "" };
    format!("{ahead}{ties}{why}; {sure}; {}{later} ({raced})", verdict.grade.word())
}

/// How the winner did in a program's own call, where it met somebody there.
pub(crate) fn called(edition: &TuningRun) -> Option<String> {
    let contest = edition.end_to_end_race.as_ref()?;
    let (time, longer) = (units::time(contest.call_us), 100.0 * contest.gap);
    Some(match longer {
        longer if longer >= 0.0 => {
            format!("{time} as a program calls it; {} takes {longer:.1} % longer", contest.other)
        }
        _ => format!("{time} as a program calls it; {} cannot be told from it there", contest.other),
    })
}

/// Who won, in one line.
pub(crate) fn headline(edition: &TuningRun) -> String {
    let verdict = &edition.verdict;
    let spread = units::plus_minus(verdict.median_us, verdict.ci_us);
    format!("{} takes {} {spread}", verdict.winner, units::time(verdict.median_us))
}

/// What the winner is worth beside the best library and the reference, where they were timed.
pub(crate) fn beside(edition: &TuningRun, variants: &[VariantStatus]) -> Vec<String> {
    let ranked = edition.ranked();
    let best = |over: &dyn Fn(&VariantStatus) -> bool| {
        let named = |id: &str| variants.iter().any(|v| v.id == id && over(v));
        ranked.iter().find(|r| named(&r.trial.candidate.variant))
    };
    let mut lines = Vec::new();
    for (what, result) in [("best library", best(&|v| v.library)), ("reference", best(&|v| v.reference && !v.library))]
    {
        let Some(result) = result else { continue };
        let name = &result.trial.candidate;
        lines.push(match (result.won, result.ratio()) {
            (true, _) => format!("the {what} itself won"),
            (false, Some(ratio)) => {
                let (ratio, time) = (units::times_between(Some(ratio)), units::time(result.time_us));
                format!("{ratio} as fast as the {what}: {name}, {time}")
            }
            (false, None) => format!("the {what}, {name}, was not timed in the winner's rounds: no ratio"),
        });
    }
    lines
}

/// What the winner reaches, where the work is known.
pub(crate) fn reaches(edition: &TuningRun) -> Option<String> {
    let us = edition.verdict.median_us;
    let rate = (edition.work.flops > 0.0).then(|| units::rate(edition.work.flops / us * 1e6));
    let share = edition.floor_us.map(|floor| {
        format!("{} of the roofline (nothing is faster than {})", units::percent(Some(floor / us)), units::time(floor))
    });
    let parts: Vec<String> = rate.into_iter().chain(share).collect();
    (!parts.is_empty()).then(|| format!("reaches {}", parts.join(", ")))
}
