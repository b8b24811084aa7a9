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

/// All sources of an operation's folder of the CPU.
fn folder_text(op: &str) -> String {
    let mut text = String::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(op).join("cpu")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                text.push_str(&fs::read_to_string(path).expect("a readable file"));
            }
        }
    }
    text
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
    let folder = folder_text(O::NAME);
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
            for axis in space.axes() {
                // Named where the space is made and read where the kernel is built, in the variant's own file or in one
                // that the folder shares.
                let uses = folder.matches(&format!("\"{}\"", axis.name())).count();
                assert!(uses >= 2, "{}: axis {} is named but never read", variant.id(), axis.name());
            }
        }
    }
}

#[test]
fn every_gemm_variant_is_listed() {
    holds(&warplap_ops::gemm::cpu::catalog(), &["gemm:m=64,n=64,k=64", "gemm:m=1,n=64,k=64", "gemm:m=64,n=1,k=64"]);
}

#[test]
fn every_attention_variant_is_listed() {
    let problems =
        ["attention:h=8,sq=512,d=64", "attention:h=4,sq=1,sk=512,d=64", "attention:h=2,sq=40,d=64,dtype=bf16"];
    holds(&warplap_ops::attention::cpu::catalog(), &problems);
}

#[test]
fn every_bsr_variant_is_listed() {
    let problems = ["bsr:m=256,k=256,n=64,bs=32,density=0.2", "bsr:m=64,k=64,n=1,bs=16,density=0.5"];
    holds(&warplap_ops::bsr::cpu::catalog(), &problems);
}

#[test]
fn every_cuda_source_has_its_twin() {
    let folder = |op: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(op).join("cuda");
    let mut sources = 0;
    let entries =
        ["gemm", "bsr", "sampled", "qgemm", "softmax", "softmax_grad", "attention_mask_grad", "rope", "gated"]
            .into_iter()
            .flat_map(|op| fs::read_dir(folder(op)).expect("a folder of variants"));
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|e| e == "cu") {
            sources += 1;
            let stem = path.file_stem().and_then(|s| s.to_str()).expect("a plain name").to_string();
            let twin = fs::read_to_string(path.with_extension("rs")).expect("its twin");
            assert!(twin.contains("impl Variant<") || twin.contains("impl Twin<"), "{stem}.rs is not a variant");
            let text = fs::read_to_string(&path).expect("a readable file");
            assert!(
                text.contains("extern \"C\"") && text.contains(&format!("{stem}(")),
                "{stem}.cu has no entry {stem}"
            );
        }
    }
    assert!(sources >= 11, "only {sources} sources found");
}

/// Every kernel's file and text.
fn kernels() -> Vec<(PathBuf, String)> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut kernels = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "cu") {
                let text = fs::read_to_string(&path).expect("a readable file");
                kernels.push((path, text));
            }
        }
    }
    kernels
}

/// A load from a peer of a cluster may be on its way when a relaxed arrival is done, and the peer then leaves under it.
/// No answer is wrong and few launches fail, so no proof finds it: whoever loads from peers waits as `hopper.cuh` says.
#[test]
fn whoever_reads_from_peers_says_when_it_is_done() {
    let mut readers = 0;
    for (path, text) in kernels() {
        let Some(last) = text.rfind("peer_load4(") else { continue };
        readers += 1;
        let after = &text[last..];
        let nobody = || panic!("{}: says nothing when its loads are here", path.display());
        let said = after.find("cluster_arrive_read(").unwrap_or_else(nobody);
        assert!(after[said..].contains("cluster_wait()"), "{}: nobody waits", path.display());
        let relaxed = ["cluster_meet(", "cluster_arrive_early("].iter().any(|word| after[..said].contains(word));
        assert!(!relaxed, "{}: arrives before its loads are here", path.display());
    }
    assert!(readers >= 3, "kernels that read from peers are looked for in another place: {readers}");
}

/// The same holds of an arrival at a peer's barrier. So whoever is arrived at by peers waits, when all is filled, until
/// all was read; `walk` of `hopper.cuh` does so itself.
#[test]
fn whoever_is_arrived_at_by_peers_leaves_when_all_of_them_have() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../warplap-cuda/cuh/hopper.cuh");
    let shared = fs::read_to_string(shared).expect("hopper.cuh");
    let ends = |text: &str| text.contains("if constexpr (") && text.contains(" > 1) ring_ends<");
    let walk = &shared[shared.find("DI void walk(").expect("walk in hopper.cuh")..];
    assert!(ends(&walk[..walk.find("\n};").expect("the end of Feed")]), "hopper.cuh: walk does not end its ring");
    let mut arrived_at = 0;
    for (path, text) in kernels() {
        if !["mb_arrive_at(", ".tell("].iter().any(|word| text.contains(word)) {
            continue;
        }
        arrived_at += 1;
        // The side that fills stands before the one that multiplies, its loads before its end.
        let fills = ["load(row,", "load(col,", "run<BK,", "tma_load(", "OpA::load("];
        let last = fills.iter().filter_map(|word| text.rfind(word)).max().unwrap_or(0);
        let ended = text.contains("feed.walk<") || ends(&text[last..]);
        assert!(ended, "{}: leaves while peers may still arrive at it", path.display());
    }
    assert!(arrived_at >= 9, "kernels that peers arrive at are looked for in another place: {arrived_at}");
}
