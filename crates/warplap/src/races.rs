//! Which devices the operations have variants for: an operation and a device come in; the list of who may race goes out.

use warplap_core::catalog::Catalog;
use warplap_core::device::Device;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_cpu::Cpu;
use warplap_cuda::Cuda;
use warplap_ops::attention::{self, Attention, AttentionArgs};
use warplap_ops::bsr::{self, Bsr, BsrArgs};
use warplap_ops::gemm::{self, Gemm, GemmArgs};

/// A device that has variants of an operation.
pub trait Races<O: Op>: Device {
    /// Who may race.
    fn catalog() -> Catalog<O, Self>;

    /// Checks a caller's buffers before anything is read through them.
    fn check(args: &O::Args<'_, Self>) -> Result<(), Error>;
}

/// A device that has variants of every operation a session offers.
pub trait Equipped: Races<Gemm> + Races<Attention> + Races<Bsr> {}

impl<D: Races<Gemm> + Races<Attention> + Races<Bsr>> Equipped for D {}

macro_rules! races {
    ($device:ident, $folder:ident: $($op:ident in $module:ident with $args:ident),*) => {
        $(impl Races<$op> for $device {
            fn catalog() -> Catalog<$op, $device> {
                $module::$folder::catalog()
            }

            fn check(args: &$args<'_, $device>) -> Result<(), Error> {
                args.check()
            }
        })*
    };
}

races!(Cpu, cpu: Gemm in gemm with GemmArgs, Attention in attention with AttentionArgs, Bsr in bsr with BsrArgs);
races!(Cuda, cuda: Gemm in gemm with GemmArgs, Attention in attention with AttentionArgs, Bsr in bsr with BsrArgs);
