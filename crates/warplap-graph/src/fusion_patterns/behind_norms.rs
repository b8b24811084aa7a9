//! Products that take an RMSNorm in: their rows are divided by the root mean square of what is multiplied.

use warplap_ops::gemm::{Rms, slot};
use warplap_ops::norm::Kind;

use super::{Look, Match, named, products};
use crate::node::{What, alone};
use crate::task::Task;

/// A product, a product with what is done to it, or a pair, behind an RMSNorm without a weight. With one it is the
/// caller's to fold it into the product's: nobody knows here whether weights stay as they are.
pub(super) fn product(look: &Look<'_>, at: usize) -> Vec<Match> {
    let mut result = products::epilogue(look, at);
    result.extend(products::pair(look, at));
    if let What::Product { .. } = look.nodes[at].what {
        let node = &look.nodes[at];
        result.push(look.pattern_match(named(&[&node.word()]), vec![alone(node)], &[at], at));
    }
    result.into_iter().filter_map(|one| behind(look, one)).collect()
}

/// The same behind the norm that gives what it multiplies.
fn behind(look: &Look<'_>, mut result: Match) -> Option<Match> {
    let call = result.calls.first_mut()?;
    let a = call.slots[slot::A]?;
    let front = look.made(a)?;
    let What::Norm { kind: Kind::Rms, weight: false, bias: false, eps } = look.nodes[front].what else { return None };
    let Task::Gemm(problem) = call.task else { return None };
    // A reshape between the two makes other rows of the same numbers.
    if look.nodes[front].n != problem.k {
        return None;
    }
    // What is joined may be the norm itself: then it has to be there.
    if call.slots.iter().filter(|value| **value == Some(a)).count() > 1 {
        return None;
    }
    call.task = Task::Gemm(problem.with_rms(Some(Rms::new(eps)?)));
    call.slots[slot::A] = Some(look.nodes[front].reads[0]);
    result.nodes.insert(front);
    result.name = named(&["norm", &result.name]);
    Some(result)
}
