//! The arguments of a kernel: each draft's type, role, shape and contents worked out, and all of them held against each
//! other.

use std::ops::Range;
use std::sync::Arc;

use toml::{Spanned, Value as Written};
use warplap::DType;
use warplap::core::array::Array;

use super::draft::ArgumentDraft;
use super::value::{Constants, float, is_name, number};
use super::{Places, file};
use crate::argument::{Argument, Element, Fill, Role};
use crate::error::SpecError;
use crate::npy;
use crate::spec::Language;

/// Elements of one buffer at the most, and bytes of all files.
const MOST_ELEMENTS: u64 = 1 << 31;
const MOST_BYTES: u64 = 8 << 30;
/// Arguments a kernel may have.
const MOST_ARGUMENTS: usize = 64;

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

pub(super) fn arguments(
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
        let role = draft.role.as_ref().map_or(whole, Spanned::span);
        if last.role == Role::Constant && language == Language::C {
            let reason = format!("argument '{name}' is constant memory, which C has not: expected role = \"in\"");
            return Err(places.at(&role, reason));
        }
        if last.role == Role::Constant && matches!(last.fill, Fill::Random) {
            let reason = format!(
                "argument '{name}' is constant and random: expected contents that stay: fill = \"zeros\" or \"range\", or \
                 file = \"{name}.npy\""
            );
            return Err(places.at(&role, reason));
        }
        if last.role == Role::Constant && !is_name(name) {
            return Err(places.at(&role, format!("constant '{name}' is no name: expected that of the global it fills")));
        }
    }
    if arguments.len() > MOST_ARGUMENTS {
        return Err(SpecError::new(&places.file, format!("more than {MOST_ARGUMENTS} arguments: expected fewer")));
    }
    if !arguments.iter().any(Argument::is_output) {
        return Err(SpecError::new(&places.file, "no argument is out or inout: expected role = \"out\" at one"));
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
    let wrong = |at: &Range<usize>, what: &str, result: &str, expected: &str| {
        places.at(at, format!("argument '{name}' has the {what} '{result}': expected {expected}"))
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
        Some(("constant", _)) => Role::Constant,
        Some((other, at)) => return Err(wrong(&at, "role", other, "in, out, inout, scalar or constant")),
    };
    if role == Role::Scalar {
        let Some(written) = &draft.value else {
            return Err(places.at(whole, format!("scalar '{name}' has no value: expected a number or an expression")));
        };
        let value = number(written.get_ref(), &written.span(), constants, places)?;
        let by_value = matches!(element, Element::Stored(DType::F64 | DType::F32 | DType::I32 | DType::I64));
        if float(&value).is_none() || !by_value {
            let expected = "a number of type f64, f32, i32 or i64";
            return Err(wrong(&written.span(), "value", &value.to_string(), expected));
        }
        let (shape, fill) = (Vec::new(), Fill::Zeros);
        return Ok(Argument { name, element, role, shape, fill, value: Some(value) });
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

pub(super) fn loaded(path: &Spanned<String>, places: &Places) -> Result<(Vec<u64>, Array), SpecError> {
    let full = places.beside(path.get_ref());
    let refused = |why: String| places.at(&path.span(), format!("file '{}': {why}", full.display()));
    let bytes = file(&full, MOST_BYTES).map_err(|why| refused(format!("{why}: expected a .npy file")))?;
    npy::parse(&bytes).map_err(refused)
}
