//! Pairs: both elements of a pair at once in vectors, rows dealt out to threads.
//!
//! Idea: a row's cosines and sines are widened, signed and spread over a head's elements once and stay in the first
//! cache for all its heads. Halves are two vectors that are turned into two; neighbours go through a head in f32, whose
//! loop the compiler makes vectors of. Wins: everything. Limits: none.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::problem::Problem;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::simd::{Element, Lanes, Task};
use warplap_cpu::{Cpu, Typed};

use super::call::{Call, Table};
use crate::rope::{Pairs, Rope, RopeProblem};
use crate::row_vectors::{Setting, load, space, store, with_row};
use crate::typed::for_dtype;

/// Both elements of a pair at once.
pub(super) struct TwoByTwo;

impl Variant<Rope, Cpu> for TwoByTwo {
    fn id(&self) -> &str {
        "pairs"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &RopeProblem, _: &Cpu) -> Fit {
        Fit::HIGH
    }

    fn space(&self, p: &RopeProblem, cpu: &Cpu) -> Space {
        space(p.work().bytes, cpu)
    }

    fn needs(&self, _: &RopeProblem, config: &Config) -> Needs {
        Needs { threads: config.size("threads").unwrap_or(1) as u64, ..Needs::default() }
    }

    fn build(&self, p: &RopeProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Built { problem: *p, setting: Setting::read(config, cpu)? }))
    }
}

struct Built {
    problem: RopeProblem,
    setting: Setting,
}

impl Kernel<Cpu> for Built {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => rows::<T>(&self.problem, &self.setting, args))
    }
}

fn rows<T: Element + Typed>(p: &RopeProblem, setting: &Setting, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let call = Call::<T>::of(p, args)?;
    let width = (p.heads() * p.d) as usize;
    let rooms = [p.columns(), p.columns(), p.rot, p.rot, p.d].map(|len| room(len as usize)).iter().sum();
    setting.each(p.rows as usize, width, |first, end| {
        with_row(rooms, |kept| setting.isa.run(Run { call: &call, first, end, kept }));
    });
    Ok(())
}

/// What so many numbers and the longest vector behind them take.
const fn room(len: usize) -> usize {
    len + 64
}

/// Rows of a call, from the first to before the end.
struct Run<'a, 'b, T> {
    call: &'a Call<'b, T>,
    first: usize,
    end: usize,
    /// Cosines and sines as they lie, then spread, then a head.
    kept: &'a mut [f32],
}

/// Widens so many numbers of a table.
///
/// # Safety
/// Both addresses have them; the machine has the instruction set of `L`.
#[inline(always)]
unsafe fn widen<L: Lanes, U: Element>(from: *const U, to: *mut f32, len: usize) {
    let mut at = 0;
    while at < len {
        let count = L::N.min(len - at);
        // SAFETY: the caller's word.
        unsafe { store::<L, f32>(to.add(at), count, load::<L, U>(from.add(at), count)) };
        at += count;
    }
}

/// Spreads a row of the table over the elements of a head, the sines with their signs.
#[inline(always)]
fn spread(p: &RopeProblem, table: [&[f32]; 2], cos: &mut [f32], sin: &mut [f32]) {
    let half = cos.len() / 2;
    let sign = if p.back { -1.0 } else { 1.0 };
    match (p.pairs, p.wide) {
        (Pairs::Halves, false) => {
            for i in 0..half {
                (cos[i], sin[i]) = (table[0][i], -sign * table[1][i]);
                (cos[half + i], sin[half + i]) = (table[0][i], sign * table[1][i]);
            }
        }
        (Pairs::Interleaved, false) => {
            for i in 0..half {
                (cos[2 * i], sin[2 * i]) = (table[0][i], -sign * table[1][i]);
                (cos[2 * i + 1], sin[2 * i + 1]) = (table[0][i], sign * table[1][i]);
            }
        }
        (_, true) => {
            for j in 0..cos.len() {
                let (column, sign) = p.sine(j);
                (cos[j], sin[j]) = (table[0][j], sign * table[1][column]);
            }
        }
    }
}

impl<T: Element> Task for Run<'_, '_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let (call, p) = (self.call, self.call.problem);
        let (d, rot, columns) = (p.d as usize, p.rot as usize, p.columns() as usize);
        let (table, kept) = self.kept.split_at_mut(2 * room(columns));
        let (cos, kept) = kept.split_at_mut(room(rot));
        let (sin, head) = kept.split_at_mut(room(rot));
        for row in self.first..self.end {
            match call.line(row) {
                None => [&mut *cos, &mut *sin].into_iter().for_each(|line| line.fill(f32::NAN)),
                Some(line) => {
                    let to = table.as_mut_ptr();
                    for which in 0..2 {
                        // SAFETY: the table has the row, and the room holds two; the instruction set is the
                        // caller's word.
                        unsafe {
                            let to = to.add(which * room(columns));
                            match call.table {
                                Table::Wide(t) => widen::<L, f32>(t[which].as_ptr().add(line), to, columns),
                                Table::Half(t) => widen::<L, half::f16>(t[which].as_ptr().add(line), to, columns),
                                Table::Brain(t) => widen::<L, half::bf16>(t[which].as_ptr().add(line), to, columns),
                            }
                        }
                    }
                    let (first, second) = table.split_at(room(columns));
                    spread(&p, [&first[..columns], &second[..columns]], &mut cos[..rot], &mut sin[..rot]);
                }
            }
            let all = if p.writes_rest() { p.heads() } else { p.turned() };
            for i in 0..all as usize {
                let (from, to, bias) = call.head(row, i);
                let begin = if (i as u64) < p.turned() { rot } else { 0 };
                // SAFETY: the problem has the head of d elements, which this task alone writes, and the bias where
                // it is not null; cosines and sines hold `rot` and a vector more; the instruction set is the
                // caller's word.
                unsafe {
                    match p.pairs {
                        _ if begin == 0 => {}
                        Pairs::Halves => halves::<L, T>(from, to, bias, cos, sin, rot / 2),
                        Pairs::Interleaved => neighbours::<L, T>(from, to, bias, &cos[..rot], &sin[..rot], head),
                    }
                    if p.writes_rest() {
                        rest::<L, T>(from, to, bias, begin, d);
                    }
                }
            }
        }
    }
}

/// Elements with their bias.
///
/// # Safety
/// As for [`load`], of both.
#[inline(always)]
unsafe fn biased<L: Lanes, T: Element>(from: *const T, bias: *const T, at: usize, count: usize) -> L::V {
    // SAFETY: the caller's word.
    unsafe {
        let x = load::<L, T>(from.add(at), count);
        if bias.is_null() { x } else { L::add(x, load::<L, T>(bias.add(at), count)) }
    }
}

/// # Safety
/// All have two halves, cosines and sines a vector more; the machine has the instruction set of `L`.
#[inline(always)]
unsafe fn halves<L: Lanes, T: Element>(
    from: *const T,
    to: *mut T,
    bias: *const T,
    cos: &[f32],
    sin: &[f32],
    half: usize,
) {
    let (cos, sin, mut at) = (cos.as_ptr(), sin.as_ptr(), 0);
    while at < half {
        let count = L::N.min(half - at);
        // SAFETY: the caller's word.
        unsafe {
            let a = biased::<L, T>(from, bias, at, count);
            let b = biased::<L, T>(from, bias, half + at, count);
            let first = L::fma(a, L::load(cos.add(at)), L::mul(b, L::load(sin.add(at))));
            let second = L::fma(b, L::load(cos.add(half + at)), L::mul(a, L::load(sin.add(half + at))));
            store::<L, T>(to.add(at), count, first);
            store::<L, T>(to.add(half + at), count, second);
        }
        at += count;
    }
}

/// # Safety
/// As for [`halves`]; the head's room has a vector more too.
#[inline(always)]
unsafe fn neighbours<L: Lanes, T: Element>(
    from: *const T,
    to: *mut T,
    bias: *const T,
    cos: &[f32],
    sin: &[f32],
    head: &mut [f32],
) {
    let rot = cos.len();
    let mut at = 0;
    while at < rot {
        let count = L::N.min(rot - at);
        // SAFETY: the caller's word.
        unsafe { L::store(head.as_mut_ptr().add(at), biased::<L, T>(from, bias, at, count)) };
        at += count;
    }
    for ((pair, c), s) in head[..rot].chunks_exact_mut(2).zip(cos.chunks_exact(2)).zip(sin.chunks_exact(2)) {
        let (a, b) = (pair[0], pair[1]);
        pair[0] = a * c[0] + b * s[0];
        pair[1] = b * c[1] + a * s[1];
    }
    at = 0;
    while at < rot {
        let count = L::N.min(rot - at);
        // SAFETY: the caller's word.
        unsafe { store::<L, T>(to.add(at), count, L::load(head.as_ptr().add(at))) };
        at += count;
    }
}

/// What is not turned: with its bias, or as it is.
///
/// # Safety
/// As for [`halves`], from `begin` to before `end`.
#[inline(always)]
unsafe fn rest<L: Lanes, T: Element>(from: *const T, to: *mut T, bias: *const T, begin: usize, end: usize) {
    if bias.is_null() {
        // SAFETY: the caller's word; without a bias nobody asks for it in place.
        return unsafe { std::ptr::copy_nonoverlapping(from.add(begin), to.add(begin), end - begin) };
    }
    let mut at = begin;
    while at < end {
        let count = L::N.min(end - at);
        // SAFETY: the caller's word.
        unsafe { store::<L, T>(to.add(at), count, biased::<L, T>(from, bias, at, count)) };
        at += count;
    }
}
