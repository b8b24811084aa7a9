//! Equal shares of blocks: work units hold as many blocks as each other, wherever rows begin and end.
//!
//! Idea: with one block row far longer than the others, or with fewer rows than threads, a unit of whole rows leaves
//! threads idle. Here a unit is a run of blocks; a row that lies in one unit goes straight to C, the parts of a row cut
//! by a border are kept as f32 and summed afterwards. Wins: few or very uneven rows and a B too narrow to share out by
//! columns. Limits: B row-major; two partial rows of scratch a unit. Idea: merge-based sparse products (Merrill and
//! Garland, 2016).

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use super::finish::Finish;
use super::matrix::{Matrix, Shared};
use super::scratch;
use super::setting::{self, Setting, widened};
use super::tile::Strip;
use crate::bsr::{Bsr, BsrProblem};
use crate::typed::for_dtype;

/// Units a thread: enough that an interrupted thread's share is taken over, few enough that few rows are cut.
const UNITS: usize = 3;

/// Equal shares of blocks.
pub(super) struct Split;

impl Variant<Bsr, Cpu> for Split {
    fn id(&self) -> &str {
        "split"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &BsrProblem, cpu: &Cpu) -> Fit {
        let share = (p.nnz as f64 / (4 * cpu.threads()) as f64).max(1.0);
        match setting::no_plain(p).or(setting::no_rows_of_b(p)) {
            Some(why) => Fit::aside(why),
            None if cpu.threads() == 1 => Fit::aside("one thread has nothing to share"),
            None if (p.row_max as f64) < share => Fit::aside("no row is long enough to keep a thread waiting"),
            None => Fit::HIGH,
        }
    }

    fn space(&self, p: &BsrProblem, cpu: &Cpu) -> Space {
        setting::space(p, cpu, "4x6")
    }

    fn needs(&self, p: &BsrProblem, config: &Config) -> Needs {
        let threads = config.size("threads").unwrap_or(1) as u64;
        Needs { threads, workspace: workspace(p, threads), ..Needs::default() }
    }

    fn build(&self, p: &BsrProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        setting::refuse(setting::no_plain(p).or(setting::no_rows_of_b(p)))?;
        Ok(Box::new(Shares { problem: *p, setting: Setting::read(config, cpu)? }))
    }
}

fn workspace(p: &BsrProblem, threads: u64) -> u64 {
    (2 * UNITS as u64 * threads * p.bs + p.k) * p.n * 4
}

struct Shares {
    problem: BsrProblem,
    setting: Setting,
}

impl Kernel<Cpu> for Shares {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => product::<T>(self, args))
    }

    fn workspace(&self) -> u64 {
        workspace(&self.problem, self.setting.threads as u64)
    }
}

fn product<T: Element + Typed>(kernel: &Shares, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let (s, p) = (&kernel.setting, &kernel.problem);
    let (a, c) = Matrix::<T>::checked(p, args)?;
    let (n, k, bs) = (p.n as usize, p.k as usize, p.bs as usize);
    let (nnz, part) = (a.nnz(), bs * n);
    let units = (UNITS * s.threads).min(nnz).max(1);
    let border = |unit: usize| unit * nnz / units;
    widened(s.isa, &a.b[..k * n], |b| {
        scratch::with(2 * units * part, |parts| {
            let shared = Shared::new(parts);
            s.pool.each(s.threads, units, |unit| {
                let (mut at, end) = (border(unit), border(unit + 1));
                while at < end {
                    let row = a.row_of(at);
                    let whole = a.row(row);
                    let run = at..end.min(whole.end);
                    let strip = |values: &[f32]| Strip {
                        tile: s.tile,
                        bs,
                        bc: bs,
                        blocks: a.columns(run.clone()),
                        values: values.as_ptr(),
                        b: b.as_ptr(),
                        b_block: bs * n,
                        b_row: n,
                        b_tile: s.tile.columns(s.isa),
                        padded: false,
                        c: std::ptr::null_mut::<f32>(),
                        ldc: n,
                        columns: n,
                        finish: Finish::PLAIN,
                    };
                    widened(s.isa, a.values(run.clone()), |values| {
                        if run == whole {
                            s.isa.run(strip(values).to(c.at(row * part), a.finish.from(row * part)));
                        } else {
                            // A unit cuts at most two rows: the one it begins in and the one it ends in.
                            let slot = 2 * unit + usize::from(at != border(unit));
                            s.isa.run(strip(values).to(shared.at(slot * part), Finish::PLAIN));
                        }
                    });
                    at = run.end;
                }
            });
            let parts = &parts[..];
            // Rows without blocks, and the sums of rows that were cut.
            s.pool.each(s.threads, p.rows(), |row| {
                let blocks = a.row(row);
                // The unit that holds a block: the inverse of `border`.
                let unit = |block: usize| ((block + 1) * units - 1) / nnz;
                if !blocks.is_empty() && unit(blocks.start) == unit(blocks.end - 1) {
                    return;
                }
                let finish = |sum: f32, i: usize| {
                    let at = row * part + i;
                    // SAFETY: C holds m·n elements, and this task alone touches those of its block row.
                    unsafe { *c.at(at) = T::narrow(a.finish.one(sum, at)) };
                };
                if blocks.is_empty() {
                    return (0..part).for_each(|i| finish(0.0, i));
                }
                let (first, last) = (unit(blocks.start), unit(blocks.end - 1));
                for i in 0..part {
                    let slot = |u: usize| 2 * u + usize::from(blocks.start > border(u));
                    finish((first..=last).map(|u| parts[slot(u) * part + i]).sum(), i);
                }
            });
        });
    });
    Ok(())
}
