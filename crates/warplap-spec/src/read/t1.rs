//! Kernel Tuner's T1 files: JSON comes in; a draft goes out, as if somebody had written the same in TOML.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use toml::{Spanned, Value};

use super::Places;
use super::draft::{ArgumentDraft, Draft, Files, LaunchDraft, MetricDraft, ReferenceDraft};
use crate::error::SpecError;

/// A part without a place of its own.
fn own<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

/// Where a text stands in quotes, from a byte on.
fn quoted(all: &str, text: &str, from: usize) -> Option<usize> {
    let quoted = Json::String(text.into()).to_string();
    all.get(from..)?.find(&quoted).map(|at| from + at)
}

/// Reads a T1 file. It knows no right answers and no objectives: parts `Reference` and `Metric` of our own name them,
/// with the fields a TOML spec has.
pub(super) fn draft(places: &Places) -> Result<Draft, SpecError> {
    let wrong = |why: String| SpecError::new(&places.file, why);
    let json: Json = serde_json::from_str(&places.text).map_err(|e| {
        let line = Some(e.line()).filter(|l| *l > 0);
        SpecError { line, ..wrong(format!("{e}: expected a T1 file in JSON")) }
    })?;
    let kernel = &json["KernelSpecification"];
    let space = &json["ConfigurationSpace"];
    let text = |from: &Json, name: &str| from[name].as_str().map(str::to_string);
    let needed = |name: &str| {
        text(kernel, name).ok_or_else(|| wrong(format!("KernelSpecification.{name} is missing: expected a text")))
    };
    let mut axes = BTreeMap::new();
    let mut place = places.text.find("\"TuningParameters\"").unwrap_or(0);
    for (i, parameter) in space["TuningParameters"].as_array().into_iter().flatten().enumerate() {
        let name =
            text(parameter, "Name").ok_or_else(|| wrong(format!("TuningParameters[{i}] has no Name: expected one")))?;
        let values = values(&parameter["Values"])
            .ok_or_else(|| wrong(format!("TuningParameters '{name}': expected Values like \"[1, 2, 4]\"")))?;
        // Places grow: a BTreeMap forgets the order, and they bring it back.
        place = quoted(&places.text, &name, place).unwrap_or(place + 1).max(place + 1);
        axes.insert(name, Spanned::new(place..place, Value::Array(values)));
    }
    let rules = space["Conditions"].as_array().into_iter().flatten().filter_map(|c| text(c, "Expression"));
    let conditions = places.text.find("\"Conditions\"").unwrap_or(0);
    let rules = rules.map(|rule| match quoted(&places.text, &rule, conditions) {
        Some(at) => Spanned::new(at..at, rule),
        None => own(rule),
    });
    let sizes: Vec<String> = match &kernel["ProblemSize"] {
        Json::Array(all) => all.iter().map(plain).collect(),
        Json::Null => Vec::new(),
        one => vec![plain(one)],
    };
    let arguments = kernel["Arguments"].as_array().into_iter().flatten().map(|a| argument(a, &sizes));
    let arguments = arguments.collect::<Result<Vec<_>, String>>().map_err(wrong)?;
    let language = needed("Language")?.to_lowercase();
    let launch = (language == "cuda").then(|| own(launch(kernel, &sizes, &axes)));
    let flags = kernel["CompilerOptions"].as_array().into_iter().flatten();
    Ok(Draft {
        name: text(kernel, "BenchmarkName").or_else(|| text(&json["General"], "BenchmarkName")).map(own),
        language: Some(own(language)),
        source: own(needed("KernelFile")?),
        entry: own(needed("KernelName")?),
        flags: flags.filter_map(Json::as_str).map(str::to_string).collect(),
        headers: Vec::new(),
        budget: None,
        rules: rules.collect(),
        configs: None,
        constants: BTreeMap::new(),
        axes,
        derived: BTreeMap::new(),
        arguments,
        launch,
        reference: reference(&json["Reference"], &places.text),
        tolerance: None,
        metric: metric(&json["Metric"], &places.text),
    })
}

/// Where the text of a field of one of our own parts stands, and the text.
fn field(part: &Json, name: &str, text: &str, from: usize) -> Option<Spanned<String>> {
    let word = part[name].as_str()?;
    let at = quoted(text, word, from).unwrap_or(from);
    Some(Spanned::new(at..at, word.to_string()))
}

fn reference(json: &Json, text: &str) -> Option<Spanned<ReferenceDraft>> {
    let at = text.find("\"Reference\"").unwrap_or(0);
    let word = |name: &str| field(json, name, text, at);
    let sizes = |name: &str| {
        let sizes = match &json["launch"][name] {
            Json::Array(all) => Value::Array(all.iter().map(value).collect::<Option<_>>()?),
            one => value(one)?,
        };
        Some(Spanned::new(at..at, sizes))
    };
    // Sizes that are not there are told as an empty list is.
    let needed = |name: &str| sizes(name).unwrap_or_else(|| Spanned::new(at..at, Value::Array(Vec::new())));
    let launch = || LaunchDraft {
        grid: needed("grid"),
        block: needed("block"),
        shared: sizes("shared"),
        cluster: sizes("cluster"),
    };
    let flags = json["flags"].as_array().into_iter().flatten();
    let draft = ReferenceDraft {
        source: word("source"),
        entry: word("entry"),
        flags: flags.filter_map(Json::as_str).map(str::to_string).collect(),
        file: word("file").map(|file| Spanned::new(file.span(), Files::One(file.into_inner()))),
        python: word("python"),
        launch: json["launch"].is_object().then(|| Spanned::new(at..at, launch())),
    };
    json.is_object().then(|| Spanned::new(at..at, draft))
}

fn metric(json: &Json, text: &str) -> Option<Spanned<MetricDraft>> {
    let at = text.find("\"Metric\"").unwrap_or(0);
    let amount = |name: &str| value(&json[name]).map(|v| Spanned::new(at..at, v));
    let draft = MetricDraft {
        flops: amount("flops"),
        bytes: amount("bytes"),
        objective: field(json, "objective", text, at),
        goal: field(json, "goal", text, at),
        energy: json["energy"].as_bool().unwrap_or(false),
    };
    json.is_object().then(|| Spanned::new(at..at, draft))
}

/// A number or a text, as an expression.
fn plain(json: &Json) -> String {
    json.as_str().map_or_else(|| json.to_string(), str::to_string)
}

/// Python's lists of values, which T1 keeps as texts: `[1, 2]`, `['a', 'b']`, `range(1, 9)`, `list(range(4))`.
fn values(json: &Json) -> Option<Vec<Value>> {
    let text = match json {
        Json::Array(all) => return all.iter().map(value).collect(),
        json => json.as_str()?.trim(),
    };
    let inner = text.strip_prefix("list(").and_then(|t| t.strip_suffix(')')).unwrap_or(text).trim();
    if let Some(bounds) = inner.strip_prefix("range(").and_then(|t| t.strip_suffix(')')) {
        let bounds: Vec<i64> = bounds.split(',').map(|b| b.trim().parse().ok()).collect::<Option<_>>()?;
        let (low, high, step) = match bounds[..] {
            [high] => (0, high, 1),
            [low, high] => (low, high, 1),
            [low, high, step] if step > 0 => (low, high, step),
            _ => return None,
        };
        return Some((low..high).step_by(usize::try_from(step).ok()?).take(65_535).map(Value::Integer).collect());
    }
    let json = inner.replace('\'', "\"").replace("True", "true").replace("False", "false");
    let json: Json = serde_json::from_str(json.replace(",]", "]").as_str()).ok()?;
    json.as_array()?.iter().map(value).collect()
}

fn value(json: &Json) -> Option<Value> {
    Some(match json {
        Json::Bool(b) => Value::Boolean(*b),
        Json::String(text) => Value::String(text.clone()),
        Json::Number(n) => n.as_i64().map(Value::Integer).or_else(|| n.as_f64().map(Value::Float))?,
        _ => return None,
    })
}

fn argument(json: &Json, sizes: &[String]) -> Result<Spanned<ArgumentDraft>, String> {
    let name = json["Name"].as_str().unwrap_or("unnamed").to_string();
    let dtype =
        json["Type"].as_str().ok_or_else(|| format!("argument '{name}' has no Type: expected one"))?.to_string();
    let fill = json["FillType"].as_str().unwrap_or("Random");
    let number = &json["FillValue"];
    let (mut role, mut shape, mut filled, mut inputs) = ("in", None, None, None);
    if json["MemoryType"].as_str() == Some("Scalar") {
        role = "scalar";
        inputs = Some(own(value(number).ok_or_else(|| format!("scalar '{name}': expected a FillValue"))?));
    } else {
        let mut size = plain(&json["Size"]);
        for (i, one) in sizes.iter().enumerate() {
            size = size.replace(&format!("ProblemSize[{i}]"), &format!("({one})"));
        }
        shape = Some(own(Value::String(size)));
        role = match json["AccessType"].as_str() {
            Some("WriteOnly") => "out",
            Some("ReadWrite") => "inout",
            _ => role,
        };
        filled = Some(own(match (fill, number.as_f64()) {
            ("Constant", Some(0.0)) | ("Constant", None) => "zeros".to_string(),
            ("Random", _) => "random".to_string(),
            _ => {
                return Err(format!(
                    "argument '{name}' is filled with {fill} {number}: expected Random, or Constant 0"
                ));
            }
        }));
    }
    let role = Some(own(role.to_string()));
    Ok(own(ArgumentDraft { name, dtype: own(dtype), role, shape, fill: filled, file: None, value: inputs }))
}

/// Kernel Tuner's launch: blocks are `block_size_x` and so on, and the grid is the problem divided by them.
fn launch(kernel: &Json, sizes: &[String], axes: &BTreeMap<String, Spanned<Value>>) -> LaunchDraft {
    let letters = ["X", "Y", "Z"];
    let block = |i: usize| {
        let usual = format!("block_size_{}", letters[i].to_lowercase());
        let inputs = kernel["LocalSize"][letters[i]].as_str().map(str::to_string);
        inputs.unwrap_or_else(|| if axes.contains_key(&usual) { usual } else { "1".into() })
    };
    let grid = |i: usize| -> String {
        let divisors: Vec<String> = match kernel[format!("GridDiv{}", letters[i])].as_array() {
            Some(all) if !all.is_empty() => all.iter().map(plain).collect(),
            _ => vec![block(i)],
        };
        let size = sizes.get(i).cloned().unwrap_or_else(|| "1".into());
        divisors.iter().fold(size, |size, d| format!("ceil(({size}) / ({d}))"))
    };
    let all = |f: &dyn Fn(usize) -> String| own(Value::Array((0..3).map(|i| Value::String(f(i))).collect()));
    LaunchDraft { grid: all(&grid), block: all(&block), shared: None, cluster: None }
}
