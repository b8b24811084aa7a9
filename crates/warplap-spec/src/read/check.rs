//! From a draft to a Spec: names are resolved, expressions worked out, files read. Every refusal names the line.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use toml::{Spanned, Value as Written};
use warplap::DType;
use warplap::core::array::Array;
use warplap::core::roofline::Work;
use warplap::core::space::{Axis, Config, Expr, Kind, Rule, Space, SpaceError, Value};

use super::draft::{ArgumentDraft, Draft, MetricDraft, ReferenceDraft, ToleranceDraft};
use super::{Places, file};
use crate::argument::{Argument, Element, Fill, Role};
use crate::error::SpecError;
use crate::npy;
use crate::spec::{Code, Language, Launch, Reference, Spec};

/// Elements of one buffer at the most, and bytes of all files.
const MOST_ELEMENTS: u64 = 1 << 31;
const MOST_BYTES: u64 = 8 << 30;
const MOST_SOURCE: u64 = 16 << 20;
/// Arguments a kernel may have.
const MOST_ARGUMENTS: usize = 64;

type Constants = [(String, Value)];

/// Works a draft out.
pub(super) fn checked(draft: Draft, places: &Places) -> Result<Spec, SpecError> {
    let language = language(&draft, places)?;
    let code = Code {
        path: places.beside(draft.source.get_ref()),
        text: source(&draft.source, places)?,
        entry: entry(&draft.entry, places)?,
        flags: draft.flags.clone(),
    };
    let headers = draft.headers.iter().map(|h| source(h, places)).collect::<Result<Vec<_>, _>>()?;
    let constants = constants(&draft.constants, places)?;
    let arguments = arguments(&draft.arguments, &constants, language, places)?;
    let space = space(&draft, &constants, places)?;
    let launch = launch(&draft, language, &space, &constants, places)?;
    let reference = reference(draft.reference.as_ref(), &arguments, language, places)?;
    let stem = places.file.file_stem().map_or_else(|| "kernel".into(), |s| s.to_string_lossy().into_owned());
    let budget = draft.budget.as_ref().map(|b| match *b.get_ref() {
        s if s > 0.0 && s <= 86_400.0 => Ok(s),
        s => Err(places.at(&b.span(), format!("budget is {s}: expected seconds, more than 0 and at most 86400"))),
    });
    Ok(Spec {
        file: places.file.clone(),
        name: draft.name.map_or(stem, Spanned::into_inner),
        language,
        code,
        headers,
        tolerance: tolerance(draft.tolerance.as_ref(), places)?,
        work: work(draft.metric.as_ref(), &constants, places)?,
        constants,
        arguments,
        launch,
        space,
        reference,
        budget: budget.transpose()?,
        identity: OnceLock::new(),
        workshop: OnceLock::new(),
    })
}

fn language(draft: &Draft, places: &Places) -> Result<Language, SpecError> {
    let by_name = match Path::new(draft.source.get_ref()).extension().and_then(|e| e.to_str()) {
        Some("cu") => "cuda",
        _ => "c",
    };
    match draft.language.as_ref().map_or(by_name, |l| l.get_ref().as_str()) {
        "c" | "C" => Ok(Language::C),
        "cuda" | "CUDA" => Ok(Language::Cuda),
        other => {
            let span = draft.language.as_ref().map_or(0..0, Spanned::span);
            Err(places.at(&span, format!("language is '{other}': expected c or cuda")))
        }
    }
}

fn source(path: &Spanned<String>, places: &Places) -> Result<String, SpecError> {
    let full = places.beside(path.get_ref());
    let refused =
        |why: String| places.at(&path.span(), format!("source '{}': {why}: expected a source file", full.display()));
    let bytes = file(&full, MOST_SOURCE).map_err(refused)?;
    String::from_utf8(bytes).map_err(|_| refused("it is no text".into()))
}

/// A name that the preprocessor and the linker take.
fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn entry(entry: &Spanned<String>, places: &Places) -> Result<String, SpecError> {
    let name = entry.get_ref();
    match is_name(name) {
        true => Ok(name.clone()),
        false => Err(places.at(&entry.span(), format!("entry is '{name}': expected the name of a function"))),
    }
}

/// A value as it was written.
fn plain(value: &Written) -> Option<Value> {
    Some(match value {
        Written::Integer(i) => Value::Int(*i),
        Written::Float(x) => Value::from(*x),
        Written::Boolean(b) => Value::Bool(*b),
        Written::String(text) => Value::Text(text.clone()),
        _ => return None,
    })
}

fn constants(draft: &BTreeMap<String, Spanned<Written>>, places: &Places) -> Result<Vec<(String, Value)>, SpecError> {
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
fn in_order<T>(table: &BTreeMap<String, Spanned<T>>) -> Vec<(&String, &Spanned<T>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(_, value)| value.span().start);
    entries
}

fn kinds(constants: &Constants) -> Vec<(&str, Kind)> {
    let kind = |v: &Value| if matches!(v, Value::Text(_)) { Kind::Text } else { Kind::Number };
    constants.iter().map(|(name, value)| (name.as_str(), kind(value))).collect()
}

/// An expression over constants.
fn expression(text: &str, at: &Range<usize>, constants: &Constants, places: &Places) -> Result<Expr, SpecError> {
    let expr = Expr::parse(text).map_err(|e| places.at(at, e))?;
    expr.check(&kinds(constants)).map_err(|e| places.at(at, e))?;
    Ok(expr)
}

/// A number, written as one or as an expression over constants.
fn number(written: &Written, at: &Range<usize>, constants: &Constants, places: &Places) -> Result<Value, SpecError> {
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

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Int(i) => Some(*i as f64),
        Value::Float(x) => Some(x.0),
        Value::Bool(b) => Some(f64::from(u8::from(*b))),
        Value::Text(_) => None,
    }
}

fn shape(
    draft: &ArgumentDraft,
    constants: &Constants,
    places: &Places,
    whole: &Range<usize>,
) -> Result<Vec<u64>, SpecError> {
    let name = &draft.name;
    let Some(written) = &draft.shape else {
        return Err(places.at(whole, format!("argument '{name}' has no shape: expected sizes, slowest first")));
    };
    let at = written.span();
    let parts: Vec<&Written> = match written.get_ref() {
        Written::Array(parts) => parts.iter().collect(),
        one => vec![one],
    };
    let mut sizes = Vec::new();
    for part in parts {
        let value = number(part, &at, constants, places)?;
        let size = float(&value).filter(|s| *s >= 1.0 && s.fract() == 0.0 && *s <= MOST_ELEMENTS as f64);
        let wrong =
            || format!("argument '{name}' has a size of {value}: expected a whole number from 1 to {MOST_ELEMENTS}");
        sizes.push(size.ok_or_else(|| places.at(&at, wrong()))? as u64);
    }
    let total = sizes.iter().try_fold(1u64, |n, s| n.checked_mul(*s)).filter(|n| *n <= MOST_ELEMENTS);
    match total {
        Some(_) if !sizes.is_empty() => Ok(sizes),
        _ => Err(places.at(&at, format!("argument '{name}' is too large: expected at most {MOST_ELEMENTS} elements"))),
    }
}

fn arguments(
    drafts: &[Spanned<ArgumentDraft>],
    constants: &Constants,
    language: Language,
    places: &Places,
) -> Result<Vec<Argument>, SpecError> {
    let mut arguments: Vec<Argument> = Vec::new();
    for spanned in drafts {
        let (draft, whole) = (spanned.get_ref(), spanned.span());
        let name = &draft.name;
        if arguments.iter().any(|a| a.name == *name) {
            return Err(places.at(&whole, format!("argument '{name}' is there twice: expected it once")));
        }
        arguments.push(argument(draft, &whole, constants, places)?);
        let last = &arguments[arguments.len() - 1];
        if last.role == Role::InOut && language == Language::Cuda {
            let role = draft.role.as_ref().map_or(whole, Spanned::span);
            return Err(places.at(&role, format!("argument '{name}' is inout: expected in and out apart in CUDA")));
        }
    }
    if arguments.len() > MOST_ARGUMENTS {
        return Err(SpecError::new(&places.file, format!("more than {MOST_ARGUMENTS} arguments: expected fewer")));
    }
    let outputs: Vec<&Argument> = arguments.iter().filter(|a| a.is_output()).collect();
    let Some(first) = outputs.first() else {
        return Err(SpecError::new(&places.file, "no argument is out or inout: expected role = \"out\" at one"));
    };
    let dtype = first.dtype();
    if outputs.iter().any(|a| a.dtype() != dtype) {
        return Err(SpecError::new(&places.file, "the outputs differ in type: expected outputs of one dtype"));
    }
    if dtype == DType::I32 && outputs.len() > 1 {
        return Err(SpecError::new(&places.file, "several outputs of i32: expected one, or outputs of floats"));
    }
    let bytes: u64 = arguments.iter().map(|a| (a.len() * a.dtype().bytes()) as u64).sum();
    if bytes > MOST_BYTES {
        let reason = format!("the arguments take {bytes} bytes: expected at most {MOST_BYTES}");
        return Err(SpecError::new(&places.file, reason));
    }
    Ok(arguments)
}

fn argument(
    draft: &ArgumentDraft,
    whole: &Range<usize>,
    constants: &Constants,
    places: &Places,
) -> Result<Argument, SpecError> {
    let name = draft.name.clone();
    let wrong = |at: &Range<usize>, what: &str, found: &str, expected: &str| {
        places.at(at, format!("argument '{name}' has the {what} '{found}': expected {expected}"))
    };
    let (text, at) = (draft.dtype.get_ref(), draft.dtype.span());
    let element = Element::parse(text).ok_or_else(|| wrong(&at, "dtype", text, Element::EXPECTED))?;
    let role = match draft.role.as_ref().map(|r| (r.get_ref().as_str(), r.span())) {
        None => {
            if draft.value.is_some() {
                Role::Scalar
            } else {
                Role::In
            }
        }
        Some(("in", _)) => Role::In,
        Some(("out", _)) => Role::Out,
        Some(("inout", _)) => Role::InOut,
        Some(("scalar", _)) => Role::Scalar,
        Some((other, at)) => return Err(wrong(&at, "role", other, "in, out, inout or scalar")),
    };
    if role == Role::Scalar {
        let Some(written) = &draft.value else {
            return Err(places.at(whole, format!("scalar '{name}' has no value: expected a number or an expression")));
        };
        let value = number(written.get_ref(), &written.span(), constants, places)?;
        let sixteen = matches!(element, Element::Stored(DType::F16 | DType::Bf16));
        if float(&value).is_none() || sixteen {
            let expected = "a number of type f64, f32, i32 or i64";
            return Err(wrong(&written.span(), "value", &value.to_string(), expected));
        }
        let (shape, fill) = (Vec::new(), Fill::Zeros);
        return Ok(Argument { name, element, role, shape, fill, value: Some(value) });
    }
    if element == Element::I64 {
        return Err(wrong(&at, "dtype", text, "one of f64, f32, f16, bf16, i32 for a buffer"));
    }
    if let Some(value) = &draft.value {
        return Err(
            places.at(&value.span(), format!("argument '{name}' has a value: expected role = \"scalar\" with it"))
        );
    }
    let mut argument =
        Argument { element, role, shape: Vec::new(), fill: Fill::Random, value: None, name: name.clone() };
    if let Some(path) = &draft.file {
        let (sizes, array) = loaded(path, places)?;
        if array.dtype() != argument.dtype() {
            return Err(wrong(&path.span(), "file", &format!("of {}", array.dtype()), &format!("one of {text}")));
        }
        argument.shape = sizes.clone();
        if draft.shape.is_some() {
            argument.shape = shape(draft, constants, places, whole)?;
            if argument.shape != sizes {
                let expected = format!("the shape {:?}", argument.shape);
                return Err(wrong(&path.span(), "file", &format!("of shape {sizes:?}"), &expected));
            }
        }
        argument.fill = Fill::File(Arc::new(array));
    } else {
        argument.shape = shape(draft, constants, places, whole)?;
        argument.fill = match draft.fill.as_ref().map(|f| (f.get_ref().as_str(), f.span())) {
            None | Some(("random", _)) => Fill::Random,
            Some(("zeros", _)) => Fill::Zeros,
            Some(("range", _)) => Fill::Range,
            Some((other, at)) => return Err(wrong(&at, "fill", other, "random, zeros or range, or file = \"x.npy\"")),
        };
    }
    Ok(argument)
}

fn loaded(path: &Spanned<String>, places: &Places) -> Result<(Vec<u64>, Array), SpecError> {
    let full = places.beside(path.get_ref());
    let refused = |why: String| places.at(&path.span(), format!("file '{}': {why}", full.display()));
    let bytes = file(&full, MOST_BYTES).map_err(|why| refused(format!("{why}: expected a .npy file")))?;
    npy::parse(&bytes).map_err(refused)
}

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

fn space(draft: &Draft, constants: &Constants, places: &Places) -> Result<Space, SpecError> {
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
    let what = || format!("rule '{}'", text.trim());
    let expr = Expr::parse(text).map_err(|error| SpaceError::Expr { what: what(), error })?;
    let named: Vec<(String, Value)> =
        constants.iter().filter(|(c, _)| expr.names().contains(&c.as_str())).cloned().collect();
    if named.is_empty() {
        return space.constrain(text);
    }
    let known: Vec<(&str, Kind)> = space.kinds().into_iter().chain(kinds(&named)).collect();
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

fn launch(
    draft: &Draft,
    language: Language,
    space: &Space,
    constants: &Constants,
    places: &Places,
) -> Result<Option<Launch>, SpecError> {
    let Some(spanned) = &draft.launch else {
        return match language {
            Language::C => Ok(None),
            Language::Cuda => {
                Err(SpecError::new(&places.file, "there is no [launch]: expected grid and block for a CUDA kernel"))
            }
        };
    };
    if language == Language::C {
        return Err(places.at(&spanned.span(), "a C kernel has no [launch]: expected it for language = \"cuda\" alone"));
    }
    let known: Vec<(&str, Kind)> = space.kinds().into_iter().chain(kinds(constants)).collect();
    let one = |written: &Written, at: &Range<usize>| -> Result<Expr, SpecError> {
        let text = match plain(written) {
            Some(Value::Text(text)) => text,
            Some(other) => other.to_string(),
            None => return Err(places.at(at, "this is no size: expected a number or an expression in quotes")),
        };
        let expr = Expr::parse(&text).map_err(|e| places.at(at, e))?;
        expr.check(&known).map_err(|e| places.at(at, e))?;
        Ok(expr)
    };
    let several = |written: &Spanned<Written>| -> Result<Vec<Expr>, SpecError> {
        let at = written.span();
        let parts = match written.get_ref() {
            Written::Array(parts) => parts.clone(),
            one => vec![one.clone()],
        };
        if parts.is_empty() || parts.len() > 3 {
            return Err(places.at(&at, "expected one to three sizes: x, y, z"));
        }
        parts.iter().map(|p| one(p, &at)).collect()
    };
    let draft = spanned.get_ref();
    let shared = draft.shared.as_ref().map(|s| one(s.get_ref(), &s.span())).transpose()?;
    Ok(Some(Launch { grid: several(&draft.grid)?, block: several(&draft.block)?, shared }))
}

fn reference(
    draft: Option<&Spanned<ReferenceDraft>>,
    arguments: &[Argument],
    language: Language,
    places: &Places,
) -> Result<Reference, SpecError> {
    let Some(spanned) = draft else {
        return match language {
            Language::C => Ok(Reference::Default),
            Language::Cuda => Err(SpecError::new(
                &places.file,
                "there is no [reference]: expected source and entry of a C kernel, or file = \"answer.npy\"",
            )),
        };
    };
    let (draft, whole) = (spanned.get_ref(), spanned.span());
    if let Some(path) = &draft.file {
        let (sizes, array) = loaded(path, places)?;
        let outputs: Vec<&Argument> = arguments.iter().filter(|a| a.is_output()).collect();
        let [output] = outputs[..] else {
            return Err(places.at(&path.span(), "an answer file holds one output: expected one argument that is out"));
        };
        if sizes != output.shape {
            let reason = format!(
                "the answer has the shape {sizes:?}: expected {:?}, that of the argument '{}'",
                output.shape, output.name
            );
            return Err(places.at(&path.span(), reason));
        }
        if let Some(random) = arguments.iter().find(|a| a.is_input() && matches!(a.fill, Fill::Random)) {
            let reason = format!(
                "an answer file fits one set of inputs, and '{}' is random: expected it from a file, zeros or range",
                random.name
            );
            return Err(places.at(&path.span(), reason));
        }
        return Ok(Reference::File(Arc::new(array)));
    }
    let (Some(path), Some(name)) = (&draft.source, &draft.entry) else {
        return Err(
            places.at(&whole, "the reference is not whole: expected source and entry, or file = \"answer.npy\"")
        );
    };
    if path.get_ref().ends_with(".cu") {
        return Err(places.at(&path.span(), "the reference is CUDA: expected a C source, which runs on the CPU"));
    }
    let (full, text, entry) = (places.beside(path.get_ref()), source(path, places)?, entry(name, places)?);
    Ok(Reference::Kernel(Code { path: full, text, entry, flags: draft.flags.clone() }))
}

fn tolerance(
    draft: Option<&Spanned<ToleranceDraft>>,
    places: &Places,
) -> Result<(Option<f64>, Option<f64>), SpecError> {
    let Some(spanned) = draft else { return Ok((None, None)) };
    let ToleranceDraft { relative, absolute } = *spanned.get_ref();
    for (name, value) in [("relative", relative), ("absolute", absolute)] {
        if value.is_some_and(|v| !(v.is_finite() && v >= 0.0)) {
            return Err(places.at(&spanned.span(), format!("tolerance.{name} is no bound: expected 0 or more")));
        }
    }
    Ok((relative, absolute))
}

fn work(draft: Option<&Spanned<MetricDraft>>, constants: &Constants, places: &Places) -> Result<Work, SpecError> {
    let Some(spanned) = draft else { return Ok(Work::default()) };
    let draft = spanned.get_ref();
    if let Some(objective) = &draft.objective
        && !["time", "gflops"].contains(&objective.get_ref().as_str())
    {
        let reason = format!("the objective is '{}': expected time or gflops", objective.get_ref());
        return Err(places.at(&objective.span(), reason));
    }
    let amount = |written: &Option<Spanned<Written>>| -> Result<f64, SpecError> {
        let Some(written) = written else { return Ok(0.0) };
        let value = number(written.get_ref(), &written.span(), constants, places)?;
        let wrong = || places.at(&written.span(), format!("this gives {value}: expected a number, 0 or more"));
        float(&value).filter(|v| v.is_finite() && *v >= 0.0).ok_or_else(wrong)
    };
    Ok(Work { flops: amount(&draft.flops)?, bytes: amount(&draft.bytes)? })
}
