//! Wrong products: one launch of such, and what all of them are made of.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use half::{bf16, f16};
use warplap_core::arg::Arg;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::variant::Kernel;
use warplap_cpu::{Cpu, Slice, SliceMut};
use warplap_ops::gemm::{GemmProblem, Layout, slot};

/// One launch of a mutant: its inputs in f32, its output, and what it remembers.
pub(crate) struct Call<'a, 'm> {
    pub(crate) p: &'m GemmProblem,
    pub(crate) a: Vec<f32>,
    pub(crate) b: Vec<f32>,
    c: SliceMut<'a>,
    pub(crate) address: usize,
    /// Counts launches of this kernel, from 1.
    pub(crate) nth: u64,
    memory: &'m Mutex<BTreeMap<usize, Vec<f32>>>,
}

fn widened(s: Slice<'_>) -> Vec<f32> {
    match s {
        Slice::F32(v) => v.to_vec(),
        Slice::F16(v) => v.iter().map(|x| x.to_f32()).collect(),
        Slice::Bf16(v) => v.iter().map(|x| x.to_f32()).collect(),
        _ => Vec::new(),
    }
}

impl<'a, 'm> Call<'a, 'm> {
    pub(crate) fn new(
        p: &'m GemmProblem,
        args: &mut [Arg<'a, Cpu>],
        nth: u64,
        memory: &'m Mutex<BTreeMap<usize, Vec<f32>>>,
    ) -> Result<Self, Rejection> {
        let (a, b, c) = (args[slot::A].read()?, args[slot::B].read()?, args[slot::C].write()?);
        Ok(Call { p, a: widened(a), b: widened(b), c, address: a.address(), nth, memory })
    }

    pub(crate) fn sizes(&self) -> (usize, usize, usize) {
        (self.p.m as usize, self.p.n as usize, self.p.k as usize)
    }

    pub(crate) fn a(&self, i: usize, q: usize) -> f32 {
        let ld = self.p.lda as usize;
        self.a[if self.p.a == Layout::Row { i * ld + q } else { q * ld + i }]
    }

    pub(crate) fn b(&self, q: usize, j: usize) -> f32 {
        let ld = self.p.ldb as usize;
        self.b[if self.p.b == Layout::Row { q * ld + j } else { j * ld + q }]
    }

    /// The right sum over a part of k.
    pub(crate) fn part(&self, i: usize, j: usize, k: Range<usize>) -> f32 {
        k.map(|q| self.a(i, q) * self.b(q, j)).sum()
    }

    pub(crate) fn sum(&self, i: usize, j: usize) -> f32 {
        self.part(i, j, 0..self.p.k as usize)
    }

    pub(crate) fn put_at(&mut self, at: usize, value: f32) {
        match &mut self.c {
            SliceMut::F32(c) => c[at] = value,
            SliceMut::F16(c) => c[at] = f16::from_f32(value),
            SliceMut::Bf16(c) => c[at] = bf16::from_f32(value),
            _ => {}
        }
    }

    pub(crate) fn get_at(&self, at: usize) -> f32 {
        match &self.c {
            SliceMut::F32(c) => c[at],
            SliceMut::F16(c) => c[at].to_f32(),
            SliceMut::Bf16(c) => c[at].to_f32(),
            _ => 0.0,
        }
    }

    pub(crate) fn at(&self, i: usize, j: usize) -> usize {
        i * self.p.ldc as usize + j
    }

    /// Writes every element by a rule; `None` leaves it as it was.
    pub(crate) fn each(&mut self, rule: impl Fn(&Self, usize, usize) -> Option<f32>) {
        let (m, n, _) = self.sizes();
        for i in 0..m {
            for j in 0..n {
                if let Some(value) = rule(self, i, j) {
                    let at = self.at(i, j);
                    self.put_at(at, value);
                }
            }
        }
    }

    pub(crate) fn right(&mut self) {
        self.each(|c, i, j| Some(c.sum(i, j)));
    }

    /// One element before (-1) or after (+1) the output.
    pub(crate) fn stray(&mut self, by: isize) {
        let len = self.c.len();
        let at = if by < 0 { by } else { len as isize - 1 + by };
        match &mut self.c {
            // SAFETY: as unsafe as it looks, on purpose. The case under test has guard bands of 256 elements of the
            // same allocation on both sides of the output, so no other memory is touched.
            SliceMut::F32(c) => unsafe { *c.as_mut_ptr().offset(at) = 0.25 },
            // SAFETY: as above.
            SliceMut::F16(c) => unsafe { *c.as_mut_ptr().offset(at) = f16::ONE },
            // SAFETY: as above.
            SliceMut::Bf16(c) => unsafe { *c.as_mut_ptr().offset(at) = bf16::ONE },
            _ => {}
        }
    }
}

type Act = fn(&mut Call<'_, '_>) -> Result<(), Rejection>;

/// A mutant's name, where it is wrong (elsewhere it might be right by its nature, and stands aside), and what it does.
pub(crate) type Wrong = (&'static str, fn(&GemmProblem) -> bool, Act);

pub(crate) fn anywhere(_: &GemmProblem) -> bool {
    true
}
pub(crate) fn square(p: &GemmProblem) -> bool {
    p.m == p.k && p.n == p.k && p.is_packed()
}
pub(crate) fn padded(p: &GemmProblem) -> bool {
    p.lda > p.k && p.ldb > p.n && p.ldc > p.n
}
pub(crate) fn tails(p: &GemmProblem) -> bool {
    [p.m, p.n, p.k].iter().all(|size| !size.is_multiple_of(8))
}
pub(crate) fn single(p: &GemmProblem) -> bool {
    p.dtype == DType::F32
}
pub(crate) fn half_precision(p: &GemmProblem) -> bool {
    p.dtype == DType::F16 && p.k >= 256
}
pub(crate) fn brain(p: &GemmProblem) -> bool {
    p.dtype == DType::Bf16 && p.k >= 256
}

// Where two launches cannot be slow enough to be called hopeless on a loaded machine.
pub(crate) fn tiny(p: &GemmProblem) -> bool {
    p.m * p.n * p.k < 2000
}

pub(crate) fn whole(x: usize) -> usize {
    x / 8 * 8
}

/// Gives what was given under this name before.
pub(crate) fn remember(c: &mut Call<'_, '_>, name: usize) {
    let now: Vec<f32> = (0..c.c.len()).map(|at| c.get_at(at)).collect();
    let before = c.memory.lock().unwrap().entry(name).or_insert(now).clone();
    before.into_iter().enumerate().for_each(|(at, value)| c.put_at(at, value));
}

struct Built {
    problem: GemmProblem,
    act: Act,
    launched: AtomicU64,
    memory: Mutex<BTreeMap<usize, Vec<f32>>>,
}

/// The kernel of a mutant.
pub(crate) fn built(p: &GemmProblem, act: Act) -> Box<dyn Kernel<Cpu>> {
    Box::new(Built { problem: *p, act, launched: AtomicU64::new(0), memory: Mutex::default() })
}

impl Kernel<Cpu> for Built {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        let nth = self.launched.fetch_add(1, Ordering::SeqCst) + 1;
        (self.act)(&mut Call::new(&self.problem, args, nth, &self.memory)?)
    }
}
