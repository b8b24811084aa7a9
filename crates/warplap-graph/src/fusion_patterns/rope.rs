//! Turns with what comes before them or stands beside them.

use super::{Does, FusionMatch, Launch, LaunchKind, Look, ProductLaunch, named, products};

// Where a turn reads its second tensor, its tables, its positions and its bias.
const K: usize = 1;
const TABLES: [usize; 3] = [2, 3, 4];
const BIAS: usize = 5;

/// A turn of one tensor, without a bias.
fn is_plain(look: &Look, at: usize) -> bool {
    matches!(look.does(at), Does::Rope { .. }) && look.read(at, K).or(look.read(at, BIAS)).is_none()
}

/// A product with a bias, and the turn of its heads: the turn adds the bias. Still two launches, but the product's is a
/// plain one. Between them lies what the product's step would give, without its bias.
pub(super) fn biased(look: &Look, at: usize) -> Vec<FusionMatch> {
    let Some(front) = look.read(at, 0).filter(|_| is_plain(look, at)).and_then(|x| look.made(x)) else {
        return Vec::new();
    };
    let Some(product) = products::product(look, front).filter(|product| product.bias.is_some()) else {
        return Vec::new();
    };
    // A reshape between the two may make other rows of the same numbers.
    if look.steps[front].columns != look.steps[at].read_columns {
        return Vec::new();
    }
    let name = named(&[products::word(product.layout), "bias_rope"]);
    let turn = LaunchKind::Rope { first: None, bias: product.bias };
    let mut result = look.fused(name, turn, &[front, at], at);
    let plain = LaunchKind::Product(ProductLaunch { bias: None, ..product });
    result.launches.insert(0, Launch { of: front, fused: plain, gives: vec![look.output(front)] });
    vec![result]
}

/// A turn and the nearest one before it by the same tables.
pub(super) fn two(look: &Look, at: usize) -> Vec<FusionMatch> {
    if !is_plain(look, at) {
        return Vec::new();
    }
    let tables = |at: usize| TABLES.map(|place| look.read(at, place));
    let Some(cosines) = look.read(at, TABLES[0]) else { return Vec::new() };
    // Where it is written out its parts read the tables too: they are before it.
    let before = look.readers_of(cosines).iter().copied().filter(|other| *other < at && is_plain(look, *other));
    let Some(first) = before.max().filter(|other| look.does(*other) == look.does(at) && tables(*other) == tables(at))
    else {
        return Vec::new();
    };
    let mut result =
        look.fused("rope_pair".into(), LaunchKind::Rope { first: Some(first), bias: None }, &[first, at], at);
    result.outputs.insert(first);
    result.launches[0].gives.insert(0, look.output(first));
    vec![result]
}
