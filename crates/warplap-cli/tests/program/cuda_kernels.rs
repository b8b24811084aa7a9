//! A user's CUDA kernel from the command line, on the stand-in for the driver and the compiler.

use std::path::PathBuf;

use super::{Corner, Ended, program};

/// c = a + b for a real device; the other lines say to the stand-in what happens by config.
const SUM: &str = "//? KIND=1 fault 700\n//? KIND=2 subtract\n//@ add\n\
    extern \"C\" __global__ void sum(const float* a, const float* b, float* c, int n) {\n\
    int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) c[i] = a[i] + b[i];\n}\n";

const SPEC: &str = "source = \"sum.cu\"\nentry = \"sum\"\nbudget = 60\n[constants]\nN = 2000\n[axes]\nKIND = [0, 1, 2]\n\
    THREADS = [64, 128]\n[launch]\ngrid = \"ceil(N / THREADS)\"\nblock = \"THREADS\"\n\
    [[arguments]]\nname = \"a\"\ndtype = \"f32\"\nshape = \"N\"\n[[arguments]]\nname = \"b\"\ndtype = \"f32\"\nshape = \"N\"\n\
    [[arguments]]\nname = \"c\"\nrole = \"out\"\ndtype = \"f32\"\nshape = \"N\"\n\
    [[arguments]]\nname = \"n\"\ndtype = \"i32\"\nvalue = \"N\"\n[reference]\nsource = \"sum.c\"\nentry = \"right\"\n\
    [metric]\nenergy = true\n";

const RIGHT: &str = "void right(const float *a, const float *b, float *c, int n) {\n\
    for (int i = 0; i < n; i++) c[i] = a[i] + b[i];\n}\n";

fn library() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    folder.join(format!("{}warplap_standin{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX))
}

/// Runs the program with the stand-in as driver and compiler.
fn on_stand_in(place: &Corner, args: &[&str]) -> Ended {
    let mut program = program(&place.store());
    program.env("WARPLAP_CUDA_DRIVER", library()).env("WARPLAP_NVRTC", library());
    program.env("WARPLAP_NVML", "/nonexistent/libnvidia-ml.so");
    Ended::of(program.args(args).output().unwrap())
}

/// As [`on_stand_in`], with its energy counter.
fn with_energy(place: &Corner, args: &[&str]) -> Ended {
    let mut program = program(&place.store());
    program.env("WARPLAP_CUDA_DRIVER", library()).env("WARPLAP_NVRTC", library()).env("WARPLAP_NVML", library());
    Ended::of(program.args(args).output().unwrap())
}

/// A place with the kernel, its reference and a spec; the spec's path.
fn put_all(place: &Corner, spec: &str, kernel: &str) -> String {
    let put = |name: &str, text: &str| std::fs::write(place.dir.path().join(name), text).unwrap();
    put("k.toml", spec);
    put("sum.cu", kernel);
    put("sum.c", RIGHT);
    place.dir.path().join("k.toml").to_str().unwrap().to_string()
}

#[test]
fn a_race_for_energy_is_won_by_who_draws_least_and_is_kept_beside_the_race_for_time() {
    let place = Corner::new();
    // The third config draws least; all of them take as long.
    let kernel = SUM.replace("fault 700", "add 9").replace("subtract", "add 2").replace("//@ add", "//@ add 5");
    let spec = SPEC.replace("THREADS = [64, 128]", "THREADS = [64]");
    let path = put_all(&place, &spec.replace("energy = true", "objective = \"energy\""), &kernel);
    let tuned = with_energy(&place, &["tune", &path, "--json"]);
    assert_eq!(tuned.code, 0, "{}", tuned.stderr);
    let line = tuned.lines().remove(0);
    assert_eq!(line["winner"]["config"]["KIND"], 2, "{line}");
    let near = |value: &serde_json::Value, right: f64| (value.as_f64().unwrap() / right - 1.0).abs() < 0.1;
    assert_eq!(
        (line["objective"]["name"].as_str(), line["objective"]["goal"].as_str()),
        (Some("energy"), Some("lowest"))
    );
    assert!(near(&line["objective"]["value"], 2e-3), "{line}");
    for trial in line["trials"].as_array().unwrap() {
        let right = [5e-3, 9e-3, 2e-3][trial["config"]["KIND"].as_u64().unwrap() as usize];
        assert!(near(&trial["joules"], right) && trial["median_us"].as_f64().unwrap() < 1e5, "{trial}");
    }
    let said = with_energy(&place, &["explain", &path]).stdout;
    assert!(
        said.contains("lowest energy of a launch: 2.0") || said.contains("lowest energy of a launch: 1.9"),
        "{said}"
    );
    let t4 = with_energy(&place, &["export", &path, "--t4"]).stdout;
    let t4: serde_json::Value = serde_json::from_str(&t4).unwrap();
    assert_eq!(t4["results"][0]["objectives"][0], "energy");
    assert_eq!(t4["results"][0]["measurements"][1]["unit"], "J");

    // Asked for time, it is another question with an answer of its own.
    put_all(&place, &spec, &kernel);
    let timed = with_energy(&place, &["tune", &path, "--json"]).lines().remove(0);
    assert_eq!((timed["how"].as_str(), timed["objective"].is_null()), (Some("raced"), true), "{timed}");
    assert!(timed["joules"].as_f64().is_some(), "{timed}");
    put_all(&place, &spec.replace("energy = true", "objective = \"energy\""), &kernel);
    let again = with_energy(&place, &["tune", &path, "--mode", "replay", "--json"]).lines().remove(0);
    assert_eq!(again["how"], "stored", "{again}");
}

#[test]
fn the_highest_of_an_expression_wins_and_without_a_counter_energy_is_bad_input() {
    let place = Corner::new();
    let kernel = SUM.replace("fault 700", "add 9").replace("subtract", "add 2").replace("//@ add", "//@ add 5");
    let own = "objective = \"energy / (KIND + 1)\"\ngoal = \"highest\"";
    let spec = SPEC.replace("energy = true", own).replace("THREADS = [64, 128]", "THREADS = [64]");
    let path = put_all(&place, &spec, &kernel);
    let refused = on_stand_in(&place, &["tune", &path]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    let line = spec.lines().position(|l| l.starts_with("objective")).unwrap() + 1;
    let said = format!("k.toml:{line}: metric.objective 'energy / (KIND + 1)' needs energy");
    assert!(
        refused.stderr.contains(&said) && refused.stderr.contains("expected a GPU whose NVML"),
        "{}",
        refused.stderr
    );

    let tuned = with_energy(&place, &["tune", &path, "--json"]);
    // 5, 9 / 2 and 2 / 3 millijoules.
    let line = tuned.lines().remove(0);
    assert_eq!(
        (line["winner"]["config"]["KIND"].as_u64(), line["objective"]["goal"].as_str()),
        (Some(0), Some("highest"))
    );
}

#[test]
fn a_cuda_spec_is_tuned_in_a_worker_and_one_that_never_compiles_is_bad_input() {
    let place = Corner::new();
    let path = put_all(&place, SPEC, SUM);
    let path = path.as_str();
    let tuned = on_stand_in(&place, &["tune", path, "--json"]);
    assert_eq!(tuned.code, 0, "{}", tuned.stderr);
    let line = tuned.lines().remove(0);
    assert!(line["device"].as_str().unwrap().starts_with("stand-in") && line["joules"].is_null(), "{line}");
    for trial in line["trials"].as_array().unwrap() {
        let expected = ["", "crashed", "wrong_answer"][trial["config"]["KIND"].as_u64().unwrap() as usize];
        let word = trial["rejection"].as_str().unwrap_or_default();
        assert!(word == expected || (expected.is_empty() && word == "outpaced"), "{trial}");
    }
    assert_eq!(line["trials"].as_array().unwrap().len(), 6);

    put_all(&place, SPEC, "//! does not compile\n");
    let refused = on_stand_in(&place, &["tune", path]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("sum.cu: none of") && refused.stderr.contains("it says so itself"),
        "{}",
        refused.stderr
    );
}

#[test]
fn without_a_reference_the_default_config_is_right_or_the_spec_is_refused_with_the_reason() {
    let place = Corner::new();
    let start = SPEC.find("[reference]").unwrap();
    let spec = format!("{}[metric]\nenergy = true\n", &SPEC[..start]);
    let path = put_all(&place, &spec, SUM);
    let tuned = on_stand_in(&place, &["tune", &path, "--json"]);
    assert_eq!(tuned.code, 0, "{}", tuned.stderr);
    for trial in tuned.lines().remove(0)["trials"].as_array().unwrap() {
        let expected = ["", "crashed", "wrong_answer"][trial["config"]["KIND"].as_u64().unwrap() as usize];
        let word = trial["rejection"].as_str().unwrap_or_default();
        assert!(word == expected || (expected.is_empty() && word == "outpaced"), "{trial}");
    }
    put_all(&place, &spec.replace("[0, 1, 2]", "[1, 0]"), SUM);
    for command in ["tune", "bench"] {
        let refused = on_stand_in(&place, &[command, &path, "--device", "cuda"]);
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        let said = &refused.stderr;
        let parts =
            ["k.toml: there is no [reference]", "(KIND=1,THREADS=64)", "crashed", "or a [reference] that states"];
        assert!(parts.iter().all(|part| said.contains(part)), "{command}: {said}");
    }
}

#[test]
fn a_fresh_replica_with_signed_artifacts_compiles_none_of_the_kernels_that_came() {
    let (there, here, bare) = (Corner::new(), Corner::new(), Corner::new());
    let file = |name: &str| there.dir.path().join(name).to_str().unwrap().to_string();
    let path = put_all(&there, &SPEC.replace("KIND = [0, 1, 2]", "KIND = [0]"), SUM);
    let counted = |place: &Corner, args: &[&str], into: &str| {
        let mut program = program(&place.store());
        program.env("WARPLAP_CUDA_DRIVER", library()).env("WARPLAP_NVRTC", library());
        program.env("WARPLAP_NVML", "/nonexistent/libnvidia-ml.so").env("WARPLAP_STANDIN_COMPILED", file(into));
        let ended = Ended::of(program.args(args).output().unwrap());
        (ended, std::fs::read(file(into)).map_or(0, |bytes| bytes.len()))
    };
    let tune = ["tune", &path, "--json"];
    let (tuned, compiled) = counted(&there, &tune, "first");
    assert!(tuned.code == 0 && compiled >= 1, "{compiled}: {}", tuned.stderr);
    let key = there.run(&["store", "keygen", &file("key")]).stdout.trim().to_string();
    let export = ["store", "export", &file("b"), "--sign", &file("key"), "--artifacts", "--json"];
    let exported = there.run(&export).lines().remove(0);
    assert!(exported["artifacts"].as_u64() >= Some(1), "{exported}");

    // Nobody is trusted: the records are taken, the code is not, and kernels are compiled again.
    let unsigned = bare.run(&["store", "import", &file("b"), "--unsigned"]);
    assert!(unsigned.code == 0 && unsigned.stderr.contains("left out"), "{}", unsigned.stderr);
    let (answered, without) = counted(&bare, &tune, "bare");
    assert!(answered.code == 0 && without >= 1, "{without}: {}", answered.stderr);

    assert_eq!(here.run(&["store", "trust", "add", &key]).code, 0);
    assert_eq!(here.run(&["store", "import", &file("b")]).code, 0);
    let (answered, compiled) = counted(&here, &tune, "here");
    let line = answered.lines().remove(0);
    // On a busy machine what came was capped: then the race goes on, with the kernels that came.
    let goes_on = line["note"].as_str().is_some_and(|note| note.contains("went on"));
    assert!(goes_on || line["how"].as_str() == Some("stored"), "{line}{}", answered.stderr);
    // What a proof itself needs (drawing, comparing) is compiled on each machine; the winner is not.
    assert!(compiled < without, "{compiled} compilations, and {without} without the artifacts");
}
