//! Everyone who was timed for a key, as a table: an edition comes in; rows in the order that was decided go out, with
//! each one's gap to the winner, as wide as the terminal is.

use warplap::core::candidate::{Candidate, Outcome};
use warplap::core::ranking::Ranked;
use warplap::core::record::TuningRun;
use warplap::core::verdict::Grade;

use crate::console::{Console, DIM, GOOD, NAME, WARN, paint};
use crate::names::distinct_names;
use crate::strip::strip;
use crate::table::{Cell, Table};
use crate::units;

/// Losers shown unless `-v` asks for all.
const SHOWN: usize = 12;

/// Everyone who was timed, in the order that was decided.
pub(crate) fn table(edition: &TuningRun, console: &Console) -> String {
    let ranked = edition.ranked();
    let shown = if console.verbose > 0 { ranked.len() } else { SHOWN.min(ranked.len()) };
    if shown == 0 {
        return String::new();
    }
    let ranked_shown = &ranked[..shown];
    let candidates: Vec<&Candidate> = ranked_shown.iter().map(|r| &r.trial.candidate).collect();
    let full: Vec<String> = candidates.iter().map(ToString::to_string).collect();
    let mut table = rows(ranked_shown, &full, Form::Whole);
    let mut notes = Vec::new();
    if let Some(width) = console.width().filter(|width| table.width() > *width) {
        // What all share gives way first, then the samples' place, then the line itself: never what distinguishes.
        let (names, common) = distinct_names(&candidates);
        notes = common;
        table = rows(ranked_shown, &names, Form::Short);
        if table.width() > width {
            table = rows(ranked_shown, &names, Form::TwoLines);
        }
    }
    if ranked.len() > shown {
        notes.push(format!("and {} slower ones (-v shows all)", ranked.len() - shown));
    }
    notes.push("times: the winner's own, the others' by their gap to it; ±: half the 95 % interval of the gap".into());
    notes.push(Grade::LEGEND.into());
    format!("\n{}{}\n", table.render(console.width()), paint(DIM, notes.join("\n")))
}

/// How much room a table of candidates has.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Whole,
    Short,
    TwoLines,
}

fn rows(ranked: &[Ranked<'_>], names: &[String], form: Form) -> Table {
    let other = ranked.iter().any(|r| r.measurement.cost.is_some());
    let behind = if other { ">behind by" } else { ">slower by" };
    let first = if form == Form::TwoLines { "    " } else { "ran" };
    let mut heads = vec![first, ">time", behind, ">±", ">rounds", ""];
    if form == Form::Whole {
        heads.insert(5, "samples");
    }
    let mut table = Table::new(&heads);
    for (r, name) in ranked.iter().zip(names) {
        let mark = match &r.trial.outcome {
            _ if r.won => Cell::styled("won", GOOD),
            _ if r.tie => Cell::styled("tie", WARN),
            Outcome::Measured(_) => "stayed".into(),
            _ => Cell::styled("outpaced", DIM),
        };
        let style = if r.won { NAME } else { anstyle::Style::new() };
        let gap: Cell = match (r.won, r.ci) {
            (true, _) => "".into(),
            (false, Some(_)) => format!("{:.1} %", 100.0 * r.behind).into(),
            // No rounds tell: its time is of another moment.
            (false, None) => Cell::styled("—", DIM),
        };
        let spread = r.plus_minus().map(|p| format!("{:.1} %", 100.0 * p)).unwrap_or_default();
        let first = match form {
            Form::TwoLines => {
                table.line(paint(style, name));
                Cell::from("    ")
            }
            _ => Cell::styled(name, style),
        };
        let mut row =
            vec![first, units::time(r.time_us).into(), gap, Cell::styled(spread, DIM), r.measurement.rounds.into()];
        if form == Form::Whole {
            row.push(Cell::styled(strip(&r.measurement.samples_us, 20), DIM));
        }
        row.push(mark);
        table.row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use warplap::core::candidate::{SourceHash, Trial};
    use warplap::core::measure::{Behind, Measurement};
    use warplap::core::space::Config;

    #[test]
    fn eighty_columns_show_which_candidate_is_meant() {
        let trial = |n: i64, by: f64| {
            let config = Config::parse(&format!("isa=avx512,kc={n},keep=raw,threads=2,tile=14x32")).unwrap();
            let candidate = Candidate { variant: "packed".into(), config, source: SourceHash(String::new()) };
            let behind = Some(Box::new(Behind { by, ci: [by - 0.01, by + 0.01] }));
            let measured = Measurement { median_us: 100.0, behind, ..Measurement::default() };
            Trial::new(candidate, Outcome::Measured(measured))
        };
        let trials = [trial(128, 0.0), trial(256, 0.2), trial(512, 0.3)];
        let ranked: Vec<Ranked<'_>> = trials
            .iter()
            .map(|trial| {
                let measurement = trial.measurement().unwrap();
                let behind = measurement.behind.as_deref().unwrap();
                let (by, ci) = (behind.by, Some(behind.ci));
                Ranked { trial, measurement, won: by == 0.0, tie: false, behind: by, ci, time_us: 100.0 * (1.0 + by) }
            })
            .collect();
        let candidates: Vec<&Candidate> = trials.iter().map(|t| &t.candidate).collect();
        for form in [Form::Short, Form::TwoLines] {
            let text = rows(&ranked, &distinct_names(&candidates).0, form).render(Some(80));
            let text = anstream::adapter::strip_str(&text).to_string();
            assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
            assert!(["kc=128", "kc=256", "kc=512", "20.0 %", "1.0 %"].iter().all(|w| text.contains(w)), "{text}");
        }
    }
}
