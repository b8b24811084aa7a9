//! The objective of a spec: a name or an expression over what a launch spends comes in; what candidates are raced for
//! goes out.

use toml::Spanned;
use warplap::core::objective::{Objective, Spent};
use warplap::core::roofline::Work;
use warplap::core::space::{Config, Expr, ExprKind, Space, Value};

use super::Places;
use super::draft::MetricDraft;
use super::value::{Constants, float, kinds};
use crate::error::SpecError;

/// What an expression may read of a launch: its seconds, joules and watts, and the work the spec states.
const SPENT: [&str; 5] = ["time", "energy", "power", "flops", "bytes"];

/// Names for what others ask for most: an expression, and whether its highest value wins.
const NAMED: [(&str, &str, bool); 4] = [
    ("gflops", "flops / time / 1e9", true),
    ("energy", "energy", false),
    ("gflops_per_watt", "flops / energy / 1e9", true),
    ("energy_delay", "energy * time", false),
];

/// What a spec's candidates are raced for.
pub(super) fn objective(
    draft: Option<&Spanned<MetricDraft>>,
    space: &Space,
    constants: &Constants,
    work: Work,
    places: &Places,
) -> Result<Objective, SpecError> {
    let Some(draft) = draft.map(Spanned::get_ref) else { return Ok(Objective::default()) };
    let (text, at) = draft.objective.as_ref().map_or(("time", 0..0), |o| (o.get_ref().as_str(), o.span()));
    let goal = draft.goal.as_ref().map(|g| (g.get_ref().as_str(), g.span()));
    let highest = match &goal {
        None => None,
        Some(("lowest", _)) => Some(false),
        Some(("highest", _)) => Some(true),
        Some((other, at)) => {
            return Err(places.at(at, format!("the goal is '{other}': expected lowest or highest")));
        }
    };
    let named = NAMED.iter().find(|(name, ..)| *name == text);
    let usual = named.is_some_and(|(.., highest)| *highest);
    if let (true, Some(inputs), Some((_, at))) = (named.is_some() || text == "time", highest, &goal)
        && inputs != usual
    {
        let right = if usual { "highest" } else { "lowest" };
        return Err(places.at(at, format!("the {right} {text} wins: expected goal = \"{right}\", or none")));
    }
    if text == "time" {
        return Ok(Objective::default());
    }
    let expr = Expr::parse(named.map_or(text, |(_, expr, _)| expr)).map_err(|e| places.at(&at, e))?;
    let spent = SPENT.map(|name| (name, ExprKind::Number));
    let known: Vec<(&str, ExprKind)> = spent.into_iter().chain(space.kinds()).chain(kinds(constants)).collect();
    let names = || format!("expected time, {}, or an expression", NAMED.map(|(name, ..)| name).join(", "));
    let kind = expr.check(&known).map_err(|e| places.at(&at, format!("the objective: {e}\n{}", names())))?;
    if kind == ExprKind::Text {
        return Err(places.at(&at, format!("the objective is a text: {}", names())));
    }
    let reads = |name: &str| expr.names().contains(&name);
    for (name, stated) in [("flops", work.flops), ("bytes", work.bytes)] {
        if reads(name) && stated == 0.0 {
            return Err(places.at(&at, format!("the objective '{text}' reads {name}: expected metric.{name} above 0")));
        }
    }
    // Nobody counts FLOP of a kernel that does the same work at every config: it is the race for time.
    if text == "gflops" {
        return Ok(Objective::default());
    }
    if !["time", "energy", "power"].into_iter().any(reads) {
        let reason = format!("the objective '{text}' reads nothing of a launch: expected time, energy or power in it");
        return Err(places.at(&at, reason));
    }
    let needs_energy = reads("energy") || reads("power");
    let constants = constants.to_vec();
    let value = move |config: &Config, spent: Spent| {
        let own = |name: &str| match name {
            "time" => Some(Value::from(spent.seconds)),
            "energy" => spent.joules.map(Value::from),
            "power" => spent.joules.map(|j| Value::from(j / spent.seconds)),
            "flops" => Some(Value::from(work.flops)),
            "bytes" => Some(Value::from(work.bytes)),
            name => {
                let constant = || constants.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
                config.get(name).cloned().or_else(constant)
            }
        };
        float(&expr.eval(own).ok()?)
    };
    Ok(Objective::own(text, needs_energy, highest.unwrap_or(usual), value))
}
