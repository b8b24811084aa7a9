//! Amx: 8-bit numbers through the tile registers of recent Intel server cores.
//!
//! Idea: the loops of dense brain floats. Signed bytes lie as brain floats of half the k would, and one instruction
//! multiplies twice as many; sums are in i32 and exact. Every number of f8e4m3 is one of bf16: they are widened first,
//! and the factors of matrices, rows and columns meet the finished sums. One of the factors is turned when it is packed,
//! the other copied: with `turned` it is A, and squares of C are turned in its place; with few rows that is less. Wins:
//! from about 64³ on. Limits: a processor and system that grant AMX; an even k for signed bytes; no factors of blocks.

use std::sync::Arc;

use half::bf16;
use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::amx::{Amx, SIDE, Tiles};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa, Lanes, Task};
use warplap_cpu::{Cpu, Typed};

use super::call::{Factors, Floats, Ints, values};
use super::threads;
use crate::gemm::Layout;
use crate::gemm::cpu::amx::{cut, cuts, needs};
use crate::gemm::cpu::kernel::amx::{self, Cut, Sums};
use crate::gemm::cpu::kernel::{Operand, Shared, scratch};
use crate::qgemm::{Qgemm, QgemmProblem, Scale};
use crate::typed::for_dtype;

/// Tile registers.
pub(super) struct AmxBytes;

/// Why a problem is not for tiles, if so.
fn refusal(p: &QgemmProblem) -> Option<&'static str> {
    match Amx::get() {
        None => Some("the processor or the system has no AMX"),
        Some(amx) if p.is_int() && !amx.has_bytes() => Some("the processor's tiles multiply no bytes"),
        _ if p.is_int() && !p.k.is_multiple_of(2) => Some("pairs of bytes are multiplied: k must be even"),
        _ if p.scale == Scale::Block => Some("sums are finished when factors meet them: it has none of blocks"),
        _ => None,
    }
}

impl Variant<Qgemm, Cpu> for AmxBytes {
    fn id(&self) -> &str {
        "amx"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &QgemmProblem, _: &Cpu) -> Fit {
        refusal(p).map_or(Fit::HIGH, Fit::aside)
    }

    fn space(&self, p: &QgemmProblem, cpu: &Cpu) -> Space {
        let turns = match p.is_int() {
            false => vec![0],
            true if p.m < p.n => vec![1, 0],
            true => vec![0, 1],
        };
        // Numbers of f8e4m3 are widened to two bytes; of signed bytes the smaller factor may be the one that stays.
        let stays = if p.is_int() { p.m.min(p.n) * p.k } else { 2 * p.m * p.k };
        cuts(stays).axis(Axis::ints("turned", turns)).axis(threads::axis(p, cpu))
    }

    fn needs(&self, p: &QgemmProblem, config: &Config) -> Needs {
        let (rows, columns) = if config.int("turned") == Some(1) { (p.n, p.m) } else { (p.m, p.n) };
        let (pairs, wide) = if p.is_int() { (p.k.div_ceil(2), 0) } else { (p.k, 2 * p.k * (p.m + p.n)) };
        let needs = needs([rows, columns, pairs], config);
        Needs { workspace: needs.workspace + wide, ..needs }
    }

    fn build(&self, p: &QgemmProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let refused = |reason: String| Rejection::DoesNotBuild { reason };
        let amx = Amx::get().filter(|_| refusal(p).is_none());
        let amx = amx.ok_or_else(|| refused(refusal(p).unwrap_or("no AMX").into()))?;
        let turned = config.int("turned") == Some(1) && p.is_int();
        Ok(Box::new(Squares { problem: *p, amx, cut: cut(config)?, turned, pool: cpu.pool().clone() }))
    }
}

struct Squares {
    problem: QgemmProblem,
    amx: Amx,
    cut: Cut,
    turned: bool,
    pool: Arc<Pool>,
}

impl Squares {
    /// The factors of the product, lines along k of so many pairs of bytes.
    fn factors(&self, a: *const bf16, b: *const bf16, line: usize) -> amx::Factors {
        let (mut sides, [m, n]) = ([a, b], [self.problem.m as usize, self.problem.n as usize]);
        let mut size = [m, n, line];
        if self.turned {
            sides.swap(0, 1);
            size.swap(0, 1);
        }
        let first = Operand { at: sides[0], ld: line, layout: Layout::Row };
        amx::Factors { size, a: first, b: Operand { at: sides[1], layout: Layout::Col, ..first } }
    }
}

impl Kernel<Cpu> for Squares {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        match self.problem.is_int() {
            true => ints(self, args),
            false => for_dtype!(self.problem.out, T => floats::<T>(self, args)),
        }
    }
}

/// i32 sums of signed bytes.
struct Exact {
    c: Shared<i32>,
    n: usize,
    turned: bool,
}

/// A square of sums on its way to its place in C, turned.
struct Turn {
    square: *const u32,
    to: *mut u32,
    n: usize,
    rows: usize,
    columns: usize,
}

impl Task for Turn {
    type Out = ();
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        const PART: usize = 16;
        for (i, j) in (0..self.rows).step_by(PART).flat_map(|i| (0..self.columns).step_by(PART).map(move |j| (i, j))) {
            let (rows, columns) = ((self.rows - i).min(PART), (self.columns - j).min(PART));
            // SAFETY: the square has whole lines; what is written is inside C, says the caller.
            unsafe {
                let line = |r: usize| self.square.add((i + r) * SIDE + j).cast::<[u32; PART]>().read_unaligned();
                let turned = amx::turned::<L>(std::array::from_fn(line));
                for (c, line) in turned.iter().enumerate().take(columns) {
                    std::ptr::copy_nonoverlapping(line.as_ptr(), self.to.add((j + c) * self.n + i), rows);
                }
            }
        }
    }
}

impl Sums for Exact {
    unsafe fn multiply(
        &self,
        tiles: &Tiles,
        steps: usize,
        [a, b]: [*const u16; 2],
        from: (*const f32, usize),
        to: (*mut f32, usize),
    ) {
        // SAFETY: the caller's word; who builds the kernel has asked whether the processor has bytes.
        unsafe { tiles.multiply_bytes(steps, a, b, from, to) };
    }

    unsafe fn finish(&self, isa: Isa, square: *mut f32, (row, first): (usize, usize), (rows, columns): (usize, usize)) {
        if self.turned {
            // SAFETY: the caller's word: rows of the square are columns of C.
            let to = unsafe { self.c.add(first * self.n + row) }.cast();
            return isa.run(Turn { square: square.cast(), to, n: self.n, rows, columns });
        }
        for i in 0..rows {
            // SAFETY: the caller's word; what tiles stored are whole numbers.
            unsafe {
                let (from, to) = (square.add(i * SIDE).cast::<i32>(), self.c.add((row + i) * self.n + first));
                std::ptr::copy_nonoverlapping(from, to, columns);
            }
        }
    }
}

fn ints(kernel: &Squares, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let p = &kernel.problem;
    let Ints { a, b, c } = Ints::of(p, args)?;
    let factors = kernel.factors(a.as_ptr().cast(), b.as_ptr().cast(), p.k as usize / 2);
    let kind = Exact { c: Shared(c.as_mut_ptr()), n: p.n as usize, turned: kernel.turned };
    // SAFETY: the slices hold what the problem spans, and k is whole pairs.
    unsafe { amx::squares(kernel.amx, &kernel.pool, kernel.cut, factors, kind) };
    Ok(())
}

/// f32 sums of widened numbers, with their factors.
struct Scaled<'a, T> {
    c: Shared<T>,
    n: usize,
    factors: Factors<'a>,
}

impl<T: Element> Sums for Scaled<'_, T> {
    unsafe fn finish(&self, _: Isa, square: *mut f32, (row, first): (usize, usize), (rows, columns): (usize, usize)) {
        for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
            // SAFETY: the caller's word.
            unsafe {
                let sum = *square.add(i * SIDE + j) * self.factors.of(row + i, first + j, 0);
                *self.c.add((row + i) * self.n + first + j) = T::narrow(sum);
            }
        }
    }
}

fn floats<T: Element + Typed>(kernel: &Squares, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let p = &kernel.problem;
    let Floats { a, b, c, factors } = Floats::<T>::of(p, args)?;
    let values: [u16; 256] = std::array::from_fn(|code| bf16::from_f32(values()[code]).to_bits());
    scratch::with((a.len() + b.len()).div_ceil(2), |room| {
        let wide = Shared(room.as_mut_ptr().cast::<u16>());
        let tasks = (a.len() + b.len()).div_ceil(PART);
        kernel.pool.each(kernel.cut.threads, tasks, |task| {
            let range = task * PART..((task + 1) * PART).min(a.len() + b.len());
            for at in range {
                let code = if at < a.len() { a[at] } else { b[at - a.len()] };
                // SAFETY: tasks write disjoint parts of the scratch memory, which holds as many as there are codes.
                unsafe { *wide.add(at) = values[usize::from(code.0)] };
            }
        });
        // SAFETY: inside the scratch memory.
        let second = unsafe { wide.add(a.len()) };
        let both = kernel.factors(wide.0.cast(), second.cast(), p.k as usize);
        let kind = Scaled { c: Shared(c.as_mut_ptr()), n: p.n as usize, factors };
        // SAFETY: the scratch memory and C hold what the problem spans.
        unsafe { amx::squares(kernel.amx, &kernel.pool, kernel.cut, both, kind) };
    });
    Ok(())
}

/// Codes that one task widens.
const PART: usize = 1 << 16;
