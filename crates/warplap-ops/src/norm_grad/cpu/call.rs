//! The typed slots of a launch, as addresses. What the problem does not have is null.

use warplap_core::arg::Arg;
use warplap_core::rejection::Rejection;
use warplap_cpu::{Cpu, Typed};

use crate::norm::Kind;
use crate::norm_grad::{NormGradProblem, slot};
use crate::typed;

/// Several threads write, each its own rows of ds and dx; sums over rows are written by one, when all are done.
#[derive(Clone, Copy)]
pub(super) struct Call<T> {
    pub(super) s: *const T,
    pub(super) grad: *const T,
    pub(super) weight: *const T,
    pub(super) total: *const T,
    pub(super) ds: *mut T,
    pub(super) dx: *mut T,
    pub(super) dweight: *mut T,
    pub(super) dbias: *mut T,
    pub(super) seed: [u64; 2],
    pub(super) n: usize,
    pub(super) eps: f32,
    pub(super) layer: bool,
}

// SAFETY: what is read nobody writes, and each thread writes its own rows.
unsafe impl<T: Send + Sync> Sync for Call<T> {}

impl<T: Typed> Call<T> {
    /// The addresses of arguments, which the caller keeps borrowed. The catalog hands out kernels that refuse other
    /// arguments than the signature's: where there is an address there are as many elements as the problem says.
    pub(super) fn of(p: &NormGradProblem, args: &mut [Arg<'_, Cpu>]) -> Result<Self, Rejection> {
        let read = |arg: &Arg<'_, Cpu>| match arg.view() {
            Some(view) => typed::read::<T>(view).map(<[T]>::as_ptr),
            None => Ok(std::ptr::null()),
        };
        let [s, grad, weight, total] = [slot::S, slot::GRAD, slot::WEIGHT, slot::TOTAL].map(|slot| read(&args[slot]));
        let seed = match args[slot::SEED].view() {
            Some(view) => typed::read::<i64>(view)?[..2].iter().map(|s| *s as u64).collect(),
            None => vec![0, 0],
        };
        let mut write = |slot: usize, present: bool| match present {
            true => Ok(typed::write::<T>(args[slot].write()?)?.as_mut_ptr()),
            false => Ok(std::ptr::null_mut()),
        };
        let ds = write(slot::DS, true)?;
        let dx = write(slot::DX, p.norm.dropout() > 0.0)?;
        let (dweight, dbias) = (write(slot::DWEIGHT, p.norm.weight)?, write(slot::DBIAS, p.norm.bias)?);
        let (n, eps, layer) = (p.norm.n as usize, p.norm.eps(), p.norm.kind == Kind::Layer);
        let (s, grad, weight, total, seed) = (s?, grad?, weight?, total?, [seed[0], seed[1]]);
        Ok(Call { s, grad, weight, total, ds, dx, dweight, dbias, seed, n, eps, layer })
    }
}
