//! An answer of `tune`: what is known of a problem now. It becomes a JSON line or a row of the table.

use serde_json::{Map, Value, json};
use warplap::How;
use warplap::any::VariantStatus;
use warplap::core::candidate::{Candidate, Outcome, Trial};
use warplap::core::objective::Objective;
use warplap::core::ranking::Ranked;
use warplap::core::record::TuningRun;
use warplap::core::rejection::Rejection;
use warplap::core::timing::Stages;
use warplap::core::verdict::Grade;

use crate::console::{BAD, DIM, GOOD, NAME, WARN, paint};
use crate::table::{Cell, Table};
use crate::units;

/// What is known of a problem now.
pub(crate) struct Answer {
    pub(crate) op: &'static str,
    pub(crate) problem: String,
    pub(crate) key: String,
    pub(crate) device: String,
    pub(crate) mode: &'static str,
    pub(crate) how: How,
    pub(crate) winner: Candidate,
    /// Absent where nothing was ever measured.
    pub(crate) edition: Option<TuningRun>,
    /// The size its times are of, where that is another one than was asked for.
    pub(crate) measured_at: Option<String>,
    /// What became of a provisional record that was there.
    pub(crate) note: Option<String>,
    /// Wall seconds this answer took.
    pub(crate) seconds: f64,
    /// What was raced for.
    pub(crate) objective: Objective,
    /// Joules of one launch of the winner, or why there are none, where the spec asks.
    pub(crate) joules: Option<Result<f64, &'static str>>,
    /// Where they went.
    pub(crate) stages: Stages,
    /// Libraries built for it just now, seconds of all builds, and seconds in which at least one was under way.
    pub(crate) builds: Option<(usize, f64, f64)>,
    pub(crate) variants: Vec<VariantStatus>,
}

/// How many candidates came to which end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) tried: u64,
    pub(crate) wrong: u64,
    pub(crate) crashed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    pub(crate) fn of(edition: &TuningRun) -> Tally {
        let skipped = edition.skipped.iter().map(|s| s.configs.max(1)).sum();
        // Where the budget ended the race, those whose turn never came were skipped, not lost.
        let capped = edition.verdict.grade == Grade::Capped;
        let mut tally = Tally { tried: edition.trials.len() as u64, skipped, ..Tally::default() };
        for trial in &edition.trials {
            match &trial.outcome {
                Outcome::Rejected(Rejection::WrongAnswer { .. } | Rejection::Impossible { .. }) => tally.wrong += 1,
                Outcome::Rejected(Rejection::TimedOut { .. }) if capped => {
                    tally.tried -= 1;
                    tally.skipped += 1;
                }
                Outcome::Measured(_) | Outcome::Rejected(Rejection::Outpaced { .. }) => {}
                Outcome::Rejected(_) => tally.crashed += 1,
            }
        }
        tally
    }
}

impl Answer {
    /// Whether nothing was measured for it.
    pub(crate) fn is_stored(&self) -> bool {
        matches!(self.how, How::Stored | How::Stale | How::Foreign(_))
    }

    /// Launches timed for it just now.
    pub(crate) fn launches(&self) -> u64 {
        let raced = self.edition.as_ref().filter(|_| self.how == How::Raced);
        raced.map_or(0, |e| e.verdict.launches)
    }

    /// The share of the roofline the winner reached.
    pub(crate) fn roofline(&self) -> Option<f64> {
        let edition = self.edition.as_ref()?;
        Some(edition.floor_us? / edition.verdict.median_us)
    }

    /// How many times faster the winner is than the best of some variants, and the interval of that; `None` where no
    /// rounds tell.
    fn speedup(&self, over: impl Fn(&VariantStatus) -> bool) -> Option<(f64, [f64; 2])> {
        let edition = self.edition.as_ref()?;
        let named = |id: &str| self.variants.iter().any(|v| v.id == id && over(v));
        edition.ranked().into_iter().find(|r| named(&r.trial.candidate.variant))?.ratio()
    }

    pub(crate) fn over_reference(&self) -> Option<(f64, [f64; 2])> {
        self.speedup(|v| v.reference)
    }

    pub(crate) fn over_library(&self) -> Option<(f64, [f64; 2])> {
        self.speedup(|v| v.library)
    }

    /// The JSON line.
    pub(crate) fn json(&self) -> Value {
        let verdict = self.edition.as_ref().map(|e| &e.verdict);
        let tflops = self.edition.as_ref().map(|e| e.work.flops / e.verdict.median_us * 1e-6);
        let ranked = self.edition.as_ref().map(TuningRun::ranked).unwrap_or_default();
        let failed = self.edition.iter().flat_map(|e| &e.trials).filter(|t| !t.is_right());
        let trials: Vec<Value> = (ranked.iter().map(|r| timed(r, &self.objective)))
            .chain(failed.map(|t| trial(t, &self.objective)))
            .collect();
        let skipped: Vec<Value> = (self.edition.iter().flat_map(|e| &e.skipped))
            .map(|s| json!({"variant": s.variant, "configs": s.configs, "reason": s.reason}))
            .collect();
        let mut line = json!({
            "op": self.op,
            "problem": self.problem,
            "key": self.key,
            "device": self.device,
            "mode": self.mode,
            "how": how(&self.how),
            "from_store": self.is_stored(),
            "winner": {"variant": self.winner.variant, "config": self.winner.config},
            "median_us": verdict.map(|v| v.median_us),
            "ci_us": verdict.map(|v| v.ci_us),
            "tflops": tflops,
            "roofline_fraction": self.roofline(),
            "grade": verdict.map(|v| v.grade.word()),
            "confidence": verdict.map(|v| v.confidence).filter(|c| *c > 0.0),
            "tie": verdict.is_some_and(|v| v.is_tie()),
            "won_by": verdict.map(|v| v.won_by),
            "note": self.note,
            "measured_at": self.measured_at,
            "speedup_reference": self.over_reference().map(|(ratio, _)| ratio),
            "speedup_reference_ci": self.over_reference().map(|(_, ci)| ci),
            "speedup_library": self.over_library().map(|(ratio, _)| ratio),
            "speedup_library_ci": self.over_library().map(|(_, ci)| ci),
            "trials": trials,
            "skipped": skipped,
            "launches": self.launches(),
            "seconds": self.seconds,
            "stages": self.stages.iter().map(|(stage, s)| ((*stage).to_string(), json!(s))).collect::<Map<_, _>>(),
        });
        if let Some((value, ci)) = self.reached() {
            let goal = if self.objective.is_highest() { "highest" } else { "lowest" };
            line["objective"] = json!({"name": self.objective.name(), "goal": goal, "value": value, "ci": ci});
        }
        if let Some(joules) = self.joules {
            line["joules"] = json!(joules.ok());
        }
        if let Some((count, seconds, under_way)) = self.builds {
            line["builds"] = json!({"count": count, "seconds": seconds, "under_way_seconds": under_way});
        }
        line
    }

    /// What the winner was raced for and its interval, where that was not its time.
    pub(crate) fn reached(&self) -> Option<(f64, [f64; 2])> {
        let edition = self.edition.as_ref()?;
        let own = edition.trials.iter().find(|t| t.candidate == edition.verdict.winner)?;
        let cost = own.measurement()?.cost.as_ref()?;
        let mut ci = cost.ci.map(|c| self.objective.value(c));
        ci.sort_by(f64::total_cmp);
        Some((self.objective.value(cost.median), ci))
    }

    /// What it was raced for, in words.
    pub(crate) fn raced_for(&self) -> Option<String> {
        let (value, [low, high]) = self.reached()?;
        Some(format!("{:?} of a launch: {value:.4e} [{low:.4e} … {high:.4e}]", self.objective))
    }

    /// One line while others still run.
    pub(crate) fn news(&self) -> String {
        let Some(verdict) = self.edition.as_ref().map(|e| &e.verdict) else {
            return format!("{}  {}  (not measured)", self.problem, self.winner);
        };
        let from = match &self.note {
            _ if self.is_stored() => "from the store".to_string(),
            Some(note) => format!("{:.1} s; {note}", self.seconds),
            None => format!("{:.1} s", self.seconds),
        };
        let (time, interval) = (units::time(verdict.median_us), units::plus_minus(verdict.median_us, verdict.ci_us));
        let at = self.of_another_size();
        format!("{}  {}  {time} {interval}{at}  {}  ({from})", self.problem, self.winner, verdict.grade.word())
    }

    /// Which size the times are of, where that is not the one that was asked for.
    fn of_another_size(&self) -> String {
        self.measured_at.as_ref().map(|at| format!(" at {at}")).unwrap_or_default()
    }

    /// Its place in the table: one row, or where the terminal is narrow a line with the names and a row with the
    /// numbers.
    pub(crate) fn put(&self, table: &mut Table, narrow: bool) {
        let other = self.measured_at.as_ref().map(|at| format!(" (times of {at})")).unwrap_or_default();
        let (problem, tie) = (units::short(&self.problem) + &other, if self.is_tie() { " ≈" } else { "" });
        let winner = format!("{}{tie}", self.winner);
        let numbers = self.numbers();
        if narrow {
            table.line(format!("  {problem} {} {}", paint(DIM, "→"), paint(NAME, winner)));
            table.row(std::iter::once(Cell::from("    ")).chain(numbers).collect::<Vec<_>>());
        } else {
            let names = [Cell::from(format!("  {problem}")), Cell::styled(winner, NAME)];
            table.row(names.into_iter().chain(numbers).collect::<Vec<_>>());
        }
    }

    /// Whether another candidate could have won as well.
    pub(crate) fn is_tie(&self) -> bool {
        self.edition.as_ref().is_some_and(|e| e.verdict.is_tie())
    }

    fn numbers(&self) -> [Cell; 10] {
        let dash = || Cell::styled("—", DIM);
        let Some(edition) = &self.edition else {
            let no = Cell::default;
            let grade = Cell::styled("not measured", DIM);
            return [dash(), no(), dash(), dash(), dash(), no(), no(), no(), no(), grade];
        };
        let verdict = &edition.verdict;
        let tally = Tally::of(edition);
        let bad = |n: u64| if n == 0 { Cell::styled(n, DIM) } else { Cell::styled(n, BAD) };
        let gain = |ratio: Option<(f64, [f64; 2])>| match ratio {
            Some((r, [low, _])) if low >= 1.05 => Cell::styled(units::times(Some(r)), GOOD),
            Some((r, _)) => units::times(Some(r)).into(),
            None => dash(),
        };
        [
            units::time(verdict.median_us).into(),
            Cell::styled(units::plus_minus(verdict.median_us, verdict.ci_us), DIM),
            gain(self.over_reference()),
            gain(self.over_library()),
            units::percent(self.roofline()).into(),
            tally.tried.into(),
            bad(tally.wrong),
            bad(tally.crashed),
            Cell::styled(tally.skipped, DIM),
            grade(verdict.grade),
        ]
    }

    /// The table of all answers, operation by operation.
    pub(crate) fn table(answers: &[Answer], narrow: bool) -> Table {
        let names = ["  problem", "~winner"];
        let wide = [
            ">time",
            ">±",
            ">vs reference",
            ">vs library",
            ">roofline",
            ">tried",
            ">wrong",
            ">crashed",
            ">skipped",
            "grade",
        ];
        let short = [">time", ">±", ">vs ref", ">vs lib", ">roof", ">tried", ">wrong", ">crash", ">skip", "grade"];
        let mut table = match narrow {
            true => Table::new(&[&[""][..], &short].concat()),
            false => Table::new(&[&names[..], &wide].concat()),
        };
        let mut op = "";
        for answer in answers {
            if answer.op != op {
                op = answer.op;
                table.section(op);
            }
            answer.put(&mut table, narrow);
        }
        table
    }

    /// What ± and the grades are, in one line for under the table.
    pub(crate) fn legend(answers: &[Answer]) -> Option<String> {
        let any = answers.iter().any(|a| a.edition.is_some());
        let ratios = "×: by rounds in which both ran, — where there are none";
        any.then(|| format!("±: half the 95 % interval of the winner's time; {ratios}; {}", Grade::LEGEND))
    }

    /// The table as it fits into the terminal.
    pub(crate) fn render(answers: &[Answer], width: Option<usize>) -> String {
        let wide = Answer::table(answers, false);
        let narrow = width.is_some_and(|width| wide.width() > width);
        if narrow { Answer::table(answers, true).render(width) } else { wide.render(width) }
    }
}

/// A grade in its colour.
pub(crate) fn grade(grade: Grade) -> Cell {
    let style = match grade {
        Grade::Clean => GOOD,
        Grade::Noisy | Grade::Contended => WARN,
        Grade::Capped => DIM,
    };
    Cell::styled(grade.word(), style)
}

/// One word for how a candidate was chosen.
pub(crate) fn how(how: &How) -> &'static str {
    match how {
        How::Raced => "raced",
        How::Stored => "stored",
        How::Stale => "stale",
        How::Foreign(_) => "foreign",
        How::Default(_) => "default",
    }
}

/// One that was timed: the time that compares with the winner's, its own median, and its gap to the winner.
fn timed(ranked: &Ranked<'_>, objective: &Objective) -> Value {
    let mut line = trial(ranked.trial, objective);
    line["median_us"] = ranked.time_us.into();
    line["own_median_us"] = ranked.measurement.median_us.into();
    line["behind"] = json!({"by": ranked.behind, "ci": ranked.ci, "tie": ranked.tie});
    line
}

fn trial(trial: &Trial, objective: &Objective) -> Value {
    let mut line = json!({"variant": trial.candidate.variant, "config": trial.candidate.config});
    if let Some(cost) = trial.measurement().and_then(|m| m.cost.as_ref()) {
        line["objective"] = objective.value(cost.median).into();
        line["joules"] = json!(cost.joules);
    }
    if let Outcome::Rejected(rejection) = &trial.outcome {
        line["rejection"] = rejection.word().into();
        line["reason"] = rejection.to_string().into();
    }
    line
}
