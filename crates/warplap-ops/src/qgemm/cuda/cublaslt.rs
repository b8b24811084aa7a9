//! cuBLASLt: NVIDIA's library, with its heuristic's list of algorithms as an axis.
//!
//! Idea: always race what a user could have called instead, and let the race correct the heuristic's order; it is asked
//! for the same sums, fast or not. Wins: large well-shaped products. Limits: where the library is found and takes the
//! problem: sizes that are multiples of 16 (of 4 for signed bytes). C = A·B row-major is asked for as Cᵀ = Bᵀ·Aᵀ
//! column-major, which is the same memory.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::op::Op;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cuda::{BytesSpec, Cuda, Lt, Matmul, MatmulEpilogue, MatmulScale, MatmulSpec, MatrixSpec, Stream};

use crate::cuda::own::{Aligns, addresses};
use crate::cuda::plan::axis;
use crate::qgemm::{Qgemm, QgemmProblem, SLOTS, Scale};

/// NVIDIA's library.
pub(super) struct Cublaslt;

/// Entries of the heuristic's list that may race.
const CHOICES: i64 = 8;

/// MiB of workspace an algorithm may take.
const WORKSPACE: i64 = 32;

impl Variant<Qgemm, Cuda> for Cublaslt {
    fn id(&self) -> &str {
        "cublaslt"
    }

    fn source(&self) -> SourceHash {
        // Another version of the library is another kernel.
        let version = Lt::get().map_or(0, Lt::version).to_string();
        source!(&version)
    }

    fn fit(&self, p: &QgemmProblem, cuda: &Cuda) -> Fit {
        let whole = if p.is_int() { 4 } else { 16 };
        let capability = cuda.chip().capability;
        match Lt::get() {
            Err(why) => Fit::aside(why),
            Ok(_) if p.m.max(p.n).max(p.k) > i32::MAX as u64 => Fit::aside("sizes must fit 31 bits"),
            Ok(_) if p.n % whole + p.k % whole > 0 => Fit::aside(format!("n and k must be multiples of {whole}")),
            Ok(_) if !p.is_int() && capability < (8, 9) => Fit::aside("f8e4m3 needs sm_89 or newer"),
            Ok(_) => Fit::HIGH,
        }
    }

    fn space(&self, _: &QgemmProblem, _: &Cuda) -> Space {
        Space::single().axis(Axis::ints("choice", 0..CHOICES))
    }

    fn needs(&self, _: &QgemmProblem, _: &Config) -> Needs {
        Needs { workspace: (WORKSPACE as u64) << 20, ..Needs::default() }
    }

    fn build(&self, p: &QgemmProblem, config: &Config, cuda: &Cuda) -> Result<Box<dyn Kernel<Cuda>>, Rejection> {
        let refused = |reason: String| Rejection::DoesNotBuild { reason };
        let choice = axis(config, "choice")?;
        let made = Matmul::choose(&spec(p), choice as usize, cuda).map_err(|e| refused(e.to_string()))?;
        let matmul = made.ok_or_else(|| refused(format!("the heuristic has no proposal {choice}")))?;
        Ok(Box::new(Call { aligns: Aligns::of(&Qgemm::signature(p))?, scaled: p.scale != Scale::None, matmul }))
    }

    fn is_library(&self) -> bool {
        true
    }
}

/// The product as the library is asked for it: its A is our B, its B our A.
fn spec(p: &QgemmProblem) -> MatmulSpec {
    let matrix = |rows, columns, turned| MatrixSpec { rows, columns, pitch: rows, stride: 0, turned };
    let scales = match p.scale {
        Scale::None => None,
        Scale::Tensor => Some([MatmulScale::Tensor; 2]),
        Scale::Row => Some([MatmulScale::Outer; 2]),
        Scale::Block => Some([MatmulScale::Block128, MatmulScale::Vector128]),
    };
    MatmulSpec {
        dtype: p.dtype,
        tf32: false,
        a: matrix(p.k, p.n, true),
        b: matrix(p.k, p.m, false),
        d: matrix(p.n, p.m, false),
        batch: 1,
        align: 16,
        workspace: (WORKSPACE as u64) << 20,
        epilogue: MatmulEpilogue::default(),
        bytes: Some(BytesSpec { out: p.out, fast: p.fast, scales }),
    }
}

struct Call {
    aligns: Aligns<SLOTS>,
    scaled: bool,
    matmul: Matmul,
}

impl Kernel<Cuda> for Call {
    fn launch(&self, args: &mut [Arg<'_, Cuda>], queue: &Stream) -> Result<(), Rejection> {
        let [a, b, scale_a, scale_b, c] = addresses(args, &self.aligns)?;
        // SAFETY: the catalog hands out kernels that refuse other arguments than the signature's, so that the buffers
        // hold what the problem spans, and the views borrow them.
        let launched = unsafe {
            match self.scaled {
                true => self.matmul.launch_factored([b, a, c], [scale_b, scale_a], queue),
                false => self.matmul.launch(b, a, c, queue),
            }
        };
        launched.map_err(|e| e.rejection())
    }

    fn workspace(&self) -> u64 {
        self.matmul.workspace()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warplap_core::dtype::DType;

    #[test]
    fn the_library_is_asked_for_the_turned_product_with_the_factors_of_both_sides() {
        let p = QgemmProblem::fp8(3, 16, 32, DType::F16, Scale::Block);
        let spec = spec(&p);
        assert_eq!((spec.a.rows, spec.a.columns, spec.a.turned), (32, 16, true));
        assert_eq!((spec.b.rows, spec.b.columns, spec.b.turned), (32, 3, false));
        assert_eq!((spec.d.rows, spec.d.columns, spec.d.pitch), (16, 3, 16));
        let bytes = spec.bytes.unwrap();
        assert_eq!(bytes.scales, Some([MatmulScale::Block128, MatmulScale::Vector128]), "its A is our B");
        assert_eq!((bytes.out, bytes.fast), (DType::F16, false));
        assert!(super::spec(&QgemmProblem { fast: true, scale: Scale::Row, ..p }).bytes.unwrap().fast);
        assert_eq!(super::spec(&QgemmProblem::int8(4, 4, 4)).bytes.unwrap().scales, None);
    }
}
