//! Launches of CUDA kernels: drafts of grid, block, shared memory and cluster come in; checked expressions go out.
//! Those of the kernel name axes and constants, those of the reference constants alone.

use std::ops::Range;

use toml::{Spanned, Value as Written};
use warplap::core::space::{Expr, ExprKind, Space, Value};

use super::Places;
use super::draft::{Draft, LaunchDraft, ReferenceDraft};
use super::value::{Constants, kinds, plain};
use crate::error::SpecError;
use crate::spec::{Language, Launch};

/// The launch of the kernel.
pub(super) fn launch(
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
    let known: Vec<(&str, ExprKind)> = space.kinds().into_iter().chain(kinds(constants)).collect();
    checked(spanned.get_ref(), &known, places).map(Some)
}

/// The launch of a reference, where it states one.
pub(super) fn reference_launch(
    draft: &ReferenceDraft,
    constants: &Constants,
    places: &Places,
) -> Result<Option<Launch>, SpecError> {
    let Some(launch) = &draft.launch else { return Ok(None) };
    let alone =
        |e: SpecError| SpecError { reason: format!("a reference is launched by constants alone: {}", e.reason), ..e };
    checked(launch.get_ref(), &kinds(constants), places).map(Some).map_err(alone)
}

fn checked(draft: &LaunchDraft, known: &[(&str, ExprKind)], places: &Places) -> Result<Launch, SpecError> {
    let one = |written: &Written, at: &Range<usize>| -> Result<Expr, SpecError> {
        let text = match plain(written) {
            Some(Value::Text(text)) => text,
            Some(other) => other.to_string(),
            None => return Err(places.at(at, "this is no size: expected a number or an expression in quotes")),
        };
        let expr = Expr::parse(&text).map_err(|e| places.at(at, e))?;
        expr.check(known).map_err(|e| places.at(at, e))?;
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
    let shared = draft.shared.as_ref().map(|s| one(s.get_ref(), &s.span())).transpose()?;
    let cluster = draft.cluster.as_ref().map_or(Ok(Vec::new()), several)?;
    Ok(Launch { grid: several(&draft.grid)?, block: several(&draft.block)?, shared, cluster })
}
