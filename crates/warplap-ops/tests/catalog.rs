//! What every operation of the registry has: its declaration and edge problems, variants that are listed under their
//! files' stems, twins of its CUDA sources, a right answer on the device, axes that are used.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use warplap_core::catalog::{Catalog, Raced};
use warplap_core::device::Device;
use warplap_core::op::Op;
use warplap_core::variant::{Fit, Variant};
use warplap_cpu::Cpu;
use warplap_cuda::Cuda;
use warplap_ops::registry::{self, Known, Visitor};

/// The folder of an operation's sources.
fn folder(op: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(op)
}

/// All files under a folder that end so, by their paths, and their texts.
fn files(folder: &Path, ending: &str) -> Vec<(PathBuf, String)> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == ending) {
                let text = fs::read_to_string(&path).expect("a readable file");
                files.push((path, text));
            }
        }
    }
    files.sort();
    files
}

fn stem(path: &Path) -> &str {
    path.file_stem().and_then(|s| s.to_str()).expect("a plain name")
}

/// Whether a file is a variant of its own, and no wrapper around others.
fn is_variant(text: &str) -> bool {
    text.contains("\nimpl Variant<") || text.contains("\nimpl CudaKernelSpec<")
}

/// Every file of a variant is listed under its stem and opens with its header, and every id is listed once.
fn every_variant_is_listed<O: Op, D: Device>(catalog: &Catalog<O, D>, device: &str) {
    let place = format!("src/{}/{device}", O::NAME);
    let ids: Vec<&str> = catalog.variants().iter().map(|v| v.id()).collect();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len(), "{place}: an id stands twice: {ids:?}");
    let own = files(&folder(O::NAME).join(device), "rs").into_iter().filter(|(_, text)| is_variant(text));
    let own: Vec<_> = own.collect();
    for (path, text) in &own {
        let stem = stem(path);
        assert!(ids.contains(&stem), "{} is not in the list of {place}/mod.rs", path.display());
        assert!(text.starts_with("//!"), "{} does not open with its header", path.display());
    }
    for id in ids {
        assert!(own.iter().any(|(path, _)| stem(path) == id), "{place}/mod.rs lists {id}: write {place}/{id}.rs");
    }
}

/// Every axis is used by the folder that names it, and every default is a setting of its space.
fn every_axis_is_used<O: Known>(catalog: &Catalog<O, Cpu>) {
    // What variants of all operations share lies beside their folders.
    let all = fs::read_dir(folder("")).expect("the sources").map(|entry| entry.expect("an entry").path());
    let all = all.filter(|path| path.is_file()).map(|path| fs::read_to_string(path).expect("a readable file"));
    let own = files(&folder(O::NAME).join("cpu"), "rs").into_iter().map(|(_, text)| text);
    let (cpu, shared): (_, String) = (Cpu::new(), own.chain(all).collect());
    for text in O::edges().iter().map(String::as_str).chain([O::EXAMPLE]) {
        let problem = O::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let fits = |variant: &dyn Variant<O, Cpu>| matches!(variant.fit(&problem, &cpu), Fit::Fits(_));
        assert!(fits(&**catalog.reference()), "{text}: the reference fits everything");
        for variant in catalog.variants().iter().filter(|v| fits(&***v)) {
            let space = variant.space(&problem, &cpu);
            let default = space.default_config().unwrap_or_else(|| panic!("{text}: {} has no config", variant.id()));
            assert!(space.contains(&default), "{text}: {}", variant.id());
            for axis in space.axes() {
                // Named where the space is made and read where the kernel is built, in the variant's own file or in one
                // that the folder shares.
                let uses = shared.matches(&format!("\"{}\"", axis.name())).count();
                let other = shared.contains(&format!("const {}: &str", axis.name().to_uppercase()));
                assert!(uses >= 2 || other, "{}: axis {} is never read", variant.id(), axis.name());
            }
        }
    }
}

struct Listed;

impl Visitor for Listed {
    fn visit<O: Known>(&mut self) {
        let (cpu, cuda) = (<O as Raced<Cpu>>::catalog(), <O as Raced<Cuda>>::catalog());
        every_variant_is_listed(&cpu, "cpu");
        every_variant_is_listed(&cuda, "cuda");
        every_axis_is_used::<O>(&cpu);
    }
}

#[test]
fn every_variant_of_every_operation_is_listed_and_its_axes_are_used() {
    registry::each(&mut Listed);
}

struct Names(Vec<&'static str>);

impl Visitor for Names {
    fn visit<O: Known>(&mut self) {
        self.0.push(O::NAME);
        let named = O::LINE.ends_with('.') && !O::LINE.contains('\n');
        assert!(named, "{0}: known! in src/{0}/op.rs says in one line what it does", O::NAME);
        assert!(!O::edges().is_empty() && !O::PROOFS.is_empty(), "{0}: src/{0}/edges.rs has no problems", O::NAME);
        for text in O::edges().iter().map(String::as_str).chain(O::PROOFS.iter().copied()) {
            O::parse(text).unwrap_or_else(|e| panic!("src/{}/edges.rs: {text}: {e}", O::NAME));
        }
        for (device, text) in O::SUITES.iter().flat_map(|(device, all)| all.lines().map(move |line| (device, line))) {
            let text = text.split('#').next().unwrap_or("").trim();
            assert!(text.is_empty() || O::parse(text).is_ok(), "src/{}/op.rs, {device}: {text}", O::NAME);
        }
        if let Some(of) = O::GRADIENT_OF {
            assert!(folder(of).join("op.rs").is_file(), "{} is the gradient of {of}, which there is not", O::NAME);
        }
    }
}

#[test]
fn every_folder_with_a_declaration_is_in_the_registry_and_has_its_problems() {
    let mut names = Names(Vec::new());
    registry::each(&mut names);
    for (path, _) in files(&folder(""), "rs").iter().filter(|(path, _)| path.ends_with("op.rs")) {
        let op = path.parent().and_then(|folder| folder.file_name()).and_then(|name| name.to_str()).unwrap_or("");
        assert!(names.0.contains(&op), "src/{op} is not in the list of src/lib.rs");
    }
}

struct Oracles;

impl Visitor for Oracles {
    fn visit<O: Known>(&mut self) {
        let has = <O as Raced<Cuda>>::catalog().oracle().is_some();
        assert!(has, "{0} has no right answer on the device: write src/{0}/cuda/right/{{mod.rs, right.cu}}", O::NAME);
    }
}

#[test]
fn every_operation_has_its_right_answer_on_the_device() {
    registry::each(&mut Oracles);
}

/// Sources that no variant of their own stands beside: right answers, and what runs before, behind or around others.
const HELPERS: &str = "// Helper of ";

struct CudaKernelSpecs(usize);

impl Visitor for CudaKernelSpecs {
    fn visit<O: Known>(&mut self) {
        let all = files(&folder(O::NAME), "cu");
        let rust: String = files(&folder(O::NAME), "rs").into_iter().map(|(_, text)| text).collect();
        for (path, text) in &all {
            let (stem, name) = (stem(path), path.display());
            let entry = text.contains("extern \"C\"") && text.contains(&format!("{stem}("));
            assert!(entry, "{name} has no entry {stem}");
            let twin = fs::read_to_string(path.with_extension("rs")).is_ok_and(|twin| is_variant(&twin));
            let other = stem == "right" || text.starts_with(HELPERS);
            assert!(twin || other, "{name}: write its twin {stem}.rs, or begin it with '{HELPERS}...'");
            assert!(rust.contains(&format!("{stem}.cu\")")), "{name}: nobody compiles it");
            self.0 += 1;
        }
    }
}

#[test]
fn every_cuda_source_has_its_twin_or_says_whose_helper_it_is() {
    let mut twins = CudaKernelSpecs(0);
    registry::each(&mut twins);
    assert!(twins.0 >= 70, "only {} sources found", twins.0);
}

/// A load from a peer of a cluster may be on its way when a relaxed arrival is done, and the peer then leaves under it.
/// No answer is wrong and few launches fail, so no proof finds it: whoever loads from peers waits as `hopper.cuh` says.
#[test]
fn whoever_reads_from_peers_says_when_it_is_done() {
    let mut readers = 0;
    for (path, text) in files(&folder(""), "cu") {
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
    for (path, text) in files(&folder(""), "cu") {
        if !["mb_arrive_at(", ".release_stage("].iter().any(|word| text.contains(word)) {
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
