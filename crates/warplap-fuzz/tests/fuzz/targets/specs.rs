//! Users' kernels: spec files of both forms, and the NumPy files they name.

use warplap_spec::{Spec, fuzzing};

use super::store::folder;

/// A spec in TOML.
pub(crate) fn spec(bytes: &[u8]) -> String {
    loaded("spec.toml", bytes)
}

/// A spec in Kernel Tuner's T1 form.
pub(crate) fn t1(bytes: &[u8]) -> String {
    loaded("spec.json", bytes)
}

/// Loads a spec beside a source and an array that it may name. What was read has a problem text that finds it again.
fn loaded(name: &str, bytes: &[u8]) -> String {
    let folder = folder();
    let source = folder.join("k.c");
    if !source.exists() {
        std::fs::write(&source, "void k(float *y, const float *x, int n) {}\n").expect("a file of our own");
        std::fs::copy(&source, folder.join("k.cu")).expect("a file of our own");
    }
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("a file of our own");
    let read = Spec::load(&path);
    let sentence = super::said(read.as_ref());
    if let Err(e) = &read {
        assert!(super::is_short(&e.to_string()), "{e}");
    }
    if let Ok(spec) = read {
        assert_eq!(Spec::load(&path).expect("it was read before").identity(), spec.identity());
    }
    sentence.replace(&*folder.to_string_lossy(), "")
}

/// A NumPy file: what was read and written again is written the same.
pub(crate) fn npy(bytes: &[u8]) -> String {
    let written = fuzzing::npy(bytes);
    if let Ok(written) = &written {
        assert_eq!(fuzzing::npy(written).as_ref(), Ok(written));
    }
    super::said(written)
}
