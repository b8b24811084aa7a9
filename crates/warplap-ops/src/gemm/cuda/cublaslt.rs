//! cuBLASLt: NVIDIA's library, with its heuristic's list of algorithms as an axis.
//!
//! Idea: always race what a user could have called instead, and let the race correct the heuristic's order. Wins: large
//! well-shaped products, strict f32. Limits: where the library is found; of the activations it has relu and the tanh
//! form of gelu; what is joined is added, to a product that is not activated. C = A·B row-major is asked for as Cᵀ = Bᵀ·Aᵀ column-major, which is the same memory; the library's
//! bias, one element for each of its rows, is then one for each column of C.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::op::Op;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cuda::{Cuda, Lt, Matmul, MatmulActivation, MatmulEpilogue, MatmulSpec, MatrixSpec, Stream};

use crate::cuda::own::{Aligns, addresses};
use crate::cuda::plan::axis;
use crate::gemm::{Activation, Gemm, GemmProblem, Join, Layout, SLOTS};

/// NVIDIA's library.
pub(super) struct Cublaslt;

/// Entries of the heuristic's list that may race.
const CHOICES: i64 = 8;

/// MiB of workspace an algorithm may take.
const WORKSPACE: i64 = 32;

impl Variant<Gemm, Cuda> for Cublaslt {
    fn id(&self) -> &str {
        "cublaslt"
    }

    fn source(&self) -> SourceHash {
        // Another version of the library is another kernel.
        let version = Lt::get().map_or(0, Lt::version).to_string();
        source!(&version)
    }

    fn fit(&self, p: &GemmProblem, _: &Cuda) -> Fit {
        match Lt::get() {
            Ok(_) if p.batch.max(p.m).max(p.n).max(p.k) > i32::MAX as u64 => Fit::aside("sizes must fit 31 bits"),
            Ok(_) if epilogue(p).is_none() => Fit::aside(lacks(p)),
            Ok(_) => Fit::HIGH,
            Err(why) => Fit::aside(why),
        }
    }

    fn space(&self, _: &GemmProblem, _: &Cuda) -> Space {
        Space::single().axis(Axis::ints("choice", 0..CHOICES)).axis(Axis::ints("workspace", [WORKSPACE, 0]))
    }

    fn needs(&self, _: &GemmProblem, config: &Config) -> Needs {
        let mib = config.int("workspace").and_then(|v| u64::try_from(v).ok()).unwrap_or(0);
        Needs { workspace: mib << 20, ..Needs::default() }
    }

    fn build(&self, p: &GemmProblem, config: &Config, cuda: &Cuda) -> Result<Box<dyn Kernel<Cuda>>, Rejection> {
        let refused = |reason: String| Rejection::DoesNotBuild { reason };
        let [choice, mib] = [axis(config, "choice")?, axis(config, "workspace")?];
        let spec = spec(p, mib << 20).ok_or_else(|| refused(lacks(p)))?;
        let made = Matmul::choose(&spec, choice as usize, cuda).map_err(|e| refused(e.to_string()))?;
        let matmul = made.ok_or_else(|| refused(format!("the heuristic has no proposal {choice}")))?;
        if mib == 0 {
            let roomy = MatmulSpec { workspace: (WORKSPACE as u64) << 20, ..spec };
            let place = matmul.place(&roomy, CHOICES as usize).map_err(|e| refused(e.to_string()))?;
            if let Some(place) = place {
                return Err(refused(format!("it is the algorithm of choice={place},workspace={WORKSPACE}")));
            }
        }
        let (aligns, joins) = (Aligns::of(&Gemm::signature(p))?, p.join != Join::None);
        Ok(Box::new(Call { aligns, bias: p.bias, joins, matmul }))
    }

    fn is_library(&self) -> bool {
        true
    }
}

/// What the library does to the product; `None` where it cannot.
fn epilogue(p: &GemmProblem) -> Option<MatmulEpilogue> {
    let activation = match p.act {
        Activation::None => None,
        Activation::Relu => Some(MatmulActivation::Relu),
        Activation::GeluTanh => Some(MatmulActivation::GeluTanh),
        Activation::Gelu | Activation::Silu | Activation::Tanh | Activation::Sigmoid => return None,
    };
    // What the library adds is added before it activates.
    if p.pair || p.join == Join::Mul || (p.join == Join::Add && activation.is_some()) {
        return None;
    }
    Some(MatmulEpilogue { bias: p.bias, activation })
}

/// Why the library cannot finish a product.
fn lacks(p: &GemmProblem) -> String {
    match p.join {
        Join::None if p.pair => "cuBLASLt has no product with two B (pair=true)".into(),
        Join::None => format!("cuBLASLt has no {}", p.act),
        _ => format!("cuBLASLt has no {} with join={}", p.act, p.join),
    }
}

/// The product as the library is asked for it: its A is our B, its B our A. `None` where it cannot be asked for.
fn spec(p: &GemmProblem, workspace: u64) -> Option<MatmulSpec> {
    let [a_stride, b_stride, c_stride] = p.strides();
    let matrix =
        |(columns, rows): (u64, u64), pitch, stride, turned| MatrixSpec { rows, columns, pitch, stride, turned };
    Some(MatmulSpec {
        dtype: p.dtype,
        tf32: p.tf32,
        a: matrix(p.b_lines(), p.ldb, b_stride, p.b == Layout::Col),
        b: matrix(p.a_lines(), p.lda, a_stride, p.a == Layout::Col),
        d: matrix((p.m, p.n), p.ldc, c_stride, false),
        batch: p.batch,
        align: p.align,
        workspace,
        epilogue: epilogue(p)?,
        bytes: None,
    })
}

struct Call {
    aligns: Aligns<SLOTS>,
    bias: bool,
    joins: bool,
    matmul: Matmul,
}

impl Kernel<Cuda> for Call {
    fn launch(&self, args: &mut [Arg<'_, Cuda>], queue: &Stream) -> Result<(), Rejection> {
        let [a, b, c, bias, joined, _] = addresses(args, &self.aligns)?;
        // Without another matrix nothing is read of it.
        let (other, beta) = if self.joins { (joined, 1.0) } else { (c, 0.0) };
        // SAFETY: the catalog hands out kernels that refuse other arguments than the signature's, so that the buffers
        // hold what the problem spans, and the views borrow them.
        let launched = unsafe {
            match self.bias {
                true => self.matmul.launch_biased([b, a, other, c], bias, beta, queue),
                false => self.matmul.launch_scaled([b, a, other, c], (1.0, beta), queue),
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

    /// Multiplies as the library's documents say: column-major, transposed where asked.
    fn product(s: &MatmulSpec, a: &[f64], b: &[f64], d: &mut [f64]) {
        let at = |m: MatrixSpec, i: u64, j: u64| (if m.turned { i * m.pitch + j } else { j * m.pitch + i }) as usize;
        let (rows, columns) = (s.d.rows, s.d.columns);
        let depth = if s.a.turned { s.a.rows } else { s.a.columns };
        for z in 0..s.batch {
            for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                let [a0, b0, d0] = [s.a, s.b, s.d].map(|m| (z * m.stride) as usize);
                let sum = (0..depth).map(|q| a[a0 + at(s.a, i, q)] * b[b0 + at(s.b, q, j)]).sum();
                d[d0 + at(s.d, i, j)] = sum;
            }
        }
    }

    #[test]
    fn the_library_is_asked_for_the_right_product_in_every_layout() {
        for layout in ["", ",a=col", ",b=col", ",a=col,b=col"] {
            for rest in ["", ",lda=9,ldb=8,ldc=7", ",batch=3", ",lda=9,ldb=8,ldc=7,batch=2"] {
                let text = format!("gemm:m=3,n=4,k=5,dtype=f32{layout}{rest}");
                let p = Gemm::parse(&text).unwrap();
                let inputs = Gemm::draw(&p, &mut fastrand::Rng::with_seed(1));
                let mut got = vec![f64::NAN; p.c_len()];
                product(&spec(&p, 0).unwrap(), &inputs[1].to_f64(), &inputs[0].to_f64(), &mut got);
                let right = &Gemm::answer(&p, &inputs)[0].values;
                let same = |(x, y): (&f64, &f64)| (x.is_nan() && y.is_nan()) || (x - y).abs() < 1e-9;
                assert!(got.iter().zip(right).all(same), "{text}: {got:?} {right:?}");
            }
        }
    }

    #[test]
    fn the_library_is_asked_for_the_epilogues_it_has_and_its_rows_are_our_columns() {
        let asked = |rest: &str| spec(&Gemm::parse(&format!("gemm:m=3,n=4,k=5,dtype=f16,{rest}")).unwrap(), 0);
        let (relu, gelu) = (Some(MatmulActivation::Relu), Some(MatmulActivation::GeluTanh));
        for (rest, bias, activation) in [
            ("bias=true", true, None),
            ("act=relu", false, relu),
            ("bias=true,act=relu", true, relu),
            ("b=col,bias=true,act=gelu_tanh,batch=2", true, gelu),
        ] {
            let spec = asked(rest).unwrap();
            assert_eq!((spec.epilogue, spec.d.rows), (MatmulEpilogue { bias, activation }, 4), "{rest}");
        }
        assert!(asked("act=gelu").is_none() && asked("bias=true,act=silu").is_none());
        assert!(asked("bias=true,join=add").is_some());
        assert!(asked("join=mul").is_none() && asked("act=relu,join=add").is_none());
    }
}
