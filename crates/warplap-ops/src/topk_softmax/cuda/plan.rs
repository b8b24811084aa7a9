//! What the plans of the router's softmax share: the facts kernels are compiled with, headers, arguments, and how much
//! of a row a thread holds.

use warplap_cuda::{BLOCK, ELEMENT, ROWS, SOFT, dtype_code};

use crate::cuda::plan::{Argument, int};
use crate::cuda::rows::Rows;
use crate::topk_softmax::{SLOTS, TopkSoftmaxProblem};

/// Numbers as whole ones in the order of rows.
const ORDER: (&str, &str) = ("order.cuh", include_str!("order.cuh"));

/// A thread's part of a row, and the first of what is left.
const CHOOSE: (&str, &str) = ("choose.cuh", include_str!("choose.cuh"));

/// What kernels include that hold rows in registers.
pub(super) const HEADERS: [(&str, &str); 5] = [CHOOSE, SOFT, ROWS, ORDER, ELEMENT];

/// What plain kernels include.
pub(super) const PLAIN_HEADERS: [(&str, &str); 3] = [BLOCK, ORDER, ELEMENT];

/// Elements of a thread that registers hold.
const MOST: u64 = 32;

/// Facts of the problem that every kernel is compiled with.
pub(super) fn facts(p: &TopkSoftmaxProblem) -> Vec<(&'static str, i64)> {
    vec![
        ("DTYPE", dtype_code(p.dtype)),
        ("N", p.n as i64),
        ("K", p.k as i64),
        ("RENORMALIZE", i64::from(p.renormalize)),
    ]
}

/// The parameters that every entry has: all slots in order, then rows.
pub(super) fn arguments(p: &TopkSoftmaxProblem) -> Vec<Argument> {
    (0..SLOTS).map(Argument::Pointer).chain([int(p.rows)]).collect()
}

/// Elements of the widest load that rows of this length and type allow.
pub(super) fn widest(p: &TopkSoftmaxProblem) -> u64 {
    Rows { n: p.n, dtype: p.dtype, held: 1 }.widest()
}

/// The loads worth a try: the widest, and half of it.
pub(super) fn loads(p: &TopkSoftmaxProblem) -> impl Iterator<Item = i64> {
    let wide = widest(p);
    [wide, wide / 2].into_iter().filter(move |vec| *vec == wide || *vec >= 2).map(|vec| vec as i64)
}

/// Elements of a row that one of so many threads has, where a load brings `vec` of them.
pub(super) fn of_thread(p: &TopkSoftmaxProblem, threads: u64, vec: u64) -> u64 {
    p.n.div_ceil(threads * vec) * vec
}

/// Whether registers hold a row dealt out to so many threads, and most of these have a part of it.
pub(super) fn suits(p: &TopkSoftmaxProblem, threads: u64, vec: u64) -> bool {
    let busy = threads == 1 || p.n.div_ceil(vec) > threads / 2;
    busy && of_thread(p, threads, vec) <= MOST
}
