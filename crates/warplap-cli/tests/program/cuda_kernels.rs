//! A user's CUDA kernel from the command line, on the stand-in for the driver and the compiler.

use std::path::PathBuf;

use super::{Ended, Place, program};

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
fn on_stand_in(place: &Place, args: &[&str]) -> Ended {
    let mut program = program(&place.store());
    program.env("WARPLAP_CUDA_DRIVER", library()).env("WARPLAP_NVRTC", library());
    Ended::of(program.args(args).output().unwrap())
}

#[test]
fn a_cuda_spec_is_tuned_in_a_worker_and_one_that_never_compiles_is_bad_input() {
    let place = Place::new();
    let put = |name: &str, text: &str| std::fs::write(place.dir.path().join(name), text).unwrap();
    put("k.toml", SPEC);
    put("sum.cu", SUM);
    put("sum.c", RIGHT);
    let path = place.dir.path().join("k.toml");
    let path = path.to_str().unwrap();
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

    put("sum.cu", "//! does not compile\n");
    let refused = on_stand_in(&place, &["tune", path]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("sum.cu: none of") && refused.stderr.contains("it says so itself"),
        "{}",
        refused.stderr
    );
}
