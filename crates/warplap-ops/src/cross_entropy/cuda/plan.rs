//! What the plans of cross entropy share: the facts kernels are compiled with, the arguments, and the count of rows that
//! a gradient of a mean needs first.

use warplap_cuda::{ELEMENT, ENTROPY, ROWS, SOFT, Source, dtype_code};

use crate::cross_entropy::{CrossEntropyProblem, Reduction, SLOTS, slot};
use crate::cuda::plan::{Argument, Grid, Plan, PrePostLaunches, int};
use crate::cuda::scratch::Need;

/// What kernels include.
pub(super) const HEADERS: [(&str, &str); 4] = [ENTROPY, SOFT, ROWS, ELEMENT];

/// Facts of the problem that every kernel is compiled with.
pub(super) fn facts(p: &CrossEntropyProblem) -> Vec<(&'static str, i64)> {
    vec![
        ("DTYPE", dtype_code(p.dtype)),
        ("LABELS", p.labels.bytes() as i64),
        ("GRAD", i64::from(p.grad)),
        ("KEPT", i64::from(p.kept)),
        ("MEAN", i64::from(p.reduction == Reduction::Mean)),
        ("SMOOTH", i64::from(p.smoothing() > 0.0)),
        ("ZLOSS", i64::from(p.zloss() > 0.0)),
    ]
}

/// The parameters that every entry has: all slots in order, scratch (how many blocks have ended, one over the number of
/// rows that count), rows, logits of a row, the label that does not count, smoothing and z-loss.
pub(super) fn arguments(p: &CrossEntropyProblem) -> Vec<Argument> {
    // A float is the 32 bits it consists of.
    let [smoothing, zloss] = [p.smoothing(), p.zloss()].map(|x| Argument::Int(x.to_bits() as i32));
    let scratch = Argument::Scratch(Need { words: 4, zeros: 1 });
    let numbers = [scratch, int(p.rows), int(p.n), Argument::Long(p.ignore as u64), smoothing, zloss];
    (0..SLOTS).map(Argument::Pointer).chain(numbers).collect()
}

/// What is launched in front: gradients of a mean need the number of rows that count.
pub(super) fn counted(p: &CrossEntropyProblem) -> PrePostLaunches {
    if !p.grad || p.reduction != Reduction::Mean {
        return PrePostLaunches::default();
    }
    let defines = vec![("LABELS", p.labels.bytes() as i64)];
    let count = Plan {
        source: Source { entry: "count", text: include_str!("count.cu"), headers: &[], defines },
        threads: 1024,
        shared: 0,
        grid: Grid::Blocks(1),
        arguments: vec![
            Argument::Pointer(slot::LABELS),
            Argument::Room(1),
            int(p.rows),
            Argument::Long(p.ignore as u64),
        ],
        overlap: false,
    };
    PrePostLaunches { first: vec![count], last: Vec::new() }
}
