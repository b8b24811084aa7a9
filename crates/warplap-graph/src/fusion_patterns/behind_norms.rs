//! Products that take an RMSNorm in: their rows are divided by the root mean square of what is multiplied. A weight of
//! the norm is the caller's to fold into theirs: only he knows whether weights stay as they are.

use warplap_ops::gemm::Activation;
use warplap_ops::norm::Kind;

use super::{Does, Front, FusionMatch, Launch, LaunchKind, Look, named, products};

/// Products of one norm at the most: q, k and v, and one more.
const MOST: usize = 4;

/// A product, a product with what is done to it, or a pair, behind an RMSNorm.
pub(super) fn product(look: &Look, at: usize) -> Vec<FusionMatch> {
    let mut result = products::epilogue(look, at);
    result.extend(products::gated(look, at));
    if let Some(plain) = products::product(look, at) {
        let name = products::word(plain.layout).to_string();
        result.push(look.fused(name, LaunchKind::Product(plain), &[at], at));
    }
    result.into_iter().filter_map(|one| behind(look, one)).collect()
}

/// The norm that gives a value, and what it is of.
fn norm(look: &Look, value: usize) -> Option<(usize, usize, Front)> {
    let at = look.made(value)?;
    match look.does(at) {
        Does::Norm { kind: Kind::Rms, eps } if look.read(at, 2).is_none() => {
            Some((at, look.read(at, 0)?, Front { eps, gain: look.read(at, 1) }))
        }
        _ => None,
    }
}

/// The same behind the norm that gives what it multiplies.
fn behind(look: &Look, mut result: FusionMatch) -> Option<FusionMatch> {
    let launch = result.launches.first_mut()?;
    let LaunchKind::Product(product) = &mut launch.fused else { return None };
    let (front, x, norm) = norm(look, product.x)?;
    // A reshape between the two makes other rows of the same numbers.
    if look.steps[front].columns != look.steps[launch.of].read_columns {
        return None;
    }
    // What is joined may be the norm itself: then it has to be there.
    if product.joined.is_some_and(|(_, other)| other == product.x) {
        return None;
    }
    (product.x, product.front) = (x, Some(norm));
    result.steps.extend(look.whole(&[front]));
    result.name = named(&["norm", &result.name]);
    Some(result)
}

/// All products of one norm, which nobody else reads; the last of them is this step.
pub(super) fn several(look: &Look, at: usize) -> Vec<FusionMatch> {
    let Some((front, x, norm)) = look.read(at, 0).and_then(|value| norm(look, value)) else { return Vec::new() };
    let value = look.output(front);
    let readers = look.readers_of(value).to_vec();
    if readers.last() != Some(&at) || !(2..=MOST).contains(&readers.len()) {
        return Vec::new();
    }
    let mut launches = Vec::new();
    for reader in &readers {
        let Some(plain) = products::product(look, *reader) else { return Vec::new() };
        let is_own = plain.x == value && plain.w != value && plain.bias != Some(value);
        if !is_own || plain.act != Activation::None || look.steps[front].columns != look.steps[*reader].read_columns {
            return Vec::new();
        }
        let product = super::ProductLaunch { x, front: Some(norm), ..plain };
        launches.push(Launch { of: *reader, fused: LaunchKind::Product(product), gives: vec![look.output(*reader)] });
    }
    let name = format!("norm_linears_{}", readers.len());
    let outputs = readers.iter().copied().collect();
    let steps = look.whole(&[&readers[..], &[front]].concat());
    vec![FusionMatch { name, launches, steps, outputs }]
}
