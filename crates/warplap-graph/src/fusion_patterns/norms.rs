//! Norms with what comes before them: a line added to all rows, elements dropped, a sum.

use super::{Does, FusionMatch, Launch, LaunchKind, Look, NormLaunch, named};

/// A norm with everything before it that one launch can do. The sum is kept where somebody else reads it.
pub(super) fn fronts(look: &Look, at: usize) -> Vec<FusionMatch> {
    let Does::Norm { kind, eps } = look.does(at) else { return Vec::new() };
    let Some(total) = look.read(at, 0) else { return Vec::new() };
    let (weight, bias) = (look.read(at, 1), look.read(at, 2));
    let plain =
        NormLaunch { kind, eps, x: total, weight, bias, residual: None, before: None, dropout: 0.0, writes_sum: true };
    let Some(sum) = look.made(total) else { return Vec::new() };
    let done = |words: &[&str], norm: NormLaunch, steps: &[usize]| {
        let mut outputs = [at].into_iter().collect::<std::collections::BTreeSet<_>>();
        let mut gives = vec![look.output(at)];
        if norm.writes_sum {
            outputs.insert(sum);
            gives.push(total);
        }
        let launches = vec![Launch { of: at, fused: LaunchKind::Norm(norm), gives }];
        FusionMatch { name: named(words), launches, steps: look.whole(steps), outputs }
    };
    let mut result = Vec::new();
    for front in before(look, total) {
        let norm = NormLaunch { x: front.x, before: front.line, dropout: front.dropout, ..plain.clone() };
        result.push(done(&[&front.name(), "norm"], norm, &[&front.steps[..], &[at]].concat()));
    }
    let Some(sides) = look.sum(sum) else { return result };
    let kept = look.is_read_outside(sum, &[sum, at]);
    let norm = NormLaunch { x: sides[0], residual: Some(sides[1]), writes_sum: kept, ..plain.clone() };
    let name = if kept { "add_norm" } else { "norm_of_sum" };
    result.push(done(&[name], norm, &[sum, at]));
    for [one, other] in [sides, [sides[1], sides[0]]] {
        for front in before(look, one) {
            let norm = NormLaunch {
                x: front.x,
                residual: Some(other),
                before: front.line,
                dropout: front.dropout,
                ..plain.clone()
            };
            result.push(done(&[&front.name(), "add_norm"], norm, &[&front.steps[..], &[sum, at]].concat()));
        }
    }
    result
}

/// What is done to a norm's rows, or to a side of its sum.
struct Before {
    steps: Vec<usize>,
    x: usize,
    line: Option<usize>,
    dropout: f64,
}

impl Before {
    fn name(&self) -> String {
        named(&[if self.line.is_some() { "bias" } else { "" }, if self.dropout > 0.0 { "drop" } else { "" }])
    }
}

/// All that ends with a value.
fn before(look: &Look, value: usize) -> Vec<Before> {
    let (mut result, mut steps, mut dropout, mut value) = (Vec::new(), Vec::new(), 0.0, value);
    if let Some(at) = look.made(value)
        && let (Does::Dropout(share), Some(x)) = (look.does(at), look.read(at, 0))
        && share > 0.0
        && share < 1.0
    {
        steps.push(at);
        (dropout, value) = (share, x);
        result.push(Before { steps: steps.clone(), x, line: None, dropout });
    }
    if let Some(at) = look.made(value)
        && let (Does::Spread { is_line: true }, Some(x)) = (look.does(at), look.read(at, 0))
    {
        steps.push(at);
        result.push(Before { steps, x, line: look.read(at, 1), dropout });
    }
    result
}
