//! The stand-in library in place of the driver, and this very program as the worker.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use warplap_cuda::Cuda;

/// Arguments with which this program, started again, runs one test: the worker, or a scenario that must have a process
/// of its own.
fn only(test: &str) -> [String; 4] {
    ["--exact", test, "--nocapture", "--include-ignored"].map(String::from)
}

/// The stand-in library, which is built with these tests.
pub fn library() -> PathBuf {
    let folder = env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let library = folder.join(format!("{}warplap_standin{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX));
    assert!(library.is_file(), "{} is not built", library.display());
    library
}

/// A device of the stand-in library.
pub fn opened() -> Cuda {
    static SET: OnceLock<()> = OnceLock::new();
    SET.get_or_init(|| {
        for name in ["WARPLAP_CUDA_DRIVER", "WARPLAP_NVRTC"] {
            if env::var_os(name).is_none() {
                // SAFETY: once, before any test opens a library; what reads the environment meanwhile goes through std.
                unsafe { env::set_var(name, library()) };
            }
        }
    });
    Cuda::open(0).expect("the stand-in device")
}

/// A device whose worker is this program.
pub fn device() -> Cuda {
    opened().with_worker(env::current_exe().unwrap(), only("worker"))
}

/// A device in whose workers faults are planted into driver calls.
pub fn worker_with(faults: &str) -> Cuda {
    let this = env::current_exe().unwrap().into_os_string();
    let mut arguments = vec![format!("WARPLAP_STANDIN={faults}").into(), this];
    arguments.extend(only("worker").map(Into::into));
    opened().with_worker("/usr/bin/env", arguments)
}

/// A test of this program in a process of its own.
pub fn scenario(test: &str, environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(only(test)).env("WARPLAP_CUDA_DRIVER", library()).env("WARPLAP_NVRTC", library());
    command.envs(environment.iter().copied());
    command
}
