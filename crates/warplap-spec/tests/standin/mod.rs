//! The stand-in device of these tests, whose worker is the test program again.

use std::env;
use std::path::PathBuf;
use std::sync::Once;

use warplap::Cuda;

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
