//! Every variant file is listed, every id is its file's stem and unique, every axis is used by the file that names it.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use warplap_core::catalog::Catalog;
use warplap_core::op::Op;
use warplap_core::variant::Fit;
use warplap_cpu::Cpu;

/// The variant files of a folder: those that implement the trait.
fn variant_files(op: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(op).join("cpu");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the folder of the variants")
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "rs"))
        .filter(|p| fs::read_to_string(p).expect("a readable file").contains("impl Variant<"))
        .collect();
    files.sort();
    files
}

fn holds<O: Op>(catalog: &Catalog<O, Cpu>, problems: &[&str]) {
    let cpu = Cpu::new();
    let ids: Vec<&str> = catalog.variants().iter().map(|v| v.id()).collect();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len(), "{}: an id stands twice: {ids:?}", O::NAME);
    assert!(ids.len() >= 5, "{}: at least five variants, not {ids:?}", O::NAME);
    let files = variant_files(O::NAME);
    for file in &files {
        let stem = file.file_stem().and_then(|s| s.to_str()).expect("a plain name");
        assert!(ids.contains(&stem), "{} is not listed in the catalog of {}", file.display(), O::NAME);
        let text = fs::read_to_string(file).expect("a readable file");
        assert!(text.starts_with("//!"), "{} does not open with its header", file.display());
    }
    assert_eq!(files.len(), ids.len(), "{}: {ids:?} and {files:?} are not the same", O::NAME);
    for text in problems {
        let problem = O::parse(text).expect("a problem");
        assert!(
            matches!(catalog.reference().fit(&problem, &cpu), Fit::Fits(_)),
            "{text}: the reference fits everything"
        );
        for variant in catalog.variants().iter().filter(|v| matches!(v.fit(&problem, &cpu), Fit::Fits(_))) {
            let space = variant.space(&problem, &cpu);
            let default = space.default_config().unwrap_or_else(|| panic!("{text}: {} has no config", variant.id()));
            assert!(space.contains(&default), "{text}: {}", variant.id());
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(O::NAME).join("cpu");
            let source = fs::read_to_string(folder.join(format!("{}.rs", variant.id()))).expect("its file");
            for axis in space.axes() {
                let quoted = format!("\"{}\"", axis.name());
                let uses = source.matches(&quoted).count();
                // Named where the space is made, read where the kernel is built; or both by a shared file of the folder.
                assert!(uses != 1, "{}: axis {} is named but never read", variant.id(), axis.name());
            }
        }
    }
}

#[test]
fn every_gemm_variant_is_listed() {
    holds(&warplap_ops::gemm::cpu::catalog(), &["gemm:m=64,n=64,k=64", "gemm:m=1,n=64,k=64", "gemm:m=64,n=1,k=64"]);
}
