//! The host's threads, for right answers: loops come in; they run on threads that survive a fork.

use std::sync::LazyLock;

use rayon::prelude::*;
use warplap_core::array::Array;

use warplap_cpu::pool::Pool;

/// Changes floats that were drawn, row by row of n: what a row's number and an element give. Other types stay as they
/// are.
pub(crate) fn map_floats(array: &mut Array, n: usize, change: impl Fn(usize, f32) -> f32 + Sync) {
    map_floats_by_place(array, n, |row, _, x| change(row, x));
}

/// The same by a row's number, a place in it and an element.
pub(crate) fn map_floats_by_place(array: &mut Array, n: usize, change: impl Fn(usize, usize, f32) -> f32 + Sync) {
    fn each<T: Send>(all: &mut [T], n: usize, change: impl Fn(usize, usize, &T) -> T + Sync) {
        let rows = |all: &mut [T]| {
            let row = |(i, row): (usize, &mut [T])| row.iter_mut().enumerate().for_each(|(j, x)| *x = change(i, j, x));
            all.par_chunks_mut(n.max(1)).enumerate().for_each(row);
        };
        in_parallel(|| rows(all));
    }
    match array {
        Array::F32(v) => each(v, n, |i, j, x| change(i, j, *x)),
        Array::F16(v) => each(v, n, |i, j, x| half::f16::from_f32(change(i, j, x.to_f32()))),
        Array::Bf16(v) => each(v, n, |i, j, x| half::bf16::from_f32(change(i, j, x.to_f32()))),
        _ => {}
    }
}

/// Draws what rows in front of a norm are multiplied with: about half of them become so small that what is added under
/// the root shows. How small those are comes with it.
pub(crate) fn small_rows(rows: u64, under_root: f32, rng: &mut fastrand::Rng) -> (Vec<f32>, f32) {
    let small = (3.0 * under_root).sqrt().log2().round().clamp(-12.0, 0.0).exp2();
    ((0..rows).map(|_| if rng.bool() { small } else { 1.0 }).collect(), small)
}

/// Runs loops of rayon's on threads that are made anew after a fork: those of its global pool never are, and a child
/// would wait for them for ever.
pub fn in_parallel<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    static POOL: LazyLock<Pool> =
        LazyLock::new(|| Pool::new(std::thread::available_parallelism().map_or(1, usize::from)));
    POOL.install(work)
}
