//! Wrong kernels against the real product on the real CPU: each is rejected wherever it fits, none wins, none is kept
//! as measured (fault test F21). A mutant that passes is a hole in `verify`, not in the mutant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use half::{bf16, f16};
use warplap_core::arg::Arg;
use warplap_core::candidate::{Outcome, SourceHash};
use warplap_core::card::Entry;
use warplap_core::catalog::Catalog;
use warplap_core::dtype::DType;
use warplap_core::op::Op;
use warplap_core::progress::Silent;
use warplap_core::rejection::Rejection;
use warplap_core::roofline::{Bandwidth, Ceilings};
use warplap_core::settings::{Budget, Settings};
use warplap_core::space::{Config, Space};
use warplap_core::store::Store;
use warplap_core::tuner::Tuner;
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_core::verify::Case;
use warplap_cpu::{Cpu, Slice, SliceMut};
use warplap_ops::gemm::{self, Gemm, GemmProblem, Layout, slot};

/// One launch of a mutant: its inputs in f32, its output, and what it remembers.
struct Call<'a, 'm> {
    p: &'m GemmProblem,
    a: Vec<f32>,
    b: Vec<f32>,
    c: SliceMut<'a>,
    address: usize,
    /// Counts launches of this kernel, from 1.
    nth: u64,
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
    fn new(
        p: &'m GemmProblem,
        args: &mut [Arg<'a, Cpu>],
        nth: u64,
        memory: &'m Mutex<BTreeMap<usize, Vec<f32>>>,
    ) -> Result<Self, Rejection> {
        let (a, b, c) = (args[slot::A].read()?, args[slot::B].read()?, args[slot::C].write()?);
        Ok(Call { p, a: widened(a), b: widened(b), c, address: a.address(), nth, memory })
    }

    fn sizes(&self) -> (usize, usize, usize) {
        (self.p.m as usize, self.p.n as usize, self.p.k as usize)
    }

    fn a(&self, i: usize, q: usize) -> f32 {
        let ld = self.p.lda as usize;
        self.a[if self.p.a == Layout::Row { i * ld + q } else { q * ld + i }]
    }

    fn b(&self, q: usize, j: usize) -> f32 {
        let ld = self.p.ldb as usize;
        self.b[if self.p.b == Layout::Row { q * ld + j } else { j * ld + q }]
    }

    /// The right sum over a part of k.
    fn part(&self, i: usize, j: usize, k: std::ops::Range<usize>) -> f32 {
        k.map(|q| self.a(i, q) * self.b(q, j)).sum()
    }

    fn sum(&self, i: usize, j: usize) -> f32 {
        self.part(i, j, 0..self.p.k as usize)
    }

    fn put_at(&mut self, at: usize, value: f32) {
        match &mut self.c {
            SliceMut::F32(c) => c[at] = value,
            SliceMut::F16(c) => c[at] = f16::from_f32(value),
            SliceMut::Bf16(c) => c[at] = bf16::from_f32(value),
            _ => {}
        }
    }

    fn get_at(&self, at: usize) -> f32 {
        match &self.c {
            SliceMut::F32(c) => c[at],
            SliceMut::F16(c) => c[at].to_f32(),
            SliceMut::Bf16(c) => c[at].to_f32(),
            _ => 0.0,
        }
    }

    fn at(&self, i: usize, j: usize) -> usize {
        i * self.p.ldc as usize + j
    }

    /// Writes every element by a rule; `None` leaves it as it was.
    fn each(&mut self, rule: impl Fn(&Self, usize, usize) -> Option<f32>) {
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

    fn right(&mut self) {
        self.each(|c, i, j| Some(c.sum(i, j)));
    }

    /// One element before (-1) or after (+1) the output.
    fn stray(&mut self, by: isize) {
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

/// Where a mutant is wrong: elsewhere it might be right by its nature, and stands aside.
type Where = fn(&GemmProblem) -> bool;

fn anywhere(_: &GemmProblem) -> bool {
    true
}
fn square(p: &GemmProblem) -> bool {
    p.m == p.k && p.n == p.k && p.is_packed()
}
fn padded(p: &GemmProblem) -> bool {
    p.lda > p.k && p.ldb > p.n && p.ldc > p.n
}
fn tails(p: &GemmProblem) -> bool {
    [p.m, p.n, p.k].iter().all(|size| !size.is_multiple_of(8))
}
fn single(p: &GemmProblem) -> bool {
    p.dtype == DType::F32
}
fn half_precision(p: &GemmProblem) -> bool {
    p.dtype == DType::F16 && p.k >= 256
}
fn brain(p: &GemmProblem) -> bool {
    p.dtype == DType::Bf16 && p.k >= 256
}

// Where two launches cannot be slow enough to be called hopeless on a loaded machine.
fn tiny(p: &GemmProblem) -> bool {
    p.m * p.n * p.k < 2000
}

fn whole(x: usize) -> usize {
    x / 8 * 8
}

const MUTANTS: &[(&str, Where, Act)] = &[
    ("no_op", anywhere, |_| Ok(())),
    ("zeros", anywhere, |c| {
        c.each(|_, _, _| Some(0.0));
        Ok(())
    }),
    ("m_tail_missing", tails, |c| {
        c.each(|c, i, j| (i < whole(c.p.m as usize)).then(|| c.sum(i, j)));
        Ok(())
    }),
    ("n_tail_missing", tails, |c| {
        c.each(|c, i, j| (j < whole(c.p.n as usize)).then(|| c.sum(i, j)));
        Ok(())
    }),
    ("k_tail_missing", tails, |c| {
        c.each(|c, i, j| Some(c.part(i, j, 0..whole(c.p.k as usize))));
        Ok(())
    }),
    ("n_tail_zeroed", tails, |c| {
        c.each(|c, i, j| Some(if j < whole(c.p.n as usize) { c.sum(i, j) } else { 0.0 }));
        Ok(())
    }),
    ("last_k_term_dropped", anywhere, |c| {
        c.each(|c, i, j| Some(c.part(i, j, 0..c.p.k as usize - 1)));
        Ok(())
    }),
    ("first_k_term_dropped", anywhere, |c| {
        c.each(|c, i, j| Some(c.part(i, j, 1..c.p.k as usize)));
        Ok(())
    }),
    ("last_k_term_twice", anywhere, |c| {
        c.each(|c, i, j| Some(c.sum(i, j) + c.part(i, j, c.p.k as usize - 1..c.p.k as usize)));
        Ok(())
    }),
    ("tile_off_by_one", anywhere, |c| {
        c.each(|c, i, j| Some(c.sum(i, if j % 16 == 15 { j - 1 } else { j })));
        Ok(())
    }),
    ("rows_swapped_at_a_tile_edge", anywhere, |c| {
        c.each(|c, i, j| {
            Some(c.sum(
                if i == 7 {
                    8
                } else if i == 8 {
                    7
                } else {
                    i
                },
                j,
            ))
        });
        Ok(())
    }),
    ("a_transposed", square, |c| {
        c.each(|c, i, j| Some((0..c.p.k as usize).map(|q| c.a(q, i) * c.b(q, j)).sum()));
        Ok(())
    }),
    ("b_transposed", square, |c| {
        c.each(|c, i, j| Some((0..c.p.k as usize).map(|q| c.a(i, q) * c.b(j, q)).sum()));
        Ok(())
    }),
    ("c_transposed", square, |c| {
        c.each(|c, i, j| Some(c.sum(j, i)));
        Ok(())
    }),
    ("lda_ignored", padded, |c| {
        let k = c.p.k as usize;
        c.each(|c, i, j| Some((0..k).map(|q| c.a[i * k + q] * c.b(q, j)).sum()));
        Ok(())
    }),
    ("ldb_ignored", padded, |c| {
        let n = c.p.n as usize;
        c.each(|c, i, j| Some((0..c.p.k as usize).map(|q| c.a(i, q) * c.b[q * n + j]).sum()));
        Ok(())
    }),
    ("ldc_ignored", padded, |c| {
        let (m, n, _) = c.sizes();
        for at in 0..m * n {
            let value = c.sum(at / n, at % n);
            c.put_at(at, value);
        }
        Ok(())
    }),
    ("padding_written", padded, |c| {
        c.right();
        let at = c.p.n as usize;
        c.put_at(at, 0.0);
        Ok(())
    }),
    ("alpha_doubled", anywhere, |c| {
        c.each(|c, i, j| Some(2.0 * c.sum(i, j)));
        Ok(())
    }),
    ("alpha_nearly_one", single, |c| {
        c.each(|c, i, j| Some(1.0001 * c.sum(i, j)));
        Ok(())
    }),
    ("f16_accumulation", half_precision, |c| {
        c.each(|c, i, j| {
            let step = |s: f16, q| f16::from_f32(s.to_f32() + c.a(i, q) * c.b(q, j));
            Some((0..c.p.k as usize).fold(f16::ZERO, step).to_f32())
        });
        Ok(())
    }),
    ("bf16_accumulation", brain, |c| {
        c.each(|c, i, j| {
            let step = |s: bf16, q| bf16::from_f32(s.to_f32() + c.a(i, q) * c.b(q, j));
            Some((0..c.p.k as usize).fold(bf16::ZERO, step).to_f32())
        });
        Ok(())
    }),
    ("accumulator_rounded_every_64", brain, |c| {
        c.each(|c, i, j| {
            let k = c.p.k as usize;
            let step = |s: f32, q: usize| bf16::from_f32(s + c.part(i, j, q..(q + 64).min(k))).to_f32();
            Some((0..k).step_by(64).fold(0.0, step))
        });
        Ok(())
    }),
    ("inputs_rounded_to_bf16", single, |c| {
        let round = |x: f32| bf16::from_f32(x).to_f32();
        c.each(|c, i, j| Some((0..c.p.k as usize).map(|q| round(c.a(i, q)) * round(c.b(q, j))).sum()));
        Ok(())
    }),
    ("output_rounded_to_f16", single, |c| {
        c.each(|c, i, j| Some(f16::from_f32(c.sum(i, j)).to_f32()));
        Ok(())
    }),
    ("inputs_rounded_to_tf32", single, |c| {
        let round = |x: f32| f32::from_bits((x.to_bits() + 0x1000) & !0x1fff);
        c.each(|c, i, j| Some((0..c.p.k as usize).map(|q| round(c.a(i, q)) * round(c.b(q, j))).sum()));
        Ok(())
    }),
    ("reads_what_was_never_written", anywhere, |c| {
        c.each(|c, i, j| Some(c.sum(i, j) + 0.0 * c.get_at(c.at(i, j))));
        Ok(())
    }),
    ("adds_to_c", anywhere, |c| {
        c.each(|c, i, j| Some(c.sum(i, j) + c.get_at(c.at(i, j))));
        Ok(())
    }),
    ("writes_one_after", anywhere, |c| {
        c.right();
        c.stray(1);
        Ok(())
    }),
    ("writes_one_before", anywhere, |c| {
        c.right();
        c.stray(-1);
        Ok(())
    }),
    ("writes_a_vector_after", anywhere, |c| {
        c.right();
        c.stray(17);
        Ok(())
    }),
    ("copies_its_input", anywhere, |c| {
        c.each(|c, i, j| Some(c.a(i, j % c.p.k as usize)));
        Ok(())
    }),
    ("remembers_its_first_output", anywhere, |c| {
        c.right();
        remember(c, 0);
        Ok(())
    }),
    ("remembers_by_address", anywhere, |c| {
        c.right();
        let address = c.address;
        remember(c, address);
        Ok(())
    }),
    ("works_on_its_first_launch_only", anywhere, |c| {
        if c.nth == 1 {
            c.right();
        }
        Ok(())
    }),
    ("two_threads_add_without_sync", anywhere, |c| {
        let (m, n, k) = c.sizes();
        let totals: Vec<AtomicU32> = (0..m * n).map(|_| AtomicU32::new(0)).collect();
        // Two threads that read before either has written: the lost update is not left to luck.
        let together = Barrier::new(2);
        let (call, totals) = (&*c, &totals);
        std::thread::scope(|scope| {
            for half in [0..k / 2, k / 2..k] {
                let together = &together;
                scope.spawn(move || {
                    let mine: Vec<f32> = (0..m * n).map(|at| call.part(at / n, at % n, half.clone())).collect();
                    let read: Vec<f32> = totals.iter().map(|t| f32::from_bits(t.load(Ordering::Relaxed))).collect();
                    together.wait();
                    for ((total, read), mine) in totals.iter().zip(read).zip(mine) {
                        total.store((read + mine).to_bits(), Ordering::Relaxed);
                    }
                });
            }
        });
        let values: Vec<f32> = totals.iter().map(|t| f32::from_bits(t.load(Ordering::Relaxed))).collect();
        c.each(|_, i, j| Some(values[i * n + j]));
        Ok(())
    }),
    ("wrong_in_one_element", anywhere, |c| {
        c.right();
        let at = c.at(c.p.m as usize / 2, c.p.n as usize / 3);
        let value = c.get_at(at) + 0.125;
        c.put_at(at, value);
        Ok(())
    }),
    ("wrong_in_one_block_of_rows", anywhere, |c| {
        c.each(|c, i, j| Some(if (4..8).contains(&i) { -c.sum(i, j) } else { c.sum(i, j) }));
        Ok(())
    }),
    ("nan_in_a_corner", anywhere, |c| {
        c.right();
        let at = c.at(c.p.m as usize - 1, c.p.n as usize - 1);
        c.put_at(at, f32::NAN);
        Ok(())
    }),
    ("infinite_in_a_corner", anywhere, |c| {
        c.right();
        c.put_at(0, f32::INFINITY);
        Ok(())
    }),
    ("wrong_sign_for_negative_inputs", anywhere, |c| {
        c.each(|c, i, j| Some((0..c.p.k as usize).map(|q| c.a(i, q).abs() * c.b(q, j)).sum()));
        Ok(())
    }),
    ("half_of_k_doubled", anywhere, |c| {
        c.each(|c, i, j| Some(2.0 * c.part(i, j, 0..c.p.k as usize / 2)));
        Ok(())
    }),
    ("one_column_for_the_whole_tile", anywhere, |c| {
        c.each(|c, i, j| Some(c.sum(i, j / 4 * 4)));
        Ok(())
    }),
    ("reads_past_its_row", anywhere, |c| {
        c.each(|c, i, j| {
            let k = c.p.k as usize;
            Some(c.sum(i, j) + c.a((i + 1) % c.p.m as usize, 0) * c.b(k - 1, j))
        });
        Ok(())
    }),
    ("panics_in_a_tail", anywhere, |c| {
        let (m, n, _) = c.sizes();
        let row = vec![0f32; n];
        let past = row[m.max(n)];
        c.each(|_, _, _| Some(past));
        Ok(())
    }),
    ("refuses", anywhere, |_| Err(Rejection::LaunchFailed { reason: "a mutant".into() })),
    ("panics_at_its_fourth_launch", tiny, |c| {
        assert!(c.nth < 4, "a mutant");
        c.right();
        Ok(())
    }),
];

/// Gives what was given under this name before.
fn remember(c: &mut Call<'_, '_>, name: usize) {
    let now: Vec<f32> = (0..c.c.len()).map(|at| c.get_at(at)).collect();
    let before = c.memory.lock().unwrap().entry(name).or_insert(now).clone();
    before.into_iter().enumerate().for_each(|(at, value)| c.put_at(at, value));
}

struct Mutant(&'static str, Where, Act);

impl Variant<Gemm, Cpu> for Mutant {
    fn id(&self) -> &str {
        self.0
    }
    fn source(&self) -> SourceHash {
        SourceHash::of(&[self.0])
    }
    fn fit(&self, p: &GemmProblem, _: &Cpu) -> Fit {
        if (self.1)(p) { Fit::HIGH } else { Fit::aside("might be right here") }
    }
    fn space(&self, _: &GemmProblem, _: &Cpu) -> Space {
        Space::single()
    }
    fn build(&self, p: &GemmProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Built { problem: *p, act: self.2, launched: AtomicU64::new(0), memory: Mutex::default() }))
    }
}

struct Built {
    problem: GemmProblem,
    act: Act,
    launched: AtomicU64,
    memory: Mutex<BTreeMap<usize, Vec<f32>>>,
}

impl Kernel<Cpu> for Built {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        let nth = self.launched.fetch_add(1, Ordering::SeqCst) + 1;
        (self.act)(&mut Call::new(&self.problem, args, nth, &self.memory)?)
    }
}

/// Two right ones, the reference and the library, and every mutant. The others' spaces are large, and not on trial
/// here.
fn catalog() -> Catalog<Gemm, Cpu> {
    let all = gemm::cpu::catalog();
    let right = Catalog::new(all.reference().clone()).with(all.find("library").unwrap().clone());
    MUTANTS.iter().fold(right, |all, (id, fits, act)| all.with(Arc::new(Mutant(id, *fits, *act))))
}

/// A CPU with ceilings so high that nothing is rejected for its time: here answers are on trial.
fn cpu() -> Arc<Cpu> {
    let cpu = Cpu::new();
    let flops = DType::ALL.map(|d| (d, 1e18)).into();
    cpu.set_ceilings(Ceilings {
        flops,
        bandwidth: vec![Bandwidth { capacity: u64::MAX, rate: 1e18 }],
        ..Ceilings::default()
    });
    Arc::new(cpu)
}

const PROBLEMS: [&str; 7] = [
    "gemm:m=9,n=17,k=9,dtype=f32",
    "gemm:m=67,n=67,k=67,dtype=f32",
    "gemm:m=33,n=41,k=70,dtype=f32,lda=77,ldb=48,ldc=43,align=4",
    "gemm:m=19,n=21,k=515,dtype=f16",
    "gemm:m=19,n=21,k=515,dtype=bf16",
    "gemm:m=65,n=34,k=129,dtype=f32,a=col,b=col",
    "gemm:m=25,n=1025,k=9,dtype=f32",
];

#[test]
fn every_mutant_is_rejected_wherever_it_fits_and_none_wins_or_is_kept_as_measured() {
    assert!(MUTANTS.len() >= 40, "{}", MUTANTS.len());
    let cpu = cpu();
    let mutants: BTreeSet<&str> = MUTANTS.iter().map(|m| m.0).collect();
    let mut rejected: BTreeSet<&str> = BTreeSet::new();
    let mut passed = Vec::new();
    for (seed, text) in PROBLEMS.iter().enumerate() {
        let problem = Gemm::parse(text).unwrap();
        let store = Store::memory();
        let budget = Budget { seconds: 60.0, good_enough: 2.0, ..Budget::default() };
        let settings = Settings { budget, seed: seed as u64, search: "exhaustive".into(), ..Settings::default() };
        let tuner = Tuner::new(cpu.clone(), catalog(), store, settings);
        tuner.tune(&problem, &Silent).unwrap();
        let record = tuner.record(&problem).unwrap();
        let edition = &record.editions[0];
        let named = [Some(&edition.verdict.winner), edition.verdict.runner_up.as_ref()].into_iter().flatten();
        for candidate in named.chain(&edition.verdict.ties) {
            assert!(!mutants.contains(candidate.variant.as_str()), "{text}: {candidate}");
        }
        for trial in &edition.trials {
            let Some(mutant) = mutants.get(trial.candidate.variant.as_str()) else { continue };
            match &trial.outcome {
                Outcome::Rejected(
                    Rejection::WrongAnswer { .. } | Rejection::Crashed { .. } | Rejection::LaunchFailed { .. },
                ) => {
                    rejected.insert(mutant);
                }
                other => passed.push(format!("{text}: {mutant}: {other:?}")),
            }
        }
    }
    assert!(passed.is_empty(), "{} passed:\n{}", passed.len(), passed.join("\n"));
    let untried: Vec<_> = mutants.difference(&rejected).collect();
    assert!(untried.is_empty(), "never tried: {untried:?}");
}

#[test]
fn a_kernel_that_writes_into_its_inputs_is_found_out() {
    let cpu = cpu();
    let problem = Gemm::parse("gemm:m=16,n=16,k=16,dtype=f32").unwrap();
    struct Scribbler(GemmProblem);
    impl Kernel<Cpu> for Scribbler {
        fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
            let memory = Mutex::default();
            let mut call = Call::new(&self.0, args, 1, &memory)?;
            call.right();
            // SAFETY: none, on purpose: the input is the case's own heap memory and nobody reads it meanwhile.
            unsafe { (call.address as *mut f32).write_volatile(0.75) };
            Ok(())
        }
    }
    let mut case = Case::new(&Entry::new(&problem, &gemm::cpu::catalog()), &*cpu, 1).unwrap();
    assert!(case.verify(&Scribbler(problem), &*cpu).is_ok());
    let found = case.inputs_untouched(&*cpu).unwrap_err();
    assert!(found.to_string().contains("input 'a'"), "{found}");
}
