//! Which devices the operations have variants for: an operation and a device come in; the list of who may race goes out.

use std::sync::OnceLock;

use warplap_core::catalog::Catalog;
use warplap_core::device::Device;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_cpu::Cpu;
use warplap_cuda::Cuda;
use warplap_ops::attention::{self, Attention, AttentionArgs};
use warplap_ops::bsr::cuda::IndexCheck;
use warplap_ops::bsr::{self, Bsr, BsrArgs};
use warplap_ops::gemm::{self, Gemm, GemmArgs};
use warplap_ops::sampled::{self, Sampled, SampledArgs};

/// A device that has variants of an operation.
pub trait Races<O: Op>: Device {
    /// What is kept for checks to come.
    type Checks: Default + Send + Sync;

    /// Who may race.
    fn catalog() -> Catalog<O, Self>;

    /// Checks a caller's buffers before anything is read through them.
    fn check(args: &O::Args<'_, Self>, device: &Self, checks: &Self::Checks) -> Result<(), Error>;
}

/// A device that has variants of every operation a session offers.
pub trait Equipped: Races<Gemm> + Races<Attention> + Races<Bsr> + Races<Sampled> {}

impl<D: Races<Gemm> + Races<Attention> + Races<Bsr> + Races<Sampled>> Equipped for D {}

macro_rules! races {
    ($device:ident, $folder:ident: $($op:ident in $module:ident with $args:ident),*) => {
        $(impl Races<$op> for $device {
            type Checks = ();

            fn catalog() -> Catalog<$op, $device> {
                $module::$folder::catalog()
            }

            fn check(args: &$args<'_, $device>, _: &$device, (): &()) -> Result<(), Error> {
                args.check()
            }
        })*
    };
}

races!(Cpu, cpu: Gemm in gemm with GemmArgs, Attention in attention with AttentionArgs, Bsr in bsr with BsrArgs);
races!(Cpu, cpu: Sampled in sampled with SampledArgs);
races!(Cuda, cuda: Sampled in sampled with SampledArgs);
races!(Cuda, cuda: Gemm in gemm with GemmArgs, Attention in attention with AttentionArgs);

impl Races<Bsr> for Cuda {
    // Compiled for the device that first asks: a session has one.
    type Checks = OnceLock<Result<IndexCheck, String>>;

    fn catalog() -> Catalog<Bsr, Cuda> {
        bsr::cuda::catalog()
    }

    fn check(args: &BsrArgs<'_, Cuda>, device: &Cuda, checks: &Self::Checks) -> Result<(), Error> {
        match checks.get_or_init(|| IndexCheck::new(device).map_err(|e| e.to_string())) {
            Ok(check) => check.check(args, device.queue()),
            Err(why) => Err(Error::Device(why.clone())),
        }
    }
}
