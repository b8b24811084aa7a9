//! Going on: answers that are not decided yet come in; how many are, and what deciding the others takes, go out as a
//! sentence, and with `--until-clean` they are raced on, with more seconds each time.

use crate::answer::Answer;

/// Seconds for a problem's race where nobody says how many.
const USUAL: f64 = 4.0;

/// Seconds for all of it where nobody says how many.
pub(super) const MOST_SECONDS: f64 = 600.0;

/// Passes over what is open, each with twice the seconds of the one before.
pub(super) const PASSES: u32 = 5;

/// What deciding takes of a pass's seconds, as seen: some problems need a second one.
const OF_A_PASS: f64 = 2.0;

impl Answer {
    /// Whether it answers for now only: it was measured, and not long or quietly enough.
    pub(super) fn is_open(&self) -> bool {
        self.edition.as_ref().is_some_and(|edition| edition.verdict.grade.is_provisional())
    }
}

/// Seconds for a problem in a pass; `budget` is what the user or the kernel's file says.
pub(super) fn seconds_of_pass(budget: Option<f64>, pass: u32) -> f64 {
    budget.unwrap_or(USUAL) * f64::from(1u32 << pass.min(PASSES))
}

/// How many answers are decided, and what deciding the others takes.
pub(super) fn sentence(answers: &[Answer], budget: Option<f64>, plain: bool, goes_on: bool) -> Option<String> {
    let (all, open) = (answers.len(), answers.iter().filter(|answer| answer.is_open()).count());
    if open == 0 {
        return None;
    }
    let decided = format!("{} of {all} decided", all - open);
    if goes_on {
        return Some(format!(
            "{decided}; the others were not within their seconds: a quieter machine helps, or --total"
        ));
    }
    let command = if plain { "`warplap tune --until-clean`" } else { "the same with --until-clean" };
    let seconds = open as f64 * budget.unwrap_or(USUAL) * OF_A_PASS;
    Some(format!("{decided}; {command} takes {}", about(seconds)))
}

/// A number of seconds for people.
pub(super) fn about(seconds: f64) -> String {
    if seconds < 90.0 { format!("about {} s", seconds.ceil()) } else { format!("about {:.0} min", seconds / 60.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_said_as_people_say_them_and_double_with_each_pass() {
        assert_eq!(
            (about(0.4), about(61.0), about(192.0)),
            ("about 1 s".into(), "about 61 s".into(), "about 3 min".into())
        );
        assert_eq!([0, 1, 2].map(|pass| seconds_of_pass(None, pass)), [4.0, 8.0, 16.0]);
        assert_eq!(seconds_of_pass(Some(0.5), 1), 1.0);
    }
}
