//! Spaces and what they are made of: recorded spaces, definitions, expressions, rules, configs.

use warplap::core::space::{Axis, Config, Expr, Space, Value};
use warplap::report::recorded::Recorded;

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A recorded space of any form: what was read and written again reads as the same.
pub(crate) fn recorded(bytes: &[u8]) -> String {
    let read = match Recorded::parse(&text(bytes)) {
        Ok(read) => read,
        Err(e) => return e.to_string(),
    };
    assert!(!read.is_empty() && read.times().all(|ms| ms.is_finite() && ms > 0.0));
    let again = Recorded::parse(&read.to_text()).expect("what was written can be read");
    let rows = |r: &Recorded| -> Vec<(Config, Result<f64, String>)> {
        (0..r.len()).map(|i| (r.space.config(&r.point(i)), r.time_ms(i).map_err(str::to_string))).collect()
    };
    assert_eq!(rows(&again), rows(&read));
    assert_eq!(read.right().len(), read.times().count());
    assert!(read.best(3).iter().all(|config| read.space.contains(config)));
    format!("{} {}", read.torn, read.restrictions.is_empty())
}

/// A space by its axes and rules.
pub(crate) fn definition(bytes: &[u8]) -> String {
    let space = match Recorded::definition(&text(bytes)) {
        Ok(space) => space,
        Err(e) => return e.to_string(),
    };
    let checked = space.check();
    let Ok(diagram) = space.diagram() else { return super::said(checked) };
    let count = diagram.count();
    for index in [0, count / 2, count.saturating_sub(1)] {
        let config = space.at(index);
        assert_eq!(config.is_some(), index < count);
        assert!(config.is_none_or(|config| space.contains(&config) && space.index(&config) == Some(index)));
    }
    super::said(checked)
}

/// Names with values, for expressions.
fn value(name: &str) -> Option<Value> {
    Some(match name {
        "a" => Value::Int(7),
        "b" => Value::Int(-3),
        "x" => Value::from(0.5),
        "flag" => Value::Bool(true),
        "word" => Value::from("row"),
        _ => return None,
    })
}

/// An expression: read, checked and evaluated, the same each time.
pub(crate) fn expression(bytes: &[u8]) -> String {
    let expr = match Expr::parse(&text(bytes)) {
        Ok(expr) => expr,
        Err(e) => {
            assert!(e.column() >= 1);
            return e.to_string();
        }
    };
    assert_eq!(Expr::parse(expr.text()).expect("it was read before"), expr);
    let (result, again) = (expr.eval(value), expr.eval(value));
    assert_eq!(result.as_ref().ok(), again.as_ref().ok());
    // Where every name has a value and nothing failed, whether it holds follows from its value.
    if let Ok(Value::Bool(truth)) = result {
        assert_eq!(expr.holds(value), truth);
    }
    super::said(result)
}

/// A rule of a space: exactly those configs are legal that it holds for.
pub(crate) fn rule(bytes: &[u8]) -> String {
    let axes = [Axis::ints("a", [1, 2, 3, 64]), Axis::ints("b", [0, -1, 32]), Axis::switch("flag")];
    let whole = axes.into_iter().fold(Space::single(), Space::axis);
    let ruled = match whole.clone().constrain(&text(bytes)) {
        Ok(ruled) => ruled,
        Err(e) => return e.to_string(),
    };
    let rule = ruled.rules()[0].clone();
    let held = whole.configs().into_iter().filter(|config| rule.holds(config)).count();
    if let Ok(diagram) = ruled.diagram() {
        assert_eq!(diagram.count(), held as u128, "{rule}");
    }
    super::said(ruled.check())
}

/// A config as people write it.
pub(crate) fn config(bytes: &[u8]) -> String {
    let read = Config::parse(&text(bytes));
    if let Ok(config) = &read {
        assert_eq!(Config::parse(&config.to_string()).as_ref(), Ok(config), "{config}");
        let json = serde_json::to_string(config).expect("a config is data");
        assert_eq!(&serde_json::from_str::<Config>(&json).expect("what was written can be read"), config);
    }
    super::said(read)
}
