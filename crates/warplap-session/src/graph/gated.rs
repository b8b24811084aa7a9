//! Element by element: y = act(a), or that plus or times b, as one plain loop.

use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::array::Array;
use warplap_core::bucket::Bucket;
use warplap_core::candidate::SourceHash;
use warplap_core::catalog::{Catalog, Raced};
use warplap_core::device::Device;
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op};
use warplap_core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Work;
use warplap_core::scalar::Scalar;
use warplap_core::slot::{Signature, Slot};
use warplap_core::space::{Config, Space};
use warplap_core::tolerance::Tolerance;
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cpu::{Cpu, Typed};
use warplap_ops::gemm::{Activation, Join};

#[derive(Clone, Copy, Debug)]
pub struct Gated;

pub(super) mod slot {
    pub(crate) const A: usize = 0;
    pub(crate) const B: usize = 1;
    pub(crate) const Y: usize = 2;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GatedProblem {
    pub rows: u64,
    pub n: u64,
    pub dtype: DType,
    pub act: Activation,
    pub join: Join,
}

impl GatedProblem {
    pub fn new(rows: u64, n: u64, dtype: DType, act: Activation, join: Join) -> Self {
        GatedProblem { rows, n, dtype, act, join }
    }
}

impl Problem for GatedProblem {
    type Op = Gated;
    const FIELDS: &'static [&'static str] = &["rows", "n", "dtype", "act", "join"];

    fn fields(&self) -> Fields {
        let fields = Fields::new().with("rows", self.rows).with("n", self.n).with("dtype", self.dtype);
        fields.with("act", self.act).with("join", self.join)
    }
    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        let (rows, n) = (fields.size("rows")?, fields.size("n")?);
        let dtype = fields.word_or("dtype", "one of f32, f16, bf16", DType::F32)?;
        let act = fields.word_or("act", "an activation", Activation::Silu)?;
        let join = fields.word_or("join", "none, add or mul", Join::Mul)?;
        Ok(GatedProblem { rows, n, dtype, act, join })
    }
    fn key_fields(&self, bucket: &Bucket) -> Fields {
        self.representative(bucket).fields()
    }
    fn representative(&self, bucket: &Bucket) -> Self {
        GatedProblem { rows: bucket.round_changing("rows", self.rows), ..*self }
    }
    fn work(&self) -> Work {
        let all = (self.rows * self.n) as f64;
        Work { flops: all, bytes: 2.0 * all * self.dtype.bytes() as f64 }
    }
    fn dtype(&self) -> DType {
        self.dtype
    }
}

impl Op for Gated {
    const NAME: &'static str = "gated";
    type Problem = GatedProblem;

    fn signature(p: &GatedProblem) -> Signature {
        let shape = [p.rows, p.n];
        Signature(vec![
            Slot::input("a", p.dtype, &shape),
            Slot::input("b", p.dtype, &shape).when(p.join != Join::None),
            Slot::output("y", p.dtype, &shape),
        ])
    }
    fn answer(p: &GatedProblem, inputs: &[Array]) -> Vec<Answer> {
        let (a, b) = (inputs[slot::A].to_f64(), inputs[slot::B].to_f64());
        let at = |i: usize| b.get(i).copied().unwrap_or(0.0);
        let values = a.iter().enumerate().map(|(i, a)| p.join.of(p.act.of(*a), at(i))).collect();
        let most = b.iter().fold(0f64, |most, b| most.max(b.abs()));
        let exact = Tolerance { relative: 2.0 * DType::F32.roundoff(), floor: 0.0 };
        let own = if p.act == Activation::None { exact } else { exact.activated() };
        let joined = if p.join == Join::Mul { own.multiplied(p.dtype, most) } else { own.added(most) };
        vec![Answer { values, tolerance: Tolerance { relative: joined.relative + p.dtype.roundoff(), ..joined } }]
    }
}

struct Plain;

impl<D: Device> Variant<Gated, D> for Plain
where
    Looped: Kernel<D>,
{
    fn id(&self) -> &str {
        "plain"
    }
    fn source(&self) -> SourceHash {
        SourceHash::of(&["plain"])
    }
    fn fit(&self, _: &GatedProblem, _: &D) -> Fit {
        Fit::HIGH
    }
    fn space(&self, _: &GatedProblem, _: &D) -> Space {
        Space::single()
    }
    fn build(&self, p: &GatedProblem, _: &Config, _: &D) -> Result<Box<dyn Kernel<D>>, Rejection> {
        Ok(Box::new(Looped(*p)))
    }
}

struct Looped(GatedProblem);

impl Looped {
    fn go<T: Scalar + Typed>(&self, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
        let refused = || Rejection::LaunchFailed { reason: "of another type".into() };
        let a = T::read(args[slot::A].read()?).ok_or_else(refused)?;
        let b = args[slot::B].view().and_then(T::read);
        let y = T::write(args[slot::Y].write()?).ok_or_else(refused)?;
        for (i, (y, a)) in y.iter_mut().zip(a).enumerate() {
            *y = T::from_f64(self.0.join.of(self.0.act.of(a.to_f64()), b.map_or(0.0, |b| b[i].to_f64())));
        }
        Ok(())
    }
}

impl Kernel<Cpu> for Looped {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        match self.0.dtype {
            DType::F32 => self.go::<f32>(args),
            DType::F16 => self.go::<warplap_core::scalar::f16>(args),
            _ => self.go::<warplap_core::scalar::bf16>(args),
        }
    }
}

#[cfg(feature = "cuda")]
impl Kernel<warplap_cuda::Cuda> for Looped {
    fn launch(
        &self,
        _: &mut [Arg<'_, warplap_cuda::Cuda>],
        _: &<warplap_cuda::Cuda as Device>::Queue,
    ) -> Result<(), Rejection> {
        Err(Rejection::LaunchFailed { reason: "a plain loop runs on the CPU".into() })
    }
}

impl<D: Device> Raced<D> for Gated
where
    Looped: Kernel<D>,
{
    fn catalog() -> Catalog<Gated, D> {
        Catalog::new(Arc::new(Plain))
    }
}
