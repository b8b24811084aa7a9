//! What the vectorised variants share around their kernels: axes for threads and instruction sets, the typed slots of a
//! launch, and rows dealt out to threads.

use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::problem::Problem;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space, Value};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::Isa;
use warplap_cpu::{Cpu, Typed};

use crate::norm::{Kind, NormProblem, slot};
use crate::typed;

/// Bytes below which one thread may be faster than several: waking one takes some 10 µs.
const WORTH_THREADS: f64 = 4e6;

/// Elements of a task, at the least.
const TASK: usize = 1 << 14;

/// Threads and instruction sets: all threads first, and one where the rows are few; the best instruction set first.
pub(super) fn space(p: &NormProblem, cpu: &Cpu) -> Space {
    let alone = (cpu.threads() > 1 && p.work().bytes <= WORTH_THREADS).then_some(1);
    let isas: Vec<&str> = Isa::available().into_iter().rev().map(Isa::name).collect();
    let threads = [cpu.threads() as i64].into_iter().chain(alone);
    Space::single().axis(Axis::ints("threads", threads)).axis(Axis::choices("isa", &isas))
}

/// What a Config says, with the threads to do it and the problem it is for.
pub(super) struct Setting {
    pub(super) problem: NormProblem,
    pub(super) isa: Isa,
    threads: usize,
    pool: Arc<Pool>,
}

impl Setting {
    /// Reads a Config of [`space`].
    pub(super) fn read(p: &NormProblem, config: &Config, cpu: &Cpu) -> Result<Self, Rejection> {
        let isa = match config.get("isa") {
            Some(Value::Text(name)) => Isa::named(name),
            _ => None,
        };
        let unknown = || Rejection::DoesNotBuild { reason: "axis 'isa' is not set to a value of this machine".into() };
        let (isa, threads) = (isa.ok_or_else(unknown)?, config.size("threads").unwrap_or(1));
        Ok(Setting { problem: *p, isa, threads, pool: cpu.pool().clone() })
    }

    /// Hands runs of rows, first and one past the last, to a body on several threads.
    pub(super) fn each(&self, body: impl Fn(usize, usize) + Sync) {
        let (rows, n) = (self.problem.rows as usize, self.problem.n as usize);
        // Some tasks a thread, so that threads which come late find less to do.
        let run = rows.div_ceil(4 * self.threads.max(1)).max(TASK.div_ceil(n));
        self.pool.each(self.threads, rows.div_ceil(run), |i| body(i * run, rows.min((i + 1) * run)));
    }
}

/// The typed slots of a launch, as addresses: several threads write y and the sum, each its own rows. What the problem
/// does not have is null.
#[derive(Clone, Copy)]
pub(super) struct Call<T> {
    pub(super) x: *const T,
    pub(super) residual: *const T,
    pub(super) weight: *const T,
    pub(super) bias: *const T,
    pub(super) y: *mut T,
    pub(super) sum: *mut T,
    pub(super) n: usize,
    pub(super) eps: f32,
    pub(super) layer: bool,
}

// SAFETY: what is read nobody writes, and each thread writes its own rows of y and of the sum.
unsafe impl<T: Send + Sync> Send for Call<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Call<T> {}

impl<T: Typed> Call<T> {
    /// The addresses of arguments, which the caller keeps borrowed. The catalog hands out kernels that refuse other
    /// arguments than the signature's: where there is an address there are as many elements as the problem says.
    pub(super) fn of(p: &NormProblem, args: &mut [Arg<'_, Cpu>]) -> Result<Self, Rejection> {
        let optional = |arg: &Arg<'_, Cpu>| match arg.view() {
            Some(view) => typed::read::<T>(view).map(<[T]>::as_ptr),
            None => Ok(std::ptr::null()),
        };
        let x = typed::read::<T>(args[slot::X].read()?)?.as_ptr();
        let [residual, weight, bias] = [slot::RESIDUAL, slot::WEIGHT, slot::BIAS].map(|slot| optional(&args[slot]));
        let y = typed::write::<T>(args[slot::Y].write()?)?.as_mut_ptr();
        let sum = match p.residual {
            true => typed::write::<T>(args[slot::SUM].write()?)?.as_mut_ptr(),
            false => std::ptr::null_mut(),
        };
        let (n, eps, layer) = (p.n as usize, p.eps(), p.kind == Kind::Layer);
        Ok(Call { x, residual: residual?, weight: weight?, bias: bias?, y, sum, n, eps, layer })
    }
}
