//! Values of a spec: names, constants, and numbers written as such or as expressions over constants.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::{Spanned, Value as Written};
use warplap::core::space::{Expr, ExprKind, Value};

use super::Places;
use crate::error::SpecError;

/// The constants of a spec, in their order.
pub(super) type Constants = [(String, Value)];

/// A name that the preprocessor and the linker take.
pub(super) fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A value as it was written.
pub(super) fn plain(value: &Written) -> Option<Value> {
    Some(match value {
        Written::Integer(i) => Value::Int(*i),
        Written::Float(x) => Value::from(*x),
        Written::Boolean(b) => Value::Bool(*b),
        Written::String(text) => Value::Text(text.clone()),
        _ => return None,
    })
}

pub(super) fn constants(
    draft: &BTreeMap<String, Spanned<Written>>,
    places: &Places,
) -> Result<Vec<(String, Value)>, SpecError> {
    let mut constants: Vec<(String, Value)> = Vec::new();
    for (name, value) in in_order(draft) {
        let refused = |why: &str| places.at(&value.span(), format!("constant '{name}' {why}"));
        if !is_name(name) {
            return Err(refused("is no name: expected letters, digits and underscores"));
        }
        // A text is an expression over the constants before it; a single unknown name is a word for the preprocessor.
        let value = match plain(value.get_ref()) {
            Some(Value::Text(text)) if is_name(&text) && constants.iter().all(|(c, _)| *c != text) => Value::Text(text),
            Some(Value::Text(_)) => number(value.get_ref(), &value.span(), &constants, places)?,
            Some(other) => other,
            None => return Err(refused("is no value: expected a number, a text, true or false")),
        };
        constants.push((name.clone(), value));
    }
    Ok(constants)
}

/// The entries of a table in the order they were written.
pub(super) fn in_order<T>(table: &BTreeMap<String, Spanned<T>>) -> Vec<(&String, &Spanned<T>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(_, value)| value.span().start);
    entries
}

pub(super) fn kinds(constants: &Constants) -> Vec<(&str, ExprKind)> {
    let kind = |v: &Value| if matches!(v, Value::Text(_)) { ExprKind::Text } else { ExprKind::Number };
    constants.iter().map(|(name, value)| (name.as_str(), kind(value))).collect()
}

/// An expression over constants.
fn expression(text: &str, at: &Range<usize>, constants: &Constants, places: &Places) -> Result<Expr, SpecError> {
    let expr = Expr::parse(text).map_err(|e| places.at(at, e))?;
    expr.check(&kinds(constants)).map_err(|e| places.at(at, e))?;
    Ok(expr)
}

/// A number, written as one or as an expression over constants.
pub(super) fn number(
    written: &Written,
    at: &Range<usize>,
    constants: &Constants,
    places: &Places,
) -> Result<Value, SpecError> {
    match plain(written) {
        Some(Value::Text(text)) => {
            let expr = expression(&text, at, constants, places)?;
            let own = |n: &str| constants.iter().find(|(c, _)| c == n).map(|(_, v)| v.clone());
            expr.eval(own).map_err(|e| places.at(at, e))
        }
        Some(value) => Ok(value),
        None => Err(places.at(at, "this is no number: expected one, or an expression in quotes")),
    }
}

pub(super) fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Int(i) => Some(*i as f64),
        Value::Float(x) => Some(x.0),
        Value::Bool(b) => Some(f64::from(u8::from(*b))),
        Value::Text(_) => None,
    }
}
