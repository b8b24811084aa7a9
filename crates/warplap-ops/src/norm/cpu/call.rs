//! The typed slots of a launch, as the vectorised variants take them.

use warplap_core::arg::Arg;
use warplap_core::rejection::Rejection;
use warplap_core::scalar::F8E4m3;
use warplap_cpu::{Cpu, Typed};

use crate::norm::{Kind, NormProblem, Quant, slot};
use crate::typed;

/// The typed slots of a launch, as addresses: several threads write outputs, each its own rows. What the problem
/// does not have is null.
#[derive(Clone, Copy)]
pub(super) struct Call<T> {
    pub(super) x: *const T,
    pub(super) residual: *const T,
    pub(super) weight: *const T,
    pub(super) bias: *const T,
    pub(super) y: *mut T,
    pub(super) sum: *mut T,
    /// Where y is written as codes, those, and a factor for each row.
    pub(super) codes: *mut u8,
    pub(super) scales: *mut f32,
    pub(super) before: *const T,
    pub(super) seed: [u64; 2],
    pub(super) n: usize,
    pub(super) eps: f32,
    pub(super) layer: bool,
    pub(super) quant: Quant,
}

// SAFETY: what is read nobody writes, and each thread writes its own rows of the outputs.
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
        let (mut y, mut codes, mut scales) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        let to = args[slot::Y].write()?;
        match p.quant {
            Quant::None => y = typed::write::<T>(to)?.as_mut_ptr(),
            // Both are one byte.
            Quant::F8E4m3 => codes = typed::write::<F8E4m3>(to)?.as_mut_ptr().cast(),
            Quant::I8 => codes = typed::write::<i8>(to)?.as_mut_ptr().cast(),
        }
        if p.quant != Quant::None {
            scales = typed::write::<f32>(args[slot::SCALE].write()?)?.as_mut_ptr();
        }
        let before = optional(&args[slot::BEFORE])?;
        let seed = match args[slot::SEED].view() {
            Some(view) => typed::read::<i64>(view)?[..2].iter().map(|s| *s as u64).collect::<Vec<_>>(),
            None => vec![0, 0],
        };
        let sum = match p.has_sum() {
            true => typed::write::<T>(args[slot::SUM].write()?)?.as_mut_ptr(),
            false => std::ptr::null_mut(),
        };
        let (n, eps, layer) = (p.n as usize, p.eps(), p.kind == Kind::Layer);
        let (residual, weight, bias, seed) = (residual?, weight?, bias?, [seed[0], seed[1]]);
        let quant = p.quant;
        Ok(Call { x, residual, weight, bias, y, sum, codes, scales, before, seed, n, eps, layer, quant })
    }
}
