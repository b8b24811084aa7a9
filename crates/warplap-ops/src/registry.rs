//! The registry: what every operation says of itself. The one ordered list of them stands in `lib.rs`. Whoever offers
//! operations (sessions, the `any` door, the program, Python, Burn, tests) is handed each in turn and has no list of
//! its own.

use warplap_core::op::Op;

/// An operation with variants on the CPU, where this package is built with them.
#[cfg(feature = "cpu")]
pub trait OnCpu: warplap_core::catalog::Raced<warplap_cpu::Cpu> {}
#[cfg(feature = "cpu")]
impl<O: warplap_core::catalog::Raced<warplap_cpu::Cpu>> OnCpu for O {}
/// An operation, in a package without variants on the CPU.
#[cfg(not(feature = "cpu"))]
pub trait OnCpu {}
#[cfg(not(feature = "cpu"))]
impl<O: Op> OnCpu for O {}

/// An operation with variants on NVIDIA GPUs, where this package is built with them.
#[cfg(feature = "cuda")]
pub trait OnCuda: warplap_core::catalog::Raced<warplap_cuda::Cuda> {}
#[cfg(feature = "cuda")]
impl<O: warplap_core::catalog::Raced<warplap_cuda::Cuda>> OnCuda for O {}
/// An operation, in a package without variants on NVIDIA GPUs.
#[cfg(not(feature = "cuda"))]
pub trait OnCuda {}
#[cfg(not(feature = "cuda"))]
impl<O: Op> OnCuda for O {}

/// An operation of the registry: variants on every device kind, and how programs name it.
pub trait Known: Op + OnCpu + OnCuda {
    /// What it does, in one line of a list.
    const LINE: &'static str;

    /// The operation whose gradient it is.
    const GRADIENT_OF: Option<&'static str> = None;

    /// Other names that are understood.
    const ALIASES: &'static [&'static str];

    /// Whether kernels themselves look at whole numbers they are given before they follow them: no check is needed
    /// then.
    const GUARDED: bool = false;

    /// A problem to begin with.
    const EXAMPLE: &'static str;

    /// Edge problems: every variant is held to the right answer on each.
    fn edges() -> Vec<String>;

    /// Problems on which a device's right answer is held to the host's.
    const PROOFS: &'static [&'static str];

    /// Problems that are tuned when nobody asks for others, by device kind: one a line, `#` begins a comment.
    const SUITES: &'static [(&'static str, &'static str)];
}

/// The list of operations, which `lib.rs` has: each by its folder, its type, and what else programs name.
macro_rules! operations {
    ($($folder:ident::{$op:ident $(, $other:ident)* $(,)?}),+ $(,)?) => {
        /// What programs name of every operation.
        pub mod exports {
            $(pub use crate::$folder::{$op $(, $other)*};)+
        }

        fn visited(visitor: &mut impl registry::Visitor) {
            $(visitor.visit::<$folder::$op>();)+
        }
    };
}

/// Says of an operation how programs name it that its folders' catalogs race, and that its edge
/// problems stand in `edges.rs`; `check` names what looks at arguments
/// that a signature cannot speak of.
macro_rules! known {
    (
        #[doc = $line:literal]
        $op:ident {
            $(gradient_of: $of:literal,)?
            aliases: [$($alias:literal),*],
            $(guarded: $guarded:literal,)?
            $(check: { cpu: $cpu_check:path, cuda: $cuda_check:path },)?
            example: $example:literal,
            cpu: $cpu:literal,
            cuda: $cuda:literal,
        }
    ) => {
        #[cfg(feature = "cpu")]
        impl warplap_core::catalog::Raced<warplap_cpu::Cpu> for $op {
            fn catalog() -> warplap_core::catalog::Catalog<$op, warplap_cpu::Cpu> {
                super::cpu::catalog()
            }

            $(fn check(
                problem: &<$op as warplap_core::op::Op>::Problem,
                args: &[warplap_core::arg::Arg<'_, warplap_cpu::Cpu>],
                device: &warplap_cpu::Cpu,
            ) -> Result<(), warplap_core::error::Error> {
                $cpu_check(problem, args, device)
            })?
        }

        #[cfg(feature = "cuda")]
        impl warplap_core::catalog::Raced<warplap_cuda::Cuda> for $op {
            fn catalog() -> warplap_core::catalog::Catalog<$op, warplap_cuda::Cuda> {
                super::cuda::catalog()
            }

            $(fn check(
                problem: &<$op as warplap_core::op::Op>::Problem,
                args: &[warplap_core::arg::Arg<'_, warplap_cuda::Cuda>],
                device: &warplap_cuda::Cuda,
            ) -> Result<(), warplap_core::error::Error> {
                $cuda_check(problem, args, device)
            })?
        }

        impl crate::registry::Known for $op {
            const LINE: &'static str = $line.trim_ascii();
            $(const GRADIENT_OF: Option<&'static str> = Some($of);)?
            const ALIASES: &'static [&'static str] = &[$($alias),*];
            $(const GUARDED: bool = $guarded;)?
            const EXAMPLE: &'static str = $example;
            const SUITES: &'static [(&'static str, &'static str)] = &[("cpu", $cpu), ("cuda", $cuda)];
            const PROOFS: &'static [&'static str] = super::edges::PROOFS;

            fn edges() -> Vec<String> {
                super::edges::problems()
            }
        }
    };
}

/// Who is handed every operation.
pub trait Visitor {
    /// Takes one.
    fn visit<O: Known>(&mut self);
}

/// Hands every operation to a visitor, in the order they are shown.
pub fn each(visitor: &mut impl Visitor) {
    crate::visited(visitor);
}
