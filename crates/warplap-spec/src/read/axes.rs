//! The space of a spec: axes, derived values and rules, which may name constants too.

use toml::{Spanned, Value as Written};
use warplap::core::space::{Axis, Config, Expr, ExprKind, Rule, Space, SpaceError, Value};

use super::Places;
use super::draft::Draft;
use super::listed::listed;
use super::value::{Constants, in_order, is_name, kinds, plain};
use crate::error::SpecError;

/// The values of an axis: a list, or a table that says how to make one.
fn axis(name: &str, written: &Written) -> Option<Axis> {
    let ints = |v: &Written| -> Option<Vec<i64>> { v.as_array()?.iter().map(Written::as_integer).collect() };
    let texts =
        |v: &Written| -> Option<Vec<String>> { v.as_array()?.iter().map(|t| t.as_str().map(str::to_string)).collect() };
    match written {
        Written::Array(values) => {
            Some(Axis::values_of(name, values.iter().map(plain).collect::<Option<Vec<Value>>>()?))
        }
        Written::Table(table) if table.len() == 1 => match table.iter().next().map(|(k, v)| (k.as_str(), v))? {
            ("powers_of_two", v) => match ints(v)?[..] {
                [low, high] => Some(Axis::powers_of_two(name, low, high)),
                _ => None,
            },
            ("range", v) => match ints(v)?[..] {
                [low, high] if high - low < 65_535 => Some(Axis::ints(name, low..=high)),
                [low, high, step] if step > 0 && (high - low) / step < 65_535 => {
                    Some(Axis::ints(name, (low..=high).step_by(usize::try_from(step).ok()?)))
                }
                _ => None,
            },
            ("switch", Written::Boolean(true)) => Some(Axis::switch(name)),
            ("permutations", v) => {
                let things = texts(v)?;
                let things: Vec<&str> = things.iter().map(String::as_str).collect();
                (things.len() <= 8).then(|| Axis::permutations(name, &things))
            }
            _ => None,
        },
        _ => None,
    }
}

const AXIS_EXPECTED: &str = "expected a list of values, { powers_of_two = [1, 64] }, { range = [low, high, step] }, \
    { switch = true } or { permutations = [\"i\", \"j\"] }";

pub(super) fn space(draft: &Draft, constants: &Constants, places: &Places) -> Result<Space, SpecError> {
    let mut space = Space::single();
    for (name, written) in in_order(&draft.axes) {
        let refused = |why: String| places.at(&written.span(), why);
        if !is_name(name) || constants.iter().any(|(c, _)| c == name) {
            return Err(refused(format!("axis '{name}': expected a name of its own: letters, digits and underscores")));
        }
        let axis = axis(name, written.get_ref()).ok_or_else(|| refused(format!("axis '{name}': {AXIS_EXPECTED}")))?;
        if axis.values().is_empty() {
            return Err(refused(SpaceError::NoValues(name.clone()).to_string()));
        }
        space = space.axis(axis);
    }
    if let Some(path) = &draft.configs {
        if let Some(rule) = draft.rules.first() {
            let reason = "there are rules and a list of configs: expected one of them, the list as it shall be";
            return Err(places.at(&rule.span(), reason));
        }
        space = listed(path, space.axes().to_vec(), places)?;
    }
    for (name, text) in in_order(&draft.derived) {
        space = space.derive(name, text.get_ref()).map_err(|e| places.at(&text.span(), e))?;
    }
    for rule in &draft.rules {
        space = ruled(space, rule.get_ref(), constants).map_err(|e| places.at(&rule.span(), e))?;
    }
    space.check().map_err(|e| {
        let culprit = match &e {
            SpaceError::NeverTrue(text) | SpaceError::Contradiction(text) => {
                draft.rules.iter().find(|r| r.get_ref().trim() == text.trim()).map(Spanned::span)
            }
            _ => None,
        };
        let reason = if e.to_string().contains("expected") {
            e.to_string()
        } else {
            format!("{e}: expected one that some setting obeys")
        };
        places.at(&culprit.unwrap_or(0..0), reason)
    })?;
    Ok(space)
}

/// A space with one more rule, which may name constants too.
fn ruled(space: Space, text: &str, constants: &Constants) -> Result<Space, SpaceError> {
    let what = || format!("rule '{}'", warplap::core::sanitize_text::brief(text.trim()));
    let expr = Expr::parse(text).map_err(|error| SpaceError::Expr { what: what(), error })?;
    let named: Vec<(String, Value)> =
        constants.iter().filter(|(c, _)| expr.names().contains(&c.as_str())).cloned().collect();
    if named.is_empty() {
        return space.constrain(text);
    }
    let known: Vec<(&str, ExprKind)> = space.kinds().into_iter().chain(kinds(&named)).collect();
    expr.check(&known).map_err(|error| SpaceError::Expr { what: what(), error })?;
    let axes: Vec<String> =
        expr.names().into_iter().filter(|n| named.iter().all(|(c, _)| c != n)).map(str::to_string).collect();
    let axes: Vec<&str> = axes.iter().map(String::as_str).collect();
    let rule = expr.clone();
    Ok(space.rule(Rule::on(text.trim(), &axes, move |config: &Config| {
        let constant = |name: &str| named.iter().find(|(c, _)| c == name).map(|(_, v)| v.clone());
        rule.holds(|name| config.get(name).cloned().or_else(|| constant(name)))
    })))
}
