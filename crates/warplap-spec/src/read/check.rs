//! From a draft to a Spec: names are resolved, expressions worked out, files read. Every refusal names the line.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use toml::{Spanned, Value as Written};
use warplap::core::array::Array;
use warplap::core::roofline::Work;

use super::arguments::{arguments, loaded};
use super::axes::space;
use super::draft::{Draft, Files, MetricDraft, ReferenceDraft, ToleranceDraft};
use super::launch::{launch, reference_launch};
use super::objective::objective;
use super::value::{Constants, constants, float, is_name, number};
use super::{Places, file};
use crate::argument::{Argument, Fill, Role};
use crate::error::SpecError;
use crate::spec::{Code, Language, Reference, Spec};

/// Bytes of a source file at the most.
const MOST_SOURCE: u64 = 16 << 20;

/// Works a draft out.
pub(super) fn checked(draft: Draft, places: &Places) -> Result<Spec, SpecError> {
    let language = language(&draft, places)?;
    let code = Code {
        path: places.beside(draft.source.get_ref()),
        text: source(&draft.source, places)?,
        entry: entry(&draft.entry, places)?,
        flags: draft.flags.clone(),
    };
    let header = |name: &Spanned<String>| Ok((name.get_ref().clone(), source(name, places)?));
    let headers = draft.headers.iter().map(header).collect::<Result<Vec<_>, SpecError>>()?;
    let constants = constants(&draft.constants, places)?;
    let arguments = arguments(&draft.arguments, &constants, language, places)?;
    let space = space(&draft, &constants, places)?;
    let launch = launch(&draft, language, &space, &constants, places)?;
    let reference = reference(draft.reference.as_ref(), &arguments, language, &constants, places)?;
    let reference_line = draft.reference.as_ref().and_then(|r| places.line_of(&r.span()));
    let work = work(draft.metric.as_ref(), &constants, places)?;
    let named = draft.metric.as_ref().and_then(|m| m.get_ref().objective.as_ref());
    let objective_line = named.and_then(|o| places.line_of(&o.span()));
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
        energy: draft.metric.as_ref().is_some_and(|m| m.get_ref().energy),
        objective: objective(draft.metric.as_ref(), &space, &constants, work, places)?,
        objective_line,
        work,
        constants,
        arguments,
        launch,
        space,
        reference,
        reference_line,
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

fn entry(entry: &Spanned<String>, places: &Places) -> Result<String, SpecError> {
    let name = entry.get_ref();
    match is_name(name) {
        true => Ok(name.clone()),
        false => Err(places.at(&entry.span(), format!("entry is '{name}': expected the name of a function"))),
    }
}

fn reference(
    draft: Option<&Spanned<ReferenceDraft>>,
    arguments: &[Argument],
    language: Language,
    constants: &Constants,
    places: &Places,
) -> Result<Reference, SpecError> {
    let Some(spanned) = draft else { return Ok(Reference::Default) };
    let (draft, whole) = (spanned.get_ref(), spanned.span());
    let is_cuda = |path: &Spanned<String>| path.get_ref().ends_with(".cu");
    let in_cuda = draft.python.is_none() && draft.file.is_none() && draft.source.as_ref().is_some_and(is_cuda);
    if let Some(launch) = draft.launch.as_ref().filter(|_| !in_cuda) {
        return Err(
            places.at(&launch.span(), "only a reference in CUDA is launched: expected source = \"….cu\" with it")
        );
    }
    if let Some(files) = &draft.file {
        return answers(files, arguments, places);
    }
    let (Some(path), Some(name)) = (draft.python.as_ref().or(draft.source.as_ref()), &draft.entry) else {
        let reason =
            "the reference is not whole: expected source (C or CUDA) or python, and entry, or file = \"answer.npy\"";
        return Err(places.at(&whole, reason));
    };
    if in_cuda && language == Language::C {
        return Err(places.at(&path.span(), "the reference is CUDA and the kernel C: expected a C source"));
    }
    let in_c = draft.python.is_none() && !in_cuda;
    if let Some(constant) = arguments.iter().find(|a| in_c && a.role == Role::Constant) {
        let reason = format!(
            "the reference is C, which has no constant memory, and '{}' lies there: expected a reference in CUDA or Python",
            constant.name
        );
        return Err(places.at(&path.span(), reason));
    }
    let (full, text, entry) = (places.beside(path.get_ref()), source(path, places)?, entry(name, places)?);
    let code = Code { path: full, text, entry, flags: draft.flags.clone() };
    Ok(match (in_cuda, in_c) {
        (true, _) => Reference::Cuda(code, reference_launch(draft, constants, places)?),
        (_, true) => Reference::Kernel(code),
        _ => Reference::Python(code),
    })
}

/// Right answers from files: one for each output, in their order.
fn answers(files: &Spanned<Files>, arguments: &[Argument], places: &Places) -> Result<Reference, SpecError> {
    let at = files.span();
    let outputs: Vec<&Argument> = arguments.iter().filter(|a| a.is_output()).collect();
    let names = files.get_ref().names();
    if names.len() != outputs.len() {
        let (result, expected) = (names.len(), outputs.len());
        let reason = format!(
            "there are {result} answer files and {expected} outputs: expected one file for each argument that is out or inout"
        );
        return Err(places.at(&at, reason));
    }
    let answer = |(name, output): (&String, &&Argument)| {
        let (sizes, array) = loaded(&Spanned::new(at.clone(), name.clone()), places)?;
        if sizes != output.shape {
            let reason = format!(
                "the answer has the shape {sizes:?}: expected {:?}, that of the argument '{}'",
                output.shape, output.name
            );
            return Err(places.at(&at, reason));
        }
        Ok(array)
    };
    let answers = names.iter().zip(&outputs).map(answer).collect::<Result<Vec<Array>, SpecError>>()?;
    if let Some(random) = arguments.iter().find(|a| a.is_input() && matches!(a.fill, Fill::Random)) {
        let reason = format!(
            "an answer file fits one set of inputs, and '{}' is random: expected it from a file, zeros or range",
            random.name
        );
        return Err(places.at(&at, reason));
    }
    Ok(Reference::Files(Arc::new(answers)))
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
    let amount = |written: &Option<Spanned<Written>>| -> Result<f64, SpecError> {
        let Some(written) = written else { return Ok(0.0) };
        let value = number(written.get_ref(), &written.span(), constants, places)?;
        let wrong = || places.at(&written.span(), format!("this gives {value}: expected a number, 0 or more"));
        float(&value).filter(|v| v.is_finite() && *v >= 0.0).ok_or_else(wrong)
    };
    Ok(Work { flops: amount(&draft.flops)?, bytes: amount(&draft.bytes)? })
}
