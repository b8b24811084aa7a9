//! Equal shares of blocks: work units hold as many blocks as each other, wherever rows begin and end.
//!
//! Idea: with one block row far longer than the others, or with fewer rows than threads, a unit of whole rows leaves
//! threads idle. Here a unit is a run of blocks; a row that lies in one unit goes straight to C, the parts of a row cut
//! by a border are kept as f32 and summed afterwards. Wins: few or very uneven rows and a B too narrow to share out by
//! columns. Limits: B row-major; two partial rows of scratch a unit. Idea: merge-based sparse products (Merrill and
//! Garland, 2016).

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
use crate::bsr::{Bsr, BsrArgs, BsrProblem};
use crate::gemm::Layout;
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
        let (own, tile, matrix) = (include_str!("split.rs"), include_str!("tile.rs"), include_str!("matrix.rs"));
        SourceHash::of(&[
            own,
            tile,
            matrix,
            include_str!("setting.rs"),
            include_str!("scratch.rs"),
            include_str!("finish.rs"),
        ])
    }

    fn fit(&self, p: &BsrProblem, cpu: &Cpu) -> Fit {
        let share = (p.nnz as f64 / (4 * cpu.threads()) as f64).max(1.0);
        if let Some(why) = setting::no_plain(p) {
            return Fit::aside(why);
        }
        match p.b {
            Layout::Col => Fit::aside("vectors of B are read along its rows: b=row only"),
            _ if cpu.threads() == 1 => Fit::aside("one thread has nothing to share"),
            _ if (p.row_max as f64) < share => Fit::aside("no row is long enough to keep a thread waiting"),
            Layout::Row => Fit::HIGH,
        }
    }

    fn space(&self, p: &BsrProblem, cpu: &Cpu) -> Space {
        setting::space(p, cpu, "4x6")
    }

    fn needs(&self, p: &BsrProblem, config: &Config) -> Needs {
        let threads = config.size("threads").unwrap_or(1) as u64;
        Needs { threads, workspace: workspace(p, threads), ..Needs::default() }
    }

    fn build(&self, p: &BsrProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Bsr, Cpu>>, Rejection> {
        let setting = Setting::read(config, cpu)?;
        let workspace = workspace(p, setting.threads as u64);
        Ok(Box::new(Shares { setting, workspace }))
    }
}

fn workspace(p: &BsrProblem, threads: u64) -> u64 {
    (2 * UNITS as u64 * threads * p.bs + p.k) * p.n * 4
}

struct Shares {
    setting: Setting,
    workspace: u64,
}

impl Kernel<Bsr, Cpu> for Shares {
    fn launch(&self, args: BsrArgs<'_, Cpu>, _: &()) -> Result<(), Rejection> {
        for_dtype!(args.problem.dtype, T => product::<T>(&self.setting, args))
    }

    fn workspace(&self) -> u64 {
        self.workspace
    }
}

fn product<T: Element + Typed>(s: &Setting, args: BsrArgs<'_, Cpu>) -> Result<(), Rejection> {
    let (a, c) = Matrix::<T>::checked(args)?;
    let p = a.problem;
    s.plain(p)?;
    s.row_major(p)?;
    let (n, k, bs) = (p.n as usize, p.k as usize, p.bs as usize);
    let (nnz, part) = (a.nnz(), bs * n);
    let units = (UNITS * s.threads).min(nnz).max(1);
    let border = |unit: usize| unit * nnz / units;
    let c = Shared::new(c);
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
                // SAFETY: C holds m·n elements, and this task alone touches those of its block row.
                let c = unsafe { std::slice::from_raw_parts_mut(c.at(row * part), part) };
                let finish = a.finish.from(row * part);
                if blocks.is_empty() {
                    // SAFETY: element i of this task's own part of C.
                    return c.iter_mut().enumerate().for_each(|(i, to)| *to = T::narrow(unsafe { finish.one(0.0, i) }));
                }
                let (first, last) = (unit(blocks.start), unit(blocks.end - 1));
                for (i, to) in c.iter_mut().enumerate() {
                    let slot = |u: usize| 2 * u + usize::from(blocks.start > border(u));
                    let sum = (first..=last).map(|u| parts[slot(u) * part + i]).sum();
                    // SAFETY: as above.
                    *to = T::narrow(unsafe { finish.one(sum, i) });
                }
            });
        });
    });
    Ok(())
}
