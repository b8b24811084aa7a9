//! A small operation with planted faults: c = a + b, done rightly by some variants and badly in every way by others.
//!
//! The texts are CUDA for a real device; the line `//@` says the same to the stand-in library.

use std::ffi::c_void;
use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::array::Array;
use warplap_core::bucket::Bucket;
use warplap_core::candidate::SourceHash;
use warplap_core::catalog::Catalog;
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op};
use warplap_core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Work;
use warplap_core::slot::{Signature, Slot};
use warplap_core::space::{Axis, Config, Space};
use warplap_core::tolerance::Tolerance;
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cuda::{Cuda, Function, Ground, LaunchShape, Source, Stream};

/// c = a + b over n floats.
pub struct Sum;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SumProblem {
    pub n: u64,
}

impl Problem for SumProblem {
    type Op = Sum;
    const FIELDS: &'static [&'static str] = &["n"];
    fn fields(&self) -> Fields {
        Fields::new().with("n", self.n)
    }
    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        Ok(SumProblem { n: fields.size("n")? })
    }
    fn key_fields(&self, bucket: &Bucket) -> Fields {
        self.representative(bucket).fields()
    }
    fn representative(&self, bucket: &Bucket) -> Self {
        SumProblem { n: bucket.round("n", self.n) }
    }
    fn ragged(&self) -> Option<Self> {
        (self.n > 100).then_some(SumProblem { n: 77 })
    }
    fn work(&self) -> Work {
        Work { flops: self.n as f64, bytes: 12.0 * self.n as f64 }
    }
    fn dtype(&self) -> DType {
        DType::F32
    }
}

impl Op for Sum {
    const NAME: &'static str = "sum";
    type Problem = SumProblem;

    fn signature(p: &SumProblem) -> Signature {
        let inputs = ["a", "b"].map(|name| Slot::input(name, DType::F32, &[p.n]));
        Signature(inputs.into_iter().chain([Slot::output("c", DType::F32, &[p.n])]).collect())
    }
    fn answer(_: &SumProblem, inputs: &[Array]) -> Vec<Answer> {
        let values = inputs[0].to_f64().iter().zip(inputs[1].to_f64()).map(|(a, b)| a + b).collect();
        vec![Answer { values, tolerance: Tolerance::dot(DType::F32, DType::F32, 2, 2.0) }]
    }
}

/// What the host's side of a variant does when it is built in a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Host {
    Builds,
    Aborts,
    Segfaults,
    Exits,
    Panics,
    /// Asks for more device memory than there is.
    TakesAll,
    /// Takes longer than a launch may.
    Dawdles,
    /// A library that proposes it for large problems alone.
    Proposes,
}

/// A variant, and what is expected to become of it: `right`, or a rejection's word.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    pub id: &'static str,
    pub text: &'static str,
    pub host: Host,
    pub becomes: &'static str,
    /// How many settings of it there are.
    pub repeat: i64,
}

macro_rules! kernel {
    ($said:literal, $body:literal) => {
        concat!(
            "//@ ",
            $said,
            "\nextern \"C\" __global__ void sum(const float* a, const float* b, float* c, int n) {\n",
            "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  ",
            $body,
            "\n}\n"
        )
    };
}

const RIGHT: &str = kernel!("add", "if (i < n) c[i] = a[i] + b[i];");

const fn planted(id: &'static str, text: &'static str, host: Host, becomes: &'static str) -> Planted {
    Planted { id, text, host, becomes, repeat: 1 }
}

/// Every thread writes nothing where the first element of a is what it found there the last time.
const REMEMBERS: &str = concat!(
    "//@ remember\n__device__ float was[1 << 20];\n",
    "extern \"C\" __global__ void sum(const float* a, const float* b, float* c, int n) {\n",
    "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n",
    "  if (i >= n || was[i] == a[0]) return;\n",
    "  was[i] = a[0];\n  c[i] = a[i] + b[i];\n}\n"
);

macro_rules! slow {
    ($said:literal, $before:literal, $after:literal) => {
        concat!(
            "//@ ",
            $said,
            "\n__device__ float was[1 << 20], kept[1 << 20];\n",
            "extern \"C\" __global__ void sum(const float* a, const float* b, float* c, int n) {\n",
            "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= n) return;\n  ",
            $before,
            "\n  float x = a[i], one = n > 0;\n",
            "  for (int k = 0; k < 4000; k++) x = __fmaf_rn(x, one, 0.0f);\n  c[i] = x + b[i];\n  ",
            $after,
            "\n}\n"
        )
    };
}

/// A reference that takes its time, and one that is faster because it writes its last answer again where the first
/// element of a is what it was. Only a proof on inputs that changed a little since tells them apart.
pub const RECITING: &[Planted] = &[
    planted("plodding", slow!("add\n//~ 900", "", ""), Host::Builds, "right"),
    planted(
        "recites",
        slow!("recite\n//~ 90", "if (was[i] == a[0]) { c[i] = kept[i]; return; }", "was[i] = a[0], kept[i] = c[i];"),
        Host::Builds,
        "wrong_answer",
    ),
];

/// The reference, three good ones, and one of every bad kind.
pub const KINDS: &[Planted] = &[
    planted("reference", RIGHT, Host::Builds, "right"),
    planted("good", RIGHT, Host::Builds, "right"),
    planted("proposal", RIGHT, Host::Proposes, "right"),
    planted("good_too", kernel!("add", "if (i < n) { float x = b[i]; c[i] = x + a[i]; }"), Host::Builds, "right"),
    planted("slow_build", RIGHT, Host::Dawdles, "right"),
    planted(
        "illegal_address",
        kernel!("fault 700", "if (i < n) c[i] = a[i] + *(float*)(16ull + 4 * i);"),
        Host::Builds,
        "crashed",
    ),
    planted(
        "misaligned",
        kernel!("fault 716", "if (i < n) c[i] = a[i] + *(volatile float*)((char*)b + 1);"),
        Host::Builds,
        "crashed",
    ),
    planted("endless", kernel!("hang", "while (*(volatile float*)c != 3e38f) {}"), Host::Builds, "timed_out"),
    planted("trap", kernel!("fault 719", "if (i == 0) asm volatile(\"trap;\");"), Host::Builds, "crashed"),
    planted(
        "late_trap",
        concat!(
            "//@ fault 719\n__device__ int calls;\n",
            "extern \"C\" __global__ void sum(const float* a, const float* b, float* c, int n) {\n",
            "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n",
            "  if (i == 0 && atomicAdd(&calls, 1) == 5) asm volatile(\"trap;\");\n",
            "  if (i < n) c[i] = a[i] + b[i];\n}\n"
        ),
        Host::Builds,
        "crashed",
    ),
    planted("wrong", kernel!("subtract", "if (i < n) c[i] = a[i] - b[i];"), Host::Builds, "wrong_answer"),
    planted("unwritten", kernel!("nothing", "if (i < 0) c[i] = n;"), Host::Builds, "wrong_answer"),
    planted("remembers", REMEMBERS, Host::Builds, "wrong_answer"),
    planted("host_abort", RIGHT, Host::Aborts, "crashed"),
    planted("host_segfault", RIGHT, Host::Segfaults, "crashed"),
    planted("host_exit", RIGHT, Host::Exits, "crashed"),
    planted("host_panic", RIGHT, Host::Panics, "crashed"),
    planted("out_of_memory", RIGHT, Host::TakesAll, "over_limits"),
    planted("bad_source", "//! does not compile\n#error it says so itself\n", Host::Builds, "does_not_build"),
];

/// A kind of this name.
pub fn kind(id: &str) -> Planted {
    *KINDS.iter().find(|k| k.id == id).unwrap_or_else(|| panic!("no kind is called {id}"))
}

/// A catalog of kinds, the first the reference.
pub fn catalog(kinds: &[Planted]) -> Catalog<Sum, Cuda> {
    let mut all = kinds.iter().map(|k| Arc::new(*k));
    let reference = Catalog::new(all.next().expect("a reference"));
    all.fold(reference, |catalog, kind| catalog.with(kind))
}

/// What a worker must know to prove candidates of any kind; how many settings there are is the caller's affair.
pub fn grounds() -> Vec<Ground> {
    let all: Vec<Planted> = KINDS.iter().chain(RECITING).copied().collect();
    vec![Ground::of(move || catalog(&all))]
}

impl Planted {
    fn source_text(&self, config: &Config) -> Source {
        let i = config.int("I").unwrap_or(0);
        Source { entry: "sum", text: self.text, headers: &[], defines: vec![("I", i)] }
    }
}

impl Variant<Sum, Cuda> for Planted {
    fn id(&self) -> &str {
        self.id
    }
    fn source(&self) -> SourceHash {
        SourceHash::of(&[self.id, self.text])
    }
    fn fit(&self, _: &SumProblem, _: &Cuda) -> Fit {
        Fit::HIGH
    }
    fn space(&self, _: &SumProblem, _: &Cuda) -> Space {
        Space::single().axis(Axis::ints("I", 0..self.repeat))
    }
    fn is_library(&self) -> bool {
        self.host == Host::Proposes
    }
    fn compile(&self, _: &SumProblem, config: &Config, cuda: &Cuda) -> Result<(), Rejection> {
        cuda.compile(&self.source_text(config))
    }
    fn build(&self, p: &SumProblem, config: &Config, cuda: &Cuda) -> Result<Box<dyn Kernel<Cuda>>, Rejection> {
        match self.host {
            Host::Builds => {}
            Host::Aborts => std::process::abort(),
            // SAFETY: none: nothing is mapped there, and that is the point. Only a worker ever comes here.
            Host::Segfaults => unsafe { std::ptr::without_provenance_mut::<u8>(64).write_volatile(1) },
            Host::Exits => std::process::exit(0),
            Host::Panics => panic!("planted"),
            Host::Proposes if p.n < 100 => {
                return Err(Rejection::DoesNotBuild { reason: "there is no such proposal".into() });
            }
            Host::Proposes => {}
            Host::Dawdles => std::thread::sleep(std::time::Duration::from_millis(700)),
            Host::TakesAll => {
                let len = usize::try_from(cuda.chip().memory).unwrap_or(usize::MAX >> 2);
                drop(cuda.alloc(DType::F32, len).map_err(|e| e.rejection())?);
            }
        }
        Ok(Box::new(Built { n: p.n, function: cuda.build(&self.source_text(config))? }))
    }
}

struct Built {
    n: u64,
    function: Function,
}

impl Kernel<Cuda> for Built {
    fn launch(&self, args: &mut [Arg<'_, Cuda>], queue: &Stream) -> Result<(), Rejection> {
        let (a, b, c) = (args[0].read()?.address(), args[1].read()?.address(), args[2].write()?.address());
        let n = self.n as i32;
        let arguments =
            [(&raw const a).cast::<c_void>(), (&raw const b).cast(), (&raw const c).cast(), (&raw const n).cast()];
        let shape = LaunchShape { grid: [self.n.div_ceil(128) as u32, 1, 1], threads: 128, ..LaunchShape::default() };
        // SAFETY: the entry takes three pointers and an int; the catalog hands out kernels that
        // refuse buffers of fewer than n floats.
        unsafe { self.function.launch(&shape, &arguments, queue) }.map_err(|e| e.rejection())
    }
}
