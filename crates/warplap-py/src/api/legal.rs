//! Legal settings of a Python user's space: axes and rules come in; every setting that breaks no rule goes out, as
//! value numbers. The core's engine finds them: rules are asked as soon as the axes they read are set.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};
use warplap::core::space::{Axis, Config, Real, Rule, Space, Value};

use crate::call::failure::bad;

/// Settings that are listed at the most.
const MOST: u128 = 1 << 22;

/// A rule: its text, the axes it reads, and for one that the engine cannot read itself a callable that takes their
/// values.
type RuleRow = (String, Vec<String>, Option<Py<PyAny>>);

/// What the engine calls a value: itself where it is plain, else its number.
fn value(object: &Bound<'_, PyAny>) -> Option<Value> {
    if object.is_exact_instance_of::<PyBool>() {
        object.extract().ok().map(Value::Bool)
    } else if object.is_exact_instance_of::<PyInt>() {
        object.extract().ok().map(Value::Int)
    } else if object.is_exact_instance_of::<PyFloat>() {
        object.extract().ok().map(|v| Value::Float(Real(v)))
    } else if object.is_exact_instance_of::<PyString>() {
        object.extract().ok().map(Value::Text)
    } else {
        None
    }
}

/// The values of one axis as the engine has them, and whether they are themselves.
fn values(objects: &[Py<PyAny>], py: Python<'_>) -> (Vec<Value>, bool) {
    let plain: Option<Vec<Value>> = objects.iter().map(|o| value(o.bind(py))).collect();
    // Equal values (1 and True, 2 and 2.0) would be one to the engine.
    let distinct = |v: &Vec<Value>| (1..v.len()).all(|i| !v[..i].contains(&v[i]));
    match plain.filter(distinct) {
        Some(plain) => (plain, true),
        None => ((0..objects.len() as i64).map(Value::Int).collect(), false),
    }
}

/// Every setting that breaks no rule, as one value number an axis, in the order of the axes' values as they are given;
/// where there are more than `most`, so many of them.
#[pyfunction]
#[pyo3(signature = (axes, rules, most=None))]
pub(crate) fn legal(
    py: Python<'_>,
    axes: Vec<(String, Vec<Py<PyAny>>)>,
    rules: Vec<RuleRow>,
    most: Option<u64>,
) -> PyResult<Vec<Vec<u16>>> {
    let mut space = Space::single();
    let mut known: HashMap<String, (Vec<Py<PyAny>>, Vec<Value>)> = HashMap::new();
    let mut plain = HashMap::new();
    for (name, objects) in axes {
        let (values, is_plain) = values(&objects, py);
        space = space.axis(Axis::values_of(&name, values.clone()));
        plain.insert(name.clone(), is_plain);
        known.insert(name, (objects, values));
    }
    let known = Arc::new(known);
    for (text, reads, call) in rules {
        let itself = reads.iter().all(|name| plain.get(name) == Some(&true));
        space = match call {
            None if itself => space.constrain(&text).map_err(|e| bad(format!("rules: {e}")))?,
            None => return Err(bad(format!("rules: '{text}' needs a callable"))),
            Some(call) => space.rule(asked(&text, reads, call, known.clone())),
        };
    }
    let diagram = space.diagram().map_err(|e| bad(format!("space: {e}")))?;
    if most.is_none() && diagram.count() > MOST {
        let what = format!("space: has {} legal settings, expected at most {MOST}; add rules", diagram.count());
        return Err(bad(what));
    }
    if let Some(error) = crate::api::watch::interrupted() {
        return Err(error);
    }
    let count = diagram.count().min(most.map_or(MOST, u128::from));
    let mut points: Vec<Vec<u16>> = (0..count).filter_map(|i| diagram.point(i)).collect();
    // The engine brings numbers into their order; the caller knows them by the order they were given in.
    let passed: Vec<Vec<u16>> = space.axes().iter().map(|axis| places(axis, &known)).collect();
    for point in &mut points {
        point.iter_mut().zip(&passed).for_each(|(number, passed)| *number = passed[usize::from(*number)]);
    }
    points.sort();
    Ok(points)
}

/// Where the values of an axis stand among those that were given.
fn places(axis: &Axis, known: &Known) -> Vec<u16> {
    let passed = known.get(axis.name()).map_or(&[][..], |(_, values)| values);
    let place = |value: &Value| passed.iter().position(|g| g == value).unwrap_or_default() as u16;
    axis.values().iter().map(place).collect()
}

type Known = Arc<HashMap<String, (Vec<Py<PyAny>>, Vec<Value>)>>;

/// A rule that Python answers. An exception counts as broken and is raised when the space is done.
fn asked(text: &str, reads: Vec<String>, call: Py<PyAny>, known: Known) -> Rule {
    let names = reads.clone();
    let holds = move |config: &Config| {
        Python::attach(|py| {
            let object = |name: &String| {
                let (objects, values) = known.get(name)?;
                let at = values.iter().position(|v| Some(v) == config.get(name))?;
                Some(objects[at].clone_ref(py))
            };
            let Some(arguments) = names.iter().map(object).collect::<Option<Vec<_>>>() else { return false };
            let answer = call.bind(py).call1((arguments,)).and_then(|a| a.is_truthy());
            answer.unwrap_or_else(|error| {
                crate::api::watch::interrupt(error);
                false
            })
        })
    };
    Rule::on(text, &reads.iter().map(String::as_str).collect::<Vec<_>>(), holds)
}
