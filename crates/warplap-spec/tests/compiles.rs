//! The CUDA kernels of the examples compile, without a GPU, and hold the globals that their specs fill.

#[path = "../../warplap-ops/src/cuda/installed.rs"]
mod installed;

use std::path::Path;
use std::time::{Duration, Instant};

use warplap::core::space::{Config, Value};
use warplap::cuda::Compiler;
use warplap_spec::{Role, Spec};

fn compiler() -> Option<Compiler> {
    if installed::is_unwanted() {
        return None;
    }
    let result = match std::env::var_os("WARPLAP_NVRTC") {
        Some(_) => Compiler::find(),
        None => Compiler::within(&installed::folder()),
    };
    Some(result.unwrap_or_else(|why| panic!("{why}; {}", installed::REMEDY)))
}

#[test]
fn kernels_and_references_of_the_examples_compile_and_hold_their_constants() {
    let Some(compiler) = compiler() else { return };
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for (name, reference) in [("conv2d-cuda/conv2d.toml", None), ("blur-cuda/blur.toml", Some("plain.cu"))] {
        let path = examples.join(name);
        let spec = Spec::load(&path).unwrap();
        let configs = spec.space.configs();
        let ends = [configs.first(), configs.last()].map(|c| (spec.source_file().to_path_buf(), c.unwrap().clone()));
        let plain = reference.map(|file| (path.with_file_name(file), Config::new()));
        for (file, config) in ends.into_iter().chain(plain) {
            let define = |(name, value): (&String, &Value)| format!("-D{name}={value}");
            let constants = spec.constants.iter().map(|(name, value)| define((name, value)));
            let options: Vec<String> =
                ["-arch=sm_90".to_string()].into_iter().chain(constants).chain(config.0.iter().map(define)).collect();
            let text = std::fs::read_to_string(&file).unwrap();
            let built = compiler.compile(name, &text, &[], &options, Instant::now() + Duration::from_secs(60));
            let (image, _) = built.unwrap_or_else(|why| panic!("{} {config}: {why}", file.display()));
            for constant in spec.arguments.iter().filter(|a| a.role == Role::Constant) {
                // As a plain name in the table of symbols: that is how it is found by name.
                let symbol = [b"\0", constant.name.as_bytes(), b"\0"].concat();
                assert!(image.windows(symbol.len()).any(|w| w == symbol), "{}: {}", file.display(), constant.name);
            }
        }
    }
}
