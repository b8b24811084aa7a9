//! Right answers from CUDA kernels, buffers that are read and written, and constant memory, on the stand-in library.

mod standin;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warplap::any::AnyDevice;
use warplap::core::candidate::{Candidate, Outcome};
use warplap::core::device::Device;
use warplap::core::progress::Silent;
use warplap::core::record::TuningRun;
use warplap::core::rejection::Rejection;
use warplap::core::sandbox::SandboxRequest;
use warplap::core::space::Config;
use warplap::core::store::Store;
use warplap::{Budget, Cuda, Op, Settings};
use warplap_spec::{KernelFile, KernelProblem, Spec};

use standin::{SPEC, SUM};

/// Not a test: the worker of the others, which is this program again.
#[test]
fn worker() {
    warplap::worker::Worker::new().with_ground(warplap_spec::ground()).serve_if_asked();
}

/// The stand-in has one state for the whole program: tests take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

const PLAIN: &str = "\n[reference]\nsource = \"plain.cu\"\nentry = \"plain\"\n[reference.launch]\ngrid = \"ceil(N / 32)\"\nblock = 32\n";

/// A reference that does what the stand-in is told.
fn plain(act: &str) -> String {
    format!("{act}\nextern \"C\" __global__ void plain(const float* a, const float* b, float* c, int n) {{}}\n")
}

/// A folder with a spec file and the files it names.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(spec: &str, files: &[(&str, &str)]) -> Self {
        let folder = Folder(tempfile::tempdir().unwrap());
        folder.put("k.toml", spec);
        files.iter().for_each(|(name, text)| folder.put(name, text));
        folder
    }
    fn put(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }
    fn spec(&self) -> Arc<Spec> {
        self.load().unwrap()
    }
    fn load(&self) -> Result<Arc<Spec>, warplap_spec::SpecError> {
        Spec::load(&self.0.path().join("k.toml"))
    }
    /// What the spec is refused with before anything is raced.
    fn refused(&self, cuda: &Arc<Cuda>) -> String {
        self.spec().ready_on(&AnyDevice::Cuda(cuda.clone())).unwrap_err().to_string()
    }
}

fn tuned(spec: &Arc<Spec>, cuda: &Arc<Cuda>) -> TuningRun {
    let budget = Budget { seconds: 120.0, ..Budget::default() };
    let settings = Settings { budget, policy: Cuda::usual_policy(), yardsticks: true, ..Settings::default() };
    let device = AnyDevice::Cuda(cuda.clone());
    spec.ready_on(&device).unwrap();
    let tuner = spec.open(&device, Store::memory(), settings).unwrap();
    tuner.tune(&spec.problem(), &Silent).unwrap().edition
}

/// What became of the trials at a value of KIND.
fn words(edition: &TuningRun, kind: i64) -> Vec<&'static str> {
    let of_kind = edition.trials.iter().filter(|t| t.candidate.config.int("KIND") == Some(kind));
    let words = of_kind.map(|t| match &t.outcome {
        Outcome::Measured(_) => "right",
        Outcome::Rejected(Rejection::Outpaced { .. }) => "right",
        Outcome::Rejected(rejection) => rejection.word(),
    });
    words.collect()
}

fn all_are(edition: &TuningRun, kind: i64, word: &str) {
    let words = words(edition, kind);
    assert!(!words.is_empty() && words.iter().all(|w| *w == word), "KIND={kind}: {words:?}, expected {word}");
}

#[test]
fn a_kernel_is_judged_by_another_one_in_cuda_which_races_too() {
    let _turn = turn();
    let cuda = Arc::new(standin::device());
    let folder = Folder::new(&format!("{SPEC}{PLAIN}"), &[("sum.cu", SUM), ("plain.cu", &plain("//@ add"))]);
    let edition = tuned(&folder.spec(), &cuda);
    for (kind, word) in [(0, "right"), (1, "crashed"), (2, "wrong_answer")] {
        all_are(&edition, kind, word);
    }
    let reference = edition.trials.iter().find(|t| t.candidate.variant == "reference").expect("the reference races");
    let raced = matches!(reference.outcome, Outcome::Measured(_) | Outcome::Rejected(Rejection::Outpaced { .. }));
    assert!(raced, "{:?}", reference.outcome);
    assert!(cuda.context_health().is_ok(), "the caller's context lives");

    // What is right is what the reference says: now the kernel that subtracts.
    folder.put("plain.cu", plain("//@ subtract"));
    let edition = tuned(&folder.spec(), &cuda);
    all_are(&edition, 0, "wrong_answer");
    all_are(&edition, 2, "right");
}

#[test]
fn without_a_reference_every_config_must_agree_with_the_default_one() {
    let _turn = turn();
    let cuda = Arc::new(standin::device());
    let edition = tuned(&Folder::new(SPEC, &[("sum.cu", SUM)]).spec(), &cuda);
    for (kind, word) in [(0, "right"), (1, "crashed"), (2, "wrong_answer")] {
        all_are(&edition, kind, word);
    }
    let edition = tuned(&Folder::new(&SPEC.replace("[0, 1, 2]", "[2, 0]"), &[("sum.cu", SUM)]).spec(), &cuda);
    all_are(&edition, 0, "wrong_answer");
    all_are(&edition, 2, "right");
}

#[test]
fn a_default_config_that_cannot_be_the_reference_is_named_with_the_reason_and_the_remedy() {
    let _turn = turn();
    let cuda = Arc::new(standin::device());
    for (kind, why) in [
        (1, "crashed: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
        (4, "crashed: the worker died of signal 6"),
        (5, "does not build: does not compile: NVRTC gave 6: error: it says so itself"),
        (6, "element 0 of 'c' is NaN or was never written"),
    ] {
        let folder = Folder::new(&SPEC.replace("[0, 1, 2]", &format!("[{kind}, 0]")), &[("sum.cu", SUM)]);
        let said = folder.refused(&cuda);
        let config = format!("the kernel at its default config (KIND={kind},block_size_x=64) cannot be one");
        for part in ["k.toml: there is no [reference]", &config, why, "or a [reference] that states what is right"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(cuda.context_health().is_ok(), "the caller's context lives");
    }
}

#[test]
fn a_reference_in_cuda_that_cannot_be_used_is_refused_at_its_line() {
    let _turn = turn();
    let cuda = Arc::new(standin::device());
    let text = format!("{SPEC}{PLAIN}");
    let line = text.lines().position(|l| l == "[reference]").unwrap() + 1;
    for (act, why) in [
        ("//! does not compile\n//@ add", "does not build: does not compile: NVRTC gave 6: error: it says so itself"),
        ("//@ fault 700", "crashed: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("//@ die", "crashed: the worker died of signal 6"),
        ("//@ refuse 1", "launch failed"),
        ("", "does not build: does not compile: there is no entry 'plain'"),
        ("//@ nothing", "element 0 of 'c' is NaN or was never written"),
    ] {
        let folder = Folder::new(&text, &[("sum.cu", SUM), ("plain.cu", &plain(act))]);
        let said = folder.refused(&cuda);
        assert!(said.contains(&format!("k.toml:{line}: the reference ")) && said.contains("plain.cu"), "{said}");
        assert!(said.contains(why) && said.contains("expected it to run"), "{act}: {said}");
        assert!(cuda.context_health().is_ok(), "the caller's context lives");
    }
}

#[test]
fn a_reference_that_hangs_is_timed_out_under_its_own_name() {
    let _turn = turn();
    let cuda = standin::device();
    let folder = Folder::new(&format!("{SPEC}{PLAIN}"), &[("sum.cu", SUM), ("plain.cu", &plain("//@ hang"))]);
    let spec = folder.spec();
    let catalog = spec.on_cuda();
    let reference = catalog.reference();
    let (variant, source) = (reference.id().to_string(), reference.source());
    let request = SandboxRequest {
        problem: KernelFile::text(&KernelProblem::new(&spec)),
        candidate: Candidate { variant, config: Config::new(), source },
        seed: 0,
        policy: Cuda::usual_policy(),
        patience: 0.5,
        trusted: true,
    };
    let outcome = cuda.sandbox(&request).expect("a worker");
    assert!(matches!(outcome, Err(Rejection::TimedOut { .. })), "{outcome:?}");
}

#[test]
fn the_launch_of_a_reference_knows_constants_and_no_axes() {
    let refused = |from: &str, to: &str, line_of: &str, why: &str| {
        let text = format!("{SPEC}{PLAIN}").replace(from, to);
        let folder = Folder::new(&text, &[("sum.cu", SUM), ("plain.cu", &plain("//@ add")), ("r.c", "void r() {}")]);
        let said = folder.load().map(|_| ()).unwrap_err().to_string();
        // The last such line: the kernel has a launch too.
        let line = text.lines().collect::<Vec<_>>().iter().rposition(|l| l.starts_with(line_of)).unwrap() + 1;
        assert!(said.contains(&format!("k.toml:{line}: ")) && said.contains(why), "{said}");
    };
    refused(
        "ceil(N / 32)",
        "ceil(N / block_size_x)",
        "grid = \"ceil(N / block_size_x)\"",
        "by constants alone: there is no axis 'block_size_x'",
    );
    refused("plain.cu", "r.c", "[reference.launch]", "only a reference in CUDA is launched");
    refused("block = 32", "bolck = 32", "bolck", "did you mean `block`");
}

/// c = c + a.
const GATHER: &str = r#"
//? KIND=1 nothing
//@ gather
extern "C" __global__ void gather(const float* a, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] += a[i];
}
"#;

#[test]
fn a_buffer_that_is_changed_in_place_is_filled_anew_before_every_proof() {
    let _turn = turn();
    let cuda = Arc::new(standin::device());
    let arguments = SPEC.find("[[arguments]]").unwrap();
    let spec = format!(
        "{}[[arguments]]\nname = \"a\"\ndtype = \"f32\"\nshape = \"N\"\n\
         [[arguments]]\nname = \"c\"\nrole = \"inout\"\ndtype = \"f32\"\nshape = \"N\"\n\
         [[arguments]]\nname = \"n\"\ndtype = \"i32\"\nvalue = \"N\"\n",
        SPEC[..arguments].replace("sum", "gather").replace("[0, 1, 2]", "[0, 1]")
    );
    let by_c = "[reference]\nsource = \"right.c\"\nentry = \"right\"\n";
    let right = "void right(const float *a, float *c, int n) { for (int i = 0; i < n; i++) c[i] += a[i]; }";
    for reference in [by_c, ""] {
        let folder = Folder::new(&format!("{spec}{reference}"), &[("gather.cu", GATHER), ("right.c", right)]);
        // Graphs of hundreds of launches go on in it, and there is a proof after them: a filling that is left out adds
        // up.
        let edition = tuned(&folder.spec(), &cuda);
        all_are(&edition, 0, "right");
        all_are(&edition, 1, "wrong_answer");
    }
}

/// c = w[0] a + w[1] b.
fn weigh(globals: &str) -> String {
    format!(
        "//? KIND=1 add\n//@ weigh\n{globals}\n__constant__ float weights[2];\nextern \"C\" __global__ void weigh(const float* \
         a, const float* b, float* c, int n) {{\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) c[i] = \
         weights[0] * a[i] + weights[1] * b[i];\n}}\n"
    )
}

/// Two numbers as numpy.save writes them.
fn two(numbers: [f32; 2]) -> Vec<u8> {
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n";
    let content = numbers.map(f32::to_le_bytes).concat();
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &content].concat()
}

fn weighing(globals: &str, numbers: [f32; 2], reference: &str) -> Folder {
    let spec = SPEC.replace("sum", "weigh").replace("[0, 1, 2]", "[0, 1]");
    let constant = "[[arguments]]\nname = \"weights\"\nrole = \"constant\"\ndtype = \"f32\"\nfile = \"weights.npy\"\n";
    let folder = Folder::new(&format!("{spec}{constant}{reference}"), &[("weigh.cu", &weigh(globals))]);
    folder.put("weights.npy", two(numbers));
    folder
}

#[test]
fn constant_memory_is_filled_by_name_in_the_kernel_and_in_its_reference() {
    let _turn = turn();
    let cuda = Arc::new(standin::device());
    let folder = weighing("//# weights 8", [2.0, -0.5], "");
    let edition = tuned(&folder.spec(), &cuda);
    all_are(&edition, 0, "right");
    all_are(&edition, 1, "wrong_answer");

    // The same source with other weights has a module of its own; with 1 and 1 it is the plain sum.
    let by_sum = PLAIN.replace("\n[reference.launch]\ngrid = \"ceil(N / 32)\"\nblock = 32", "");
    let folder = weighing("//# weights 8", [1.0, 1.0], &by_sum);
    folder.put("plain.cu", plain("//# weights 8\n//@ weigh"));
    let edition = tuned(&folder.spec(), &cuda);
    all_are(&edition, 0, "right");
    all_are(&edition, 1, "right");
    assert_ne!(folder.spec().identity(), weighing("//# weights 8", [1.0, 2.0], &by_sum).spec_with_plain().identity());
}

impl Folder {
    fn spec_with_plain(&self) -> Arc<Spec> {
        self.put("plain.cu", plain("//# weights 8\n//@ weigh"));
        self.spec()
    }
}

#[test]
fn a_module_without_the_constant_does_not_build_and_says_which_is_missing() {
    let _turn = turn();
    let cuda = Arc::new(standin::device());
    let said = weighing("", [1.0, 1.0], "").refused(&cuda);
    assert!(said.contains("does not build: the module has no global 'weights'"), "{said}");
    let said = weighing("//# weights 4", [1.0, 1.0], "").refused(&cuda);
    assert!(said.contains("the global 'weights' holds 4 bytes: expected room for 8"), "{said}");
    let by_plain = weighing("//# weights 8", [1.0, 1.0], PLAIN);
    by_plain.put("plain.cu", plain("//@ add"));
    let said = by_plain.refused(&cuda);
    assert!(said.contains("plain.cu cannot be used") && said.contains("no global 'weights'"), "{said}");
}

#[test]
fn constant_memory_has_contents_that_stay_and_is_no_matter_of_c() {
    let refused = |folder: &Folder| folder.load().map(|_| ()).unwrap_err().to_string();
    let folder = weighing("", [1.0, 1.0], "[reference]\nsource = \"r.c\"\nentry = \"r\"\n");
    folder.put("r.c", "void r() {}");
    let said = refused(&folder);
    assert!(said.contains("C, which has no constant memory, and 'weights' lies there"), "{said}");
    let text = std::fs::read_to_string(folder.0.path().join("k.toml")).unwrap();
    folder.put("k.toml", text.replace("file = \"weights.npy\"", "shape = 2"));
    assert!(refused(&folder).contains("'weights' is constant and random: expected contents that stay"));
    let spec = "source = \"k.c\"\nentry = \"k\"\n[[arguments]]\nname = \"y\"\nrole = \"out\"\ndtype = \"f32\"\nshape = 4\n\
                [[arguments]]\nname = \"w\"\nrole = \"constant\"\nfill = \"range\"\ndtype = \"f32\"\nshape = 4\n";
    let said = refused(&Folder::new(spec, &[("k.c", "void k(float *y) {}")]));
    assert!(said.contains("k.toml:10: argument 'w' is constant memory, which C has not"), "{said}");
}

#[test]
fn everything_a_spec_says_is_part_of_its_identity() {
    let with = |from: &str, to: &str| {
        let text = format!("{SPEC}{PLAIN}");
        assert!(text.contains(from), "{from}");
        let folder = Folder::new(&text.replacen(from, to, 1), &[("sum.cu", SUM), ("plain.cu", &plain("//@ add"))]);
        folder.spec().identity().to_string()
    };
    let mut seen = vec![with("N = 5000", "N = 5000")];
    for (from, to) in [
        ("block = \"block_size_x\"", "block = \"block_size_x\"\nshared = 1024"),
        ("block = \"block_size_x\"", "block = \"block_size_x\"\nshared = 2048"),
        ("block = \"block_size_x\"", "block = \"block_size_x\"\ncluster = 2"),
        ("block = 32", "block = 64"),
        ("block = 32", "block = 32\nshared = 16"),
        ("ceil(N / 32)", "ceil(N / 16)"),
        ("entry = \"plain\"", "entry = \"plain\"\nflags = [\"-lineinfo\"]"),
        ("name = \"b\"", "name = \"b\"\nfill = \"zeros\""),
    ] {
        let identity = with(from, to);
        assert!(!seen.contains(&identity), "{to} changes nothing");
        seen.push(identity);
    }
}
