//! What was decided about a graph, drawn: its nodes with brackets around what one launch computes, and what every other
//! choice took.

use std::fmt;

use crate::partition::Guess;
use warplap_core::candidate::Outcome;
use warplap_core::record::TuningRun;
use warplap_core::rejection::Rejection;

use super::node::Node;
use super::plan::Plan;

/// Partitions that did not race are shown up to so many.
const OTHERS: usize = 8;

pub(super) struct Story<'a> {
    pub(super) plan: &'a Plan,
    pub(super) key: String,
    /// In words: raced, from the store, or why nothing was measured.
    pub(super) how: String,
    /// The partition that runs.
    pub(super) winner: String,
    pub(super) edition: Option<TuningRun>,
    /// What everyone would take, where nobody raced for that reason.
    pub(super) guess: Option<&'a Guess>,
}

impl fmt::Display for Story<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = vec![self.key.clone(), format!("  {}", self.how), String::new()];
        lines.extend(self.drawn());
        if let Some(edition) = &self.edition {
            lines.extend(raced(edition));
            lines.extend(not_raced(edition));
        }
        lines.extend(self.guess.into_iter().flat_map(guess_lines));
        f.write_str(&lines.join("\n"))
    }
}

impl Story<'_> {
    /// What a value is called: as an input or output, or as its node.
    pub(super) fn name(&self, value: usize) -> String {
        let ends = self.plan.inputs.iter().chain(&self.plan.outputs);
        let end = ends.into_iter().find(|(_, end)| *end == value).map(|(name, _)| name.clone());
        let of = |node: &Node| {
            let at = node.outputs.iter().position(|arguments| *arguments == value)?;
            // Of several each has a number.
            Some(if node.outputs.len() > 1 { format!("{}.{at}", node.name) } else { node.name.clone() })
        };
        let node = || self.plan.nodes.iter().find_map(of);
        end.or_else(node).unwrap_or_default()
    }

    /// A line a node, with a bracket around what one launch computes.
    fn drawn(&self) -> Vec<String> {
        let partition = self.plan.partitions.iter().find(|p| p.id == self.winner);
        let covers = partition.map_or(&[][..], |p| &p.covers[..]);
        let label = |node: &Node| {
            let reads: Vec<String> = node.reads.iter().map(|value| self.name(*value)).collect();
            format!("{}({})", node.word(), reads.join(", "))
        };
        let arguments = |node: &Node| node.outputs.iter().map(|value| self.name(*value)).collect::<Vec<_>>().join(", ");
        let names: Vec<String> = self.plan.nodes.iter().map(arguments).collect();
        let labels: Vec<String> = self.plan.nodes.iter().map(label).collect();
        let wide = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let does = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
        let line = |(at, call): (usize, &super::node::Call)| {
            let cover = covers.iter().find(|cover| self.plan.covers[**cover].nodes.contains(&at));
            let (mark, who) = match cover.map(|cover| (*cover, &self.plan.covers[*cover])) {
                None => (" ", call.task.op().to_string()),
                Some((cover, result)) => {
                    let (first, last) = (result.nodes.first() == Some(&at), result.nodes.last() == Some(&at));
                    let ops: Vec<&str> = result.tasks().map(|task| task.op()).collect();
                    let who = format!("{}: {}", ops.join(" + "), self.plan.kind(cover));
                    match (first, last) {
                        (true, true) => ("─", who),
                        (false, true) => ("└", who),
                        (true, false) => ("┌", String::new()),
                        (false, false) => ("│", String::new()),
                    }
                }
            };
            format!("  {:<wide$}  {:<does$}  {mark} {who}", names[at], labels[at]).trim_end().to_string()
        };
        self.plan.alone.iter().enumerate().map(line).collect()
    }
}

/// What everyone would take, the fastest first.
fn guess_lines(guess: &Guess) -> Vec<String> {
    let mut all: Vec<(&String, f64)> = guess.seconds.iter().map(|(name, seconds)| (name, seconds * 1e6)).collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (wide, least) = (all.iter().map(|(name, _)| name.len()).max().unwrap_or(0), all.first().map_or(1.0, |a| a.1));
    let mut lines = vec![String::new(), "  told by their parts, not raced".to_string()];
    lines.extend(all.iter().map(|(name, us)| format!("  {name:<wide$}  {us:10.1} µs  {:5.2}×", us / least)));
    lines
}

/// Who raced as a whole, the winner first, and who left and why.
fn raced(edition: &TuningRun) -> Vec<String> {
    let ranked = edition.ranked();
    let left: Vec<(&str, &Rejection)> = (edition.trials.iter())
        .filter_map(|trial| match &trial.outcome {
            Outcome::Rejected(why) if !trial.is_right() => Some((trial.candidate.variant.as_str(), why)),
            _ => None,
        })
        .collect();
    let names = ranked.iter().map(|r| r.trial.candidate.variant.as_str()).chain(left.iter().map(|(name, _)| *name));
    let wide = names.map(str::len).max().unwrap_or(0);
    let mut lines = vec![String::new(), "  raced as a whole".to_string()];
    for r in &ranked {
        let tie = if r.tie { "  no difference was seen" } else { "" };
        let (name, times) = (&r.trial.candidate.variant, 1.0 + r.behind);
        lines.push(format!("  {name:<wide$}  {:10.1} µs  {times:5.2}×{tie}", r.time_us));
    }
    lines.extend(left.iter().map(|(name, why)| format!("  {name:<wide$}  {why}")));
    lines
}

/// Partitions that did not race: by what their parts took, or why.
fn not_raced(edition: &TuningRun) -> Vec<String> {
    let number = |reason: &str| reason.strip_suffix(" µs").and_then(|n| n.parse::<f64>().ok());
    let all = || edition.skipped.iter().map(|s| (number(&s.reason), &*s.variant, &*s.reason));
    let mut timed: Vec<_> = all().filter(|(us, ..)| us.is_some()).collect();
    timed.sort_by(|a, b| a.0.unwrap_or(0.0).total_cmp(&b.0.unwrap_or(0.0)));
    let others: Vec<_> = all().filter(|(us, ..)| us.is_none()).collect();
    let mut lines = Vec::new();
    for (head, part) in [("by their parts, not raced", timed), ("not raced", others)] {
        if !part.is_empty() {
            lines.extend([String::new(), format!("  {head}")]);
            lines.extend(part.iter().take(OTHERS).map(|(_, name, text)| format!("  {text:>13}  {name}")));
        }
    }
    lines
}
