//! Spec files as users write them, from reading to the record, with the machine's own compiler.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use warplap::any::{AnyDevice, AnyTuner, Wanted};
use warplap::core::arg::{Arg, ScalarArg};
use warplap::core::array::Array;
use warplap::core::candidate::{Outcome, Trial};
use warplap::core::device::Device;
use warplap::core::progress::Silent;
use warplap::core::rejection::Rejection;
use warplap::core::store::Store;
use warplap::{Budget, Cpu, DType, Mode, Settings, Tuner};
use warplap_spec::{KernelProblem, Spec};

/// A folder with files in it.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = Folder(tempfile::tempdir().unwrap());
        files.iter().for_each(|(name, text)| folder.put(name, text.as_bytes()));
        folder
    }
    fn put(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
    fn refused(&self) -> String {
        Spec::load(&self.path("k.toml")).map(|_| ()).unwrap_err().to_string()
    }
}

/// y = a·x with planted faults, chosen by an axis.
const SCALE: &str = r#"
#include <stdlib.h>
#if KIND == 1
#error this setting is not for us
#endif
void scale(float *restrict y, const float *restrict x, int n, float a) {
#if KIND == 2
  n -= 1;
#endif
#if KIND == 3
  *(volatile int *)0 = 1;
#endif
#if KIND == 4
  if (n > 0) exit(0);
#endif
#if KIND == 5
  y[n + 4096] = 1;
#endif
  for (int i = 0; i < n; i++) y[i] = a * x[i];
}
"#;

const SPEC: &str = r#"
source = "scale.c"
entry = "scale"
[constants]
N = 1000
[axes]
KIND = [0, 1, 2, 3, 4, 5, 6]
[[arguments]]
name = "y"
role = "out"
dtype = "f32"
shape = "N"
[[arguments]]
name = "x"
dtype = "f32"
shape = ["N"]
[[arguments]]
name = "n"
dtype = "i32"
value = "N"
[[arguments]]
name = "a"
dtype = "f32"
value = 0.3
"#;

fn tuner(spec: &Arc<Spec>, seconds: f64) -> Box<dyn AnyTuner> {
    let device = AnyDevice::open(Wanted::CPU, None).unwrap();
    let budget = Budget { seconds, ..Budget::default() };
    spec.open(&device, Store::memory(), Settings { budget, yardsticks: true, ..Settings::default() }).unwrap()
}

#[test]
fn every_bad_config_is_a_rejection_with_its_reason_and_the_tuner_lives() {
    let folder = Folder::new(&[("k.toml", SPEC), ("scale.c", SCALE)]);
    let spec = Spec::load(&folder.path("k.toml")).unwrap();
    spec.ready().unwrap();
    let tuner = tuner(&spec, 120.0);
    let tuned = tuner.tune(&spec.problem(), &Silent).unwrap();
    let outcome = |kind: i64| {
        let result = |t: &&Trial| t.candidate.config.int("KIND") == Some(kind);
        tuned.edition.trials.iter().find(result).map(|t| t.outcome.clone()).unwrap()
    };
    let rejected = |kind: i64| match outcome(kind) {
        Outcome::Rejected(rejection) => rejection,
        Outcome::Measured(m) => panic!("{kind}: {m:?}"),
    };
    assert!(rejected(1).to_string().contains("scale.c:4"), "{}", rejected(1));
    assert!(matches!(rejected(1), Rejection::DoesNotBuild { .. }));
    assert!(matches!(rejected(2), Rejection::WrongAnswer { .. }), "{}", rejected(2));
    assert!(matches!(rejected(3), Rejection::Crashed { .. }), "{}", rejected(3));
    assert!(rejected(3).to_string().contains("segmentation fault"), "{}", rejected(3));
    assert!(matches!(rejected(5), Rejection::Crashed { .. }), "{}", rejected(5));
    assert!(rejected(4).to_string().contains("exit code 0"), "{}", rejected(4));
    let winner = tuned.edition.verdict.winner.config.int("KIND");
    assert!(winner == Some(0) || winner == Some(6), "{winner:?}");
    assert!(tuner.ensure(&spec.problem(), &Silent).unwrap().from_store);
}

#[test]
fn a_winner_is_called_in_the_callers_own_process_where_the_caller_says_so() {
    let folder = Folder::new(&[("k.toml", &SPEC.replace("[0, 1, 2, 3, 4, 5, 6]", "[0, 3, 6]")), ("scale.c", SCALE)]);
    let (spec, store) = (Spec::load(&folder.path("k.toml")).unwrap(), Store::memory());
    let device = AnyDevice::open(Wanted::CPU, None).unwrap();
    let budget = Budget { seconds: 30.0, ..Budget::default() };
    let settings = Settings { budget, ..Settings::default() };
    let tuned = spec.open(&device, store.clone(), settings).unwrap().tune(&spec.problem(), &Silent).unwrap();
    let cpu = Arc::new(Cpu::new());
    let here = Tuner::new(cpu.clone(), spec.on_cpu(), store, Settings { mode: Mode::Replay, ..Settings::default() });
    let problem = KernelProblem::new(&spec);
    let chosen = here.choose(&problem).unwrap();
    assert_eq!(chosen.candidate, tuned.edition.verdict.winner);
    let (x, y) = (cpu.upload(&Array::filled(DType::F32, 1000, 2.0)).unwrap(), Array::filled(DType::F32, 1000, 0.0));
    let mut y = cpu.upload(&y).unwrap();
    let mut args = [
        Arg::Write(cpu.view_mut(&mut y, 0..1000)),
        Arg::Read(cpu.view(&x, 0..1000)),
        Arg::Scalar(ScalarArg::Int(1000)),
        Arg::Scalar(ScalarArg::Real(0.3)),
    ];
    chosen.kernel.launch(&mut args, &()).unwrap();
    assert!((cpu.download(&y).unwrap().at(999) - 0.6).abs() < 1e-6);
}

#[test]
fn a_kernel_with_threads_of_its_own_is_timed_and_a_mode_that_loading_changed_is_undone() {
    let spec = SPEC.replace("[0, 1, 2, 3, 4, 5, 6]", "[0, 6]");
    let spec = spec.replace("entry =", "flags = [\"-fopenmp\", \"-ffast-math\"]\nentry =");
    let source = SCALE.replace("for (int i", "\n#pragma omp parallel for\nfor (int i");
    let folder = Folder::new(&[("k.toml", &spec), ("scale.c", &source)]);
    let spec = Spec::load(&folder.path("k.toml")).unwrap();
    let tuned = tuner(&spec, 30.0).tune(&spec.problem(), &Silent).unwrap();
    for trial in &tuned.edition.trials {
        let right = matches!(trial.outcome, Outcome::Measured(_) | Outcome::Rejected(Rejection::Outpaced { .. }));
        assert!(right, "{:?}", trial.outcome);
    }
}

#[test]
fn an_edited_kernel_is_raced_again() {
    let plain = SCALE.replace("KIND == 4", "0").replace("KIND == 3", "0").replace("KIND == 5", "0");
    let folder = Folder::new(&[("k.toml", SPEC), ("scale.c", &plain)]);
    let before = Spec::load(&folder.path("k.toml")).unwrap();
    folder.put("scale.c", plain.replace("a * x[i]", "x[i] * a").as_bytes());
    let after = Spec::load(&folder.path("k.toml")).unwrap();
    assert_ne!(before.identity(), after.identity());
    assert_eq!(after.identity(), Spec::load(&folder.path("k.toml")).unwrap().identity());
}

#[test]
fn whole_numbers_are_right_when_they_are_equal_and_holes_among_them_show() {
    let spec = "source = \"k.c\"\nentry = \"count\"\n[constants]\nN = 300\n[axes]\nKIND = [0, 1, 2, 3]\n\
                [[arguments]]\nname = \"y\"\nrole = \"out\"\ndtype = \"i32\"\nshape = \"N\"\n";
    // The last element is 0: who leaves it out is as wrong as who gets one wrong.
    let body = "void count(int *y) {\n for (int i = 0; i < N - (KIND == 2); i++) y[i] = i < N - 1 ? i + (KIND == 1 && i == 7) : 0;\n}";
    let folder = Folder::new(&[("k.toml", spec), ("k.c", body)]);
    let spec = Spec::load(&folder.path("k.toml")).unwrap();
    spec.ready().unwrap();
    let tuned = tuner(&spec, 60.0).tune(&spec.problem(), &Silent).unwrap();
    for trial in &tuned.edition.trials {
        let kind = trial.candidate.config.int("KIND").unwrap();
        let wrong = matches!(trial.outcome, Outcome::Rejected(Rejection::WrongAnswer { .. }));
        assert_eq!(wrong, kind == 1 || kind == 2, "{kind}: {:?}", trial.outcome);
    }
}

#[test]
fn several_outputs_a_reference_and_arguments_that_are_both_are_proved() {
    let spec = r#"
source = "k.c"
entry = "both"
[constants]
N = 77
[axes]
LEAK = [0, 1]
[[arguments]]
name = "sum"
role = "inout"
dtype = "f64"
shape = "N"
[[arguments]]
name = "x"
dtype = "f64"
shape = "N"
fill = "range"
[[arguments]]
name = "twice"
role = "out"
dtype = "f64"
shape = "N"
[reference]
source = "r.c"
entry = "right"
"#;
    let body = "for (int i = 0; i < N; i++) { sum[i] += x[i]; twice[i] = 2 * x[i]; }";
    let head = |name: &str| format!("void {name}(double *sum, const double *x, double *twice) {{ {body} ");
    let folder = Folder::new(&[
        ("k.toml", spec),
        ("k.c", &(head("both") + "\n#if LEAK\n sum[N + 2] = 1;\n#endif\n}")),
        ("r.c", &(head("right") + "}")),
    ]);
    let spec = Spec::load(&folder.path("k.toml")).unwrap();
    spec.ready().unwrap();
    let tuned = tuner(&spec, 60.0).tune(&spec.problem(), &Silent).unwrap();
    let leak = tuned.edition.trials.iter().find(|t| t.candidate.config.int("LEAK") == Some(1)).unwrap();
    assert!(matches!(leak.outcome, Outcome::Rejected(Rejection::WrongAnswer { .. })), "{leak:?}");
    assert!(tuned.edition.trials.iter().any(|t| t.candidate.variant == "reference"), "the reference is raced too");
}

#[test]
fn outputs_of_different_types_are_each_held_to_their_own_answer() {
    let spec = r#"
source = "k.c"
entry = "mixed"
[constants]
N = 77
[axes]
KIND = [0, 1, 2, 3, 4, 5]
[[arguments]]
name = "sign"
role = "out"
dtype = "i32"
shape = "N"
[[arguments]]
name = "x"
dtype = "f32"
shape = "N"
[[arguments]]
name = "sum"
role = "inout"
dtype = "f64"
shape = "N"
[[arguments]]
name = "count"
role = "out"
dtype = "i32"
shape = 1
[[arguments]]
name = "twice"
role = "out"
dtype = "f32"
shape = "N"
"#;
    // What is within the bound of one type is not within that of another.
    let kernel = "void mixed(int *sign, const float *x, double *sum, int *count, float *twice) {\n\
        for (int i = 0; i < N; i++) {\n\
        sign[i] = (x[i] < 0) + (KIND == 1 && i == 5);\n\
        sum[i] += x[i] + (KIND == 2 ? 1e-7 : 0);\n\
        twice[i] = 2 * x[i] + (KIND == 3 ? 1e-7 : KIND == 4 ? 1e-3 : 0);\n}\n\
        if (KIND != 5) count[0] = N;\n}";
    let folder = Folder::new(&[("k.toml", spec), ("k.c", kernel)]);
    let spec = Spec::load(&folder.path("k.toml")).unwrap();
    spec.ready().unwrap();
    let tuned = tuner(&spec, 60.0).tune(&spec.problem(), &Silent).unwrap();
    for trial in &tuned.edition.trials {
        let kind = trial.candidate.config.int("KIND").unwrap();
        let wrong = matches!(trial.outcome, Outcome::Rejected(Rejection::WrongAnswer { .. }));
        assert_eq!(wrong, kind != 0 && kind != 3, "{kind}: {:?}", trial.outcome);
    }
    assert_eq!(tuned.edition.trials.len(), 6);
}

#[test]
fn bad_specs_name_the_file_and_the_line() {
    let folder = Folder::new(&[("scale.c", SCALE), ("empty.npy", "no")]);
    for (from, to, line, words) in [
        ("KIND = [0, 1, 2, 3, 4, 5, 6]", "KIND = []", 7, "has no values"),
        ("KIND = [0, 1, 2, 3, 4, 5, 6]", "KIND = 3", 7, "expected a list of values"),
        ("entry = \"scale\"", "entry = \"scale\"\nrules = [\"KIMD > 1\"]", 4, "no axis 'KIMD'"),
        ("entry = \"scale\"", "entry = \"scale\"\nrules = [\"KIND >\"]", 4, "^"),
        ("entry = \"scale\"", "entry = \"scale\"\nrules = [\"KIND > 99\"]", 4, "never true"),
        ("entry = \"scale\"", "entry = \"scale\"\nrules = [\"KIND > 3\", \"KIND < N - 998\"]", 4, "no legal config"),
        ("entry = \"scale\"", "entry = \"scale\"\nentri = 1", 4, "unknown field `entri`"),
        ("entry = \"scale\"", "entry = \"sc ale\"", 3, "name of a function"),
        ("source = \"scale.c\"", "source = \"scales.c\"", 2, "scales.c"),
        ("role = \"out\"", "role = \"output\"", 10, "in, out, inout, scalar or constant"),
        ("dtype = \"f32\"\nshape = \"N\"", "dtype = \"f8\"\nshape = \"N\"", 11, "one of f64"),
        ("shape = \"N\"", "shape = \"M\"", 12, "'M'"),
        ("shape = \"N\"", "shape = \"N - 1000\"", 12, "from 1 to"),
        ("value = 0.3", "value = 0.3\n[reference]\nfile = \"empty.npy\"", 26, "numpy.save"),
        (
            "value = 0.3",
            "value = 0.3\n[reference]\nsource = \"scale.c\"",
            25,
            "expected source (C or CUDA) or python, and entry",
        ),
        ("value = 0.3", "value = 0.3\n[launch]\ngrid = 1\nblock = 1", 25, "C kernel"),
        ("value = 0.3", "value = 0.3\n[metric]\nflops = \"2 * n\"", 26, "'n'"),
        ("value = 0.3", "value = 0.3\n[metric]\nobjective = \"enery\"", 26, "expected time, gflops, energy"),
        ("value = 0.3", "value = 0.3\n[metric]\nobjective = \"2 * KIND\"", 26, "reads nothing of a launch"),
        ("value = 0.3", "value = 0.3\n[metric]\nobjective = \"gflops_per_watt\"", 26, "expected metric.flops above 0"),
        ("value = 0.3", "value = 0.3\n[metric]\nobjective = \"time\"\ngoal = \"highest\"", 27, "the lowest time wins"),
        ("value = 0.3", "value = 0.3\n[metric]\ngoal = \"best\"", 26, "expected lowest or highest"),
    ] {
        let text = SPEC.replacen(from, to, 1);
        assert_ne!(text, SPEC, "{from}");
        folder.put("k.toml", text.as_bytes());
        let said = folder.refused();
        assert!(said.contains(&format!("k.toml:{line}:")) && said.contains(words), "{to}: {said}");
    }
}

#[test]
fn an_expression_may_be_raced_for_and_energy_is_refused_where_nothing_tells_it() {
    let folder = Folder::new(&[("scale.c", SCALE)]);
    let spec = |objective: &str| {
        let own = format!("KIND = [0]\nPRICE = [1000, 1]\n[metric]\n{objective}");
        folder.put("k.toml", SPEC.replacen("KIND = [0, 1, 2, 3, 4, 5, 6]", &own, 1).as_bytes());
        Spec::load(&folder.path("k.toml")).unwrap()
    };
    for (objective, price) in
        [("objective = \"time * PRICE\"", 1), ("objective = \"time * PRICE\"\ngoal = \"highest\"", 1000)]
    {
        let spec = spec(objective);
        let tuned = tuner(&spec, 60.0).tune(&spec.problem(), &Silent).unwrap();
        assert_eq!(tuned.edition.verdict.winner.config.int("PRICE"), Some(price), "{objective}");
        assert!(tuned.key.text.contains("objective="), "{}", tuned.key.text);
        // Times are times whatever was raced for.
        assert!(tuned.edition.verdict.median_us < 1e4);
    }
    let cpu = AnyDevice::open(Wanted::CPU, None).unwrap();
    let said = spec("objective = \"energy_delay\"").ready_on(&cpu).unwrap_err().to_string();
    assert!(said.contains("k.toml:10: metric.objective 'energy_delay' needs energy"), "{said}");
}

/// A file as numpy.save writes it.
fn npy(shape: &str, values: &[f32]) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
    let content: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &content].concat()
}

#[test]
fn every_output_has_its_answer_file() {
    let spec = "source = \"k.c\"\nentry = \"both\"\n[axes]\nWRONG = [0, 1]\n\
        [[arguments]]\nname = \"twice\"\nrole = \"out\"\ndtype = \"f32\"\nshape = 3\n\
        [[arguments]]\nname = \"sum\"\nrole = \"inout\"\ndtype = \"f32\"\nshape = 3\nfill = \"range\"\n\
        [reference]\nfile = [\"twice.npy\", \"sum.npy\"]\n";
    let kernel = "void both(float *twice, float *sum) {\n\
        for (int i = 0; i < 3; i++) { twice[i] = 2 * sum[i]; sum[i] += 1 + WRONG; }\n}";
    let folder = Folder::new(&[("k.toml", spec), ("k.c", kernel)]);
    folder.put("twice.npy", &npy("(3,)", &[0.0, 2.0, 4.0]));
    folder.put("sum.npy", &npy("(3,)", &[1.0, 2.0, 3.0]));
    let loaded = Spec::load(&folder.path("k.toml")).unwrap();
    loaded.ready().unwrap();
    let tuned = tuner(&loaded, 30.0).tune(&loaded.problem(), &Silent).unwrap();
    assert_eq!(tuned.edition.verdict.winner.config.int("WRONG"), Some(0));
    let wrong = tuned.edition.trials.iter().find(|t| t.candidate.config.int("WRONG") == Some(1)).unwrap();
    assert!(matches!(wrong.outcome, Outcome::Rejected(Rejection::WrongAnswer { .. })), "{wrong:?}");
    folder.put("sum.npy", &npy("(3,)", &[1.0, 2.0, 7.0]));
    assert_ne!(Spec::load(&folder.path("k.toml")).unwrap().identity(), loaded.identity());
    for (files, said) in [("\"sum.npy\"", "1 answer files and 2 outputs"), ("7", "expected the name of a file")] {
        folder.put("k.toml", spec.replace("[\"twice.npy\", \"sum.npy\"]", files).as_bytes());
        assert!(folder.refused().contains(said), "{}", folder.refused());
    }
}

#[test]
fn an_answer_of_another_shape_is_refused_and_one_that_fits_is_used() {
    let spec = SPEC.replace("[0, 1, 2, 3, 4, 5, 6]", "[0, 6]").replace("N = 1000", "N = 3");
    let spec = spec.replace("shape = [\"N\"]", "shape = [\"N\"]\nfill = \"range\"") + "[reference]\nfile = \"y.npy\"\n";
    let folder = Folder::new(&[("scale.c", SCALE), ("k.toml", &spec)]);
    folder.put("y.npy", &npy("(4,)", &[0.0, 0.3, 0.6, 0.9]));
    assert!(folder.refused().contains("the shape [4]: expected [3]"), "{}", folder.refused());
    folder.put("y.npy", &npy("(3,)", &[0.0, 0.3, 0.6]));
    let good = Spec::load(&folder.path("k.toml")).unwrap();
    good.ready().unwrap();
    assert!(tuner(&good, 30.0).tune(&good.problem(), &Silent).is_ok());
    folder.put("k.toml", spec.replace("fill = \"range\"", "").as_bytes());
    assert!(folder.refused().contains("'x' is random"), "{}", folder.refused());
}

/// A Python with NumPy: the machine's own where it has it, else one that is made once under `target/`.
fn python_with_numpy() -> PathBuf {
    let has = |python: &Path| {
        let asked = Command::new(python).args(["-c", "import numpy"]).stderr(Stdio::null()).status();
        asked.is_ok_and(|s| s.success())
    };
    let room = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/numpy");
    let result = [PathBuf::from("python3"), room.join("bin/python")].into_iter().find(|p| has(p));
    result.unwrap_or_else(|| {
        let run = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
        run(Command::new("python3").args(["-m", "venv"]).arg(&room));
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "numpy"];
        run(Command::new(room.join("bin/python")).args(install));
        room.join("bin/python")
    })
}

#[test]
fn a_reference_in_python_gives_the_right_answer_or_says_what_is_wrong() {
    // SAFETY: no other test reads it; what reads the environment goes through std.
    unsafe { std::env::set_var("WARPLAP_PYTHON", python_with_numpy()) };
    let spec =
        SPEC.replace("[0, 1, 2, 3, 4, 5, 6]", "[0, 2, 6]") + "[reference]\npython = \"r.py\"\nentry = \"right\"\n";
    let folder = Folder::new(&[("k.toml", &spec), ("scale.c", SCALE)]);
    let mut said = Vec::new();
    for body in ["x[:-1]", "(x, x)", "x * missing"] {
        folder.put("r.py", format!("def right(x, n, a):\n    return {body}\n").as_bytes());
        said.push(Spec::load(&folder.path("k.toml")).unwrap().ready().unwrap_err().to_string());
    }
    assert!(said[0].contains("'y': it has the shape [999]: expected [1000]"), "{}", said[0]);
    assert!(said[1].contains("returned 2 outputs: expected 1"), "{}", said[1]);
    assert!(said[2].contains("r.py: NameError: name 'missing'"), "{}", said[2]);

    folder.put(
        "r.py",
        b"import numpy\ndef right(x, n, a):\n    assert x.shape == (n,)\n    return numpy.float32(a) * x\n",
    );
    let spec = Spec::load(&folder.path("k.toml")).unwrap();
    spec.ready().unwrap();
    let tuned = tuner(&spec, 30.0).tune(&spec.problem(), &Silent).unwrap();
    let wrong = tuned.edition.trials.iter().find(|t| t.candidate.config.int("KIND") == Some(2)).unwrap();
    assert!(matches!(wrong.outcome, Outcome::Rejected(Rejection::WrongAnswer { .. })), "{wrong:?}");

    // Of several outputs the function returns a tuple, each of its own type.
    let second = "[[arguments]]\nname = \"whole\"\nrole = \"out\"\ndtype = \"i32\"\nshape = \"N\"\n";
    let two = SPEC.replace("[0, 1, 2, 3, 4, 5, 6]", "[0, 1]") + second;
    folder.put("k.toml", (two + "[reference]\npython = \"r.py\"\nentry = \"right\"\n").as_bytes());
    folder.put(
        "scale.c",
        b"void scale(float *y, const float *x, int n, float a, int *whole) {\n for (int i = 0; i < n; i++) y[i] = a * x[i], \
          whole[i] = i - KIND;\n}",
    );
    folder.put(
        "r.py",
        b"import numpy\ndef right(x, n, a):\n    return numpy.float32(a) * x, numpy.arange(n, dtype='i4')\n",
    );
    let spec = Spec::load(&folder.path("k.toml")).unwrap();
    spec.ready().unwrap();
    let tuned = tuner(&spec, 30.0).tune(&spec.problem(), &Silent).unwrap();
    assert_eq!(tuned.edition.verdict.winner.config.int("KIND"), Some(0));
    let wrong = tuned.edition.trials.iter().find(|t| t.candidate.config.int("KIND") == Some(1)).unwrap();
    assert!(matches!(wrong.outcome, Outcome::Rejected(Rejection::WrongAnswer { .. })), "{wrong:?}");

    // Constant memory is no parameter of the kernel, and known to the function by name.
    let constant =
        "[[arguments]]\nname = \"w\"\nrole = \"constant\"\ndtype = \"f32\"\nshape = [2, 2]\nfill = \"range\"\n";
    let launch = "[launch]\ngrid = 1\nblock = 1\n[reference]\npython = \"r.py\"\nentry = \"right\"\n";
    folder.put("k.toml", (SPEC.replace("scale.c", "scale.cu") + constant + launch).as_bytes());
    folder.put(
        "scale.cu",
        b"__constant__ float w[4];\n__global__ void scale(float *y, const float *x, int n, float a) {}",
    );
    folder.put("r.py", b"def right(x, n, a, w):\n    assert w.tolist() == [[0, 1], [2, 3]]\n    return x\n");
    Spec::load(&folder.path("k.toml")).unwrap().ready().unwrap();
}

#[test]
fn a_kernel_that_never_compiles_is_refused_before_anything_is_raced() {
    let folder = Folder::new(&[("k.toml", SPEC), ("scale.c", "void scale(float *y) { return y }\n")]);
    let spec = Spec::load(&folder.path("k.toml")).unwrap();
    let said = spec.ready().unwrap_err().to_string();
    assert!(said.contains("scale.c:1") && said.contains("configs compiles"), "{said}");
}

#[test]
fn the_example_is_read_and_has_two_hundred_configs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/conv2d/conv2d.toml");
    let spec = Spec::load(&path).unwrap();
    assert_eq!((spec.space.count(), spec.arguments.len(), spec.entry()), (200, 3, "conv2d"));
    spec.ready().unwrap();
}

#[test]
fn a_t1_file_of_another_tuner_is_read() {
    let t1 = r#"{
      "General": {"BenchmarkName": "scaling"},
      "ConfigurationSpace": {
        "TuningParameters": [{"Name": "KIND", "Type": "int", "Values": "[0, 6]", "Default": 0},
                             {"Name": "B", "Type": "int", "Values": "list(range(1, 4))", "Default": 1}],
        "Conditions": [{"Expression": "KIND == 0 or B > 1", "Parameters": ["KIND", "B"]}]},
      "KernelSpecification": {"Language": "C", "KernelName": "scale", "KernelFile": "scale.c", "ProblemSize": [500],
        "Arguments": [
          {"Name": "y", "Type": "float", "MemoryType": "Vector", "AccessType": "WriteOnly", "Size": "ProblemSize[0] * 2"},
          {"Name": "x", "Type": "float", "MemoryType": "Vector", "AccessType": "ReadOnly", "Size": 1000, "FillType": "Random"},
          {"Name": "n", "Type": "int32", "MemoryType": "Scalar", "FillValue": 1000},
          {"Name": "a", "Type": "float", "MemoryType": "Scalar", "FillValue": 0.5}]}}"#;
    let folder = Folder::new(&[("k.json", t1), ("scale.c", SCALE)]);
    let spec = Spec::load(&folder.path("k.json")).unwrap();
    assert_eq!((spec.name.as_str(), spec.space.count(), spec.arguments[0].len()), ("scaling", 5, 1000));
    spec.ready().unwrap();
    let refused = |from: &str, to: &str| {
        folder.put("k.json", t1.replacen(from, to, 1).as_bytes());
        Spec::load(&folder.path("k.json")).map(|_| ()).unwrap_err().to_string()
    };
    let said = refused("KIND == 0 or B > 1", "KIND == 0 or C > 1");
    assert!(said.contains("k.json:6:") && said.contains("no axis 'C'"), "{said}");
    let said = refused("\"[0, 6]\"", "\"[]\"");
    assert!(said.contains("k.json:4:") && said.contains("has no values"), "{said}");
    let answer = "\"Reference\": {\"file\": \"no.npy\"},\n\"General\"";
    let said = refused("\"General\"", answer);
    assert!(said.contains("k.json:2:") && said.contains("no.npy"), "{said}");
    // Parts of our own: what is raced for, and what is right.
    let energy = "\"Metric\": {\"flops\": 1000, \"objective\": \"gflops_per_watt\"},\n\"General\"";
    folder.put("k.json", t1.replacen("\"General\"", energy, 1).as_bytes());
    let spec = Spec::load(&folder.path("k.json")).unwrap();
    assert!(spec.objective.needs_energy() && spec.work.flops == 1000.0);
    let said = refused("\"General\"", &energy.replace("gflops_per_watt", "gflop"));
    assert!(said.contains("k.json:2:") && said.contains("'gflop'"), "{said}");
    let launched = "\"Reference\": {\"source\": \"p.cu\", \"entry\": \"p\", \"launch\": {\"grid\": [4]}},\n\"General\"";
    folder.put("p.cu", b"");
    let in_cuda = t1.replace("\"C\"", "\"CUDA\"");
    folder.put("k.json", in_cuda.replacen("\"General\"", launched, 1).as_bytes());
    let said = Spec::load(&folder.path("k.json")).unwrap_err().to_string();
    assert!(said.contains("expected one to three sizes"), "{said}");
    folder.put("k.json", in_cuda.replacen("\"General\"", &launched.replace("[4]", "4, \"block\": 64"), 1).as_bytes());
    let spec = Spec::load(&folder.path("k.json")).unwrap();
    spec.ready().unwrap();
    folder.put("k.json", t1.replace("\"KernelName\"", "\"KernelNom\"").as_bytes());
    let said = Spec::load(&folder.path("k.json")).unwrap_err().to_string();
    assert!(said.contains("KernelName is missing"), "{said}");
}

#[test]
fn configs_may_be_listed_one_by_one_and_another_list_is_another_spec() {
    let spec =
        SPEC.replace("[constants]", "configs = \"configs.csv\"\n[constants]").replace("[axes]", "[axes]\nU = [1, 2]");
    let folder = Folder::new(&[("k.toml", &spec), ("scale.c", SCALE), ("configs.csv", "U,KIND\n2,0\n1,6\n2,6\n")]);
    let loaded = Spec::load(&folder.path("k.toml")).unwrap();
    let configs: Vec<String> = loaded.space.configs().iter().map(ToString::to_string).collect();
    assert_eq!(configs.len(), 3, "{configs:?}");
    assert!(loaded.space.default_config().is_some_and(|c| loaded.space.contains(&c)));
    loaded.ready().unwrap();
    folder.put("configs.csv", b"U,KIND\n2,0\n1,6\n");
    assert_ne!(Spec::load(&folder.path("k.toml")).unwrap().identity(), loaded.identity());
    for (table, said) in [("U\n1\n", "expected U,KIND"), ("U,KIND\n3,0\n", "line 2 has '3' for 'U'")] {
        folder.put("configs.csv", table.as_bytes());
        let result = folder.refused();
        assert!(result.contains("k.toml:4") && result.contains(said), "{result}");
    }
    folder.put("k.toml", spec.replace("configs =", "rules = [\"U == 1\"]\nconfigs =").as_bytes());
    assert!(folder.refused().contains("expected one of them"), "{}", folder.refused());
}
