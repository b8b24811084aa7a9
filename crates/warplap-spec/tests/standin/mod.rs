//! The stand-in device of these tests, whose worker is the test program again, and the kernel it knows.

use std::env;
use std::path::PathBuf;
use std::sync::Once;

use warplap::Cuda;

/// c = a + b for a real device; the lines for the stand-in say the same, and what goes wrong by config.
pub(crate) const SUM: &str = r#"
//? KIND=1 fault 700
//? KIND=2 subtract
//? KIND=3 hang
//? KIND=4 die
//? KIND=5 does not compile
//? KIND=6 nothing
//@ add
extern "C" __global__ void sum(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
"#;

/// A spec of it that states nothing of what is right.
pub(crate) const SPEC: &str = r#"
source = "sum.cu"
entry = "sum"
[constants]
N = 5000
[axes]
KIND = [0, 1, 2]
block_size_x = [64, 128]
[launch]
grid = "ceil(N / block_size_x)"
block = "block_size_x"
[[arguments]]
name = "a"
dtype = "f32"
shape = "N"
[[arguments]]
name = "b"
dtype = "f32"
shape = "N"
[[arguments]]
name = "c"
role = "out"
dtype = "f32"
shape = "N"
[[arguments]]
name = "n"
dtype = "i32"
value = "N"
"#;

fn library() -> PathBuf {
    let folder = env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let library = folder.join(format!("{}warplap_standin{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX));
    assert!(library.is_file(), "{} is not built", library.display());
    library
}

/// Opens it. A program has a test `worker` that serves.
pub(crate) fn device() -> Cuda {
    static NAMED: Once = Once::new();
    NAMED.call_once(|| {
        for name in ["WARPLAP_CUDA_DRIVER", "WARPLAP_NVRTC"] {
            // SAFETY: before anything of this program opens a library; what reads the environment goes through std.
            unsafe { env::set_var(name, library()) };
        }
    });
    let only = ["--exact", "worker", "--nocapture", "--include-ignored"].map(String::from);
    Cuda::open(0).expect("the stand-in device").with_worker(env::current_exe().unwrap(), only)
}
