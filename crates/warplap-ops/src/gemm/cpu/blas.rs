//! The machine's own BLAS libraries: MKL, OpenBLAS, BLIS, Accelerate, found at run time.
//!
//! Idea: always race what a user could have called instead. C is cut into as many panels as there are threads, each of
//! ours multiplies one with one thread of the library's, and bias and activation go over the panel while it is near.
//! Wins: large products, where the maker knows the chip. Limits: f32; where a library is found. C = A·B row-major is
//! asked for as Cᵀ = Bᵀ·Aᵀ column-major, which is the same memory.

use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::Cpu;
use warplap_cpu::blas::{self, BlasLibraries, Matrix, Seen};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::Isa;

use super::kernel::blocked::Product;
use super::kernel::epilogue::Part;
use super::kernel::{Operand, product};
use super::threads;
use crate::gemm::{Gemm, GemmProblem, Layout};

/// Libraries that were found.
pub(super) struct Blas(fn() -> &'static BlasLibraries);

impl Blas {
    /// Those of this process.
    pub(super) fn here() -> Self {
        Blas(blas::installed)
    }

    fn library(&self, config: &Config) -> Option<&'static Seen> {
        (self.0)().library(&config.get("library")?.to_string())
    }
}

/// Rows and columns of a panel are multiples of these: whole cache lines, and whole tiles of most kernels.
const ROWS: usize = 8;
const COLUMNS: usize = 16;

/// Panels at the most: OpenBLAS keeps a buffer for each call that is on, and ends the program when they run out.
const MOST: usize = 64;

impl Variant<Gemm, Cpu> for Blas {
    fn id(&self) -> &str {
        "blas"
    }

    fn source(&self) -> SourceHash {
        // Another library is another kernel.
        let version = (self.0)().identity();
        source!(&version)
    }

    fn fit(&self, p: &GemmProblem, _: &Cpu) -> Fit {
        if p.dtype != DType::F32 {
            return Fit::aside(format!("BLAS has no {}", p.dtype));
        }
        if [p.m, p.n, p.k, p.lda, p.ldb, p.ldc].iter().any(|size| *size > i32::MAX as u64) {
            return Fit::aside("sizes must fit 31 bits");
        }
        let libraries = (self.0)();
        if libraries.libraries().is_empty() { Fit::aside(libraries.none()) } else { Fit::HIGH }
    }

    fn space(&self, p: &GemmProblem, cpu: &Cpu) -> Space {
        let words: Vec<&str> = (self.0)().libraries().iter().map(|seen| seen.maker().word()).collect();
        Space::single().axis(Axis::choices("library", &words)).axis(threads::axis(p, cpu))
    }

    fn needs(&self, _: &GemmProblem, config: &Config) -> Needs {
        Needs { threads: config.size("threads").unwrap_or(1) as u64, ..Needs::default() }
    }

    // No floor of its own: ceilings that were measured too low would keep a library out.
    fn build(&self, p: &GemmProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let refused = |reason: String| Rejection::DoesNotBuild { reason };
        let seen = self.library(config).ok_or_else(|| refused("the library is not there".into()))?;
        let library = seen.open().map_err(refused)?;
        let threads = config.size("threads").unwrap_or(1).clamp(1, MOST);
        let panels = panels(p.m as usize, p.n as usize, threads);
        Ok(Box::new(Call { problem: *p, library, threads, panels, isa: cpu.isa(), pool: cpu.pool().clone() }))
    }

    fn is_library(&self) -> bool {
        true
    }
}

struct Call {
    problem: GemmProblem,
    library: &'static blas::Blas,
    threads: usize,
    panels: Vec<Panel>,
    isa: Isa,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for Call {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        let product = product::<f32>(&self.problem, args)?;
        // SAFETY: the slices hold what the problem spans, which the catalog checks, and C is borrowed until all panels
        // are done; they are parts of C that do not overlap.
        self.pool.each(self.threads, self.panels.len(), |i| unsafe { self.multiply(&product, self.panels[i]) });
        Ok(())
    }
}

impl Call {
    /// # Safety
    /// The panel lies in C, and nobody else touches it.
    unsafe fn multiply(&self, p: &Product<'_, f32>, panel: Panel) {
        let Panel { row, column, rows, columns } = panel;
        // SAFETY: a panel's first row and column are inside the matrices, says the caller; sizes fit, said `fit`.
        unsafe {
            let at = p.c.add(row * p.ldc + column);
            let a = turned(p.a, p.a.element(row, 0));
            let b = turned(p.b, p.b.element(0, column));
            self.library.sgemm((columns, rows, p.k), b, a, Matrix { first: at, ld: p.ldc, turned: false });
            let part = Part { at, row: p.ldc, rows, columns, top: row, first: column, turned: false };
            p.epilogue.run(self.isa, part);
        }
    }
}

/// An operand's transpose by columns: what lies in rows is as it should be.
fn turned(operand: Operand<f32>, first: *const f32) -> Matrix<*const f32> {
    Matrix { first, ld: operand.ld, turned: operand.layout == Layout::Col }
}

/// A part of C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Panel {
    row: usize,
    column: usize,
    rows: usize,
    columns: usize,
}

/// C (m×n) in at most so many panels, cut so that least of A and B is read twice: every row of panels reads all of B,
/// every column of them all of A.
fn panels(m: usize, n: usize, most: usize) -> Vec<Panel> {
    let grids = (1..=most).rev().filter(|rows| most.is_multiple_of(*rows)).map(|rows| (rows, most / rows));
    let (down, across) = grids.min_by_key(|(down, across)| down * n + across * m).unwrap_or((1, 1));
    let columns = cut(n, across, COLUMNS);
    let of_rows = |(row, rows)| columns.iter().map(move |&(column, columns)| Panel { row, column, rows, columns });
    cut(m, down, ROWS).into_iter().flat_map(of_rows).collect()
}

/// Where the parts of a length start, and how long they are: whole steps, but for the last.
fn cut(length: usize, parts: usize, step: usize) -> Vec<(usize, usize)> {
    let part = length.div_ceil(step).div_ceil(parts.max(1)) * step;
    (0..length).step_by(part.max(1)).map(|from| (from, part.min(length - from))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_cover_every_element_of_c_once() {
        for (m, n) in [(1, 1), (1, 500), (500, 1), (7, 13), (65, 97), (512, 512), (300, 2100), (17, 16)] {
            for most in [1, 2, 3, 4, 6, 7, 16, 64] {
                let panels = panels(m, n, most);
                assert!(panels.len() <= most, "{m}x{n} by {most}: {}", panels.len());
                let mut seen = vec![0u8; m * n];
                for Panel { row, column, rows, columns } in panels {
                    for i in row..row + rows {
                        seen[i * n + column..i * n + column + columns].iter_mut().for_each(|s| *s += 1);
                    }
                }
                assert!(seen.iter().all(|s| *s == 1), "{m}x{n} by {most}");
            }
        }
    }

    #[test]
    fn panels_are_as_square_as_the_threads_allow() {
        let grid = |m, n, most| {
            let panels = panels(m, n, most);
            (panels.iter().filter(|p| p.column == 0).count(), panels.iter().filter(|p| p.row == 0).count())
        };
        assert_eq!(grid(1024, 1024, 2), (2, 1), "rows of C are contiguous");
        assert_eq!(grid(1024, 1024, 16), (4, 4));
        assert_eq!(grid(16, 4096, 4), (1, 4));
        assert_eq!(grid(4096, 64, 8), (8, 1));
    }

    #[test]
    fn without_a_library_it_stands_aside_and_says_what_to_do() {
        fn nothing() -> &'static BlasLibraries {
            static NOTHING: std::sync::OnceLock<BlasLibraries> = std::sync::OnceLock::new();
            let off = blas::Places { named: Some("off".into()), ..blas::Places::default() };
            NOTHING.get_or_init(|| off.look())
        }
        let (blas, cpu) = (Blas(nothing), Cpu::with_threads(2));
        let Fit::Aside(why) = blas.fit(&GemmProblem::new(8, 8, 8, DType::F32), &cpu) else {
            panic!("nothing is there")
        };
        assert!(why.contains("WARPLAP_BLAS=off") && why.contains("pip install"), "{why}");
        let config = Config::new().with("library", "mkl").with("threads", 1);
        let refused = blas.build(&GemmProblem::new(8, 8, 8, DType::F32), &config, &cpu);
        assert!(matches!(refused, Err(Rejection::DoesNotBuild { .. })));
        assert_ne!(blas.source(), SourceHash::of(&[]));
    }
}
