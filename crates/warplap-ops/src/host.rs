//! The host's threads, for right answers: loops come in; they run on threads that survive a fork.

use std::sync::LazyLock;

use rayon::prelude::*;
use warplap_core::array::Array;

use warplap_cpu::pool::Pool;

/// Changes floats that were drawn, row by row of n: what a row's number and an element give. Other types stay as they
/// are.
pub(crate) fn bend(array: &mut Array, n: usize, bent: impl Fn(usize, f32) -> f32 + Sync) {
    fn each<T: Send>(all: &mut [T], n: usize, bent: impl Fn(usize, &T) -> T + Sync) {
        let rows = |all: &mut [T]| {
            let each = |(i, row): (usize, &mut [T])| row.iter_mut().for_each(|x| *x = bent(i, x));
            all.par_chunks_mut(n.max(1)).enumerate().for_each(each);
        };
        in_parallel(|| rows(all));
    }
    match array {
        Array::F32(v) => each(v, n, |i, x| bent(i, *x)),
        Array::F16(v) => each(v, n, |i, x| half::f16::from_f32(bent(i, x.to_f32()))),
        Array::Bf16(v) => each(v, n, |i, x| half::bf16::from_f32(bent(i, x.to_f32()))),
        _ => {}
    }
}

/// Runs loops of rayon's on threads that are made anew after a fork: those of its global pool never are, and a child
/// would wait for them for ever.
pub fn in_parallel<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    static POOL: LazyLock<Pool> =
        LazyLock::new(|| Pool::new(std::thread::available_parallelism().map_or(1, usize::from)));
    POOL.install(work)
}
