//! A variant's identity changes with every file it is compiled of, and with no other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use warplap_core::candidate::SourceHash;
use warplap_core::catalog::{Catalog, Raced};
use warplap_core::device::Device;
use warplap_core::op::Op;
use warplap_cpu::Cpu;
use warplap_cuda::Cuda;
use warplap_ops::registry::{self, Known, Visitor};

#[allow(dead_code)] // What the build script alone uses.
#[path = "../build/sources/mod.rs"]
mod sources;

use sources::Tree;

/// The packages whose files count.
const PACKAGES: [&str; 3] = ["warplap-ops", "warplap-cpu", "warplap-cuda"];

/// Files of ours that are in nobody's identity, and why.
const NOBODYS: [(&str, &str); 14] = [
    ("lib.rs", "a door"),
    ("sources.rs", "the mechanism itself"),
    ("cuda/mod.rs", "a door or a catalog"),
    ("cpu/mod.rs", "a catalog"),
    ("cuda/compiling.rs", "the compiler of the tests"),
    ("cuda/installed.rs", "the compiler of the tests"),
    ("cuda/early.rs", "what the tests see in a compiled kernel"),
    ("_tests.rs", "tests"),
    ("src/registry.rs", "the list of operations"),
    ("/edges.rs", "problems that tests hold variants to"),
    ("gemm/cuda/epilogue.rs", "a way to ask for kernels that is no variant"),
    ("gemm/cpu/kernel/sgemm.rs", "a door for other operations"),
    ("right/", "the judge of the race, who is not in it"),
    ("bsr/cuda/checked/", "looks at indices before any kernel does"),
];

fn crates() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of packages")
}

/// Files that have an identity: variants, twins and what wraps them.
fn named(tree: &Tree) -> Vec<String> {
    let mut files = tree.files("warplap-ops", ".rs").expect("sources");
    files.retain(|file| {
        let text = fs::read_to_string(tree.place(file)).expect("a readable file");
        let says = ["impl Variant<", "impl CudaKernelSpec<", "fn source(&self) -> SourceHash {"];
        !file.ends_with("/sources.rs") && says.iter().any(|s| text.contains(s))
    });
    files
}

fn identities(tree: &mut Tree, named: &[String]) -> BTreeMap<String, String> {
    let identity = |file: &String| (file.clone(), tree.identity(file).unwrap_or_else(|why| panic!("{why}")));
    named.iter().map(identity).collect()
}

fn closure(file: &str) -> BTreeSet<String> {
    Tree::new(crates()).closure(&format!("warplap-ops/src/{file}")).unwrap_or_else(|why| panic!("{why}"))
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let to = to.join(path.file_name().expect("a name"));
        if path.is_dir() { copied(&path, &to) } else { _ = fs::copy(&path, &to).expect("a copy") }
    }
}

/// A copy of the sources to edit, and the names of all its files.
fn copy() -> (TempDir, Vec<String>) {
    let root = tempfile::tempdir().expect("a folder");
    for package in PACKAGES {
        for folder in ["src", "cuh", "cu"] {
            let from = crates().join(package).join(folder);
            if from.is_dir() {
                copied(&from, &root.path().join(package).join(folder));
            }
        }
    }
    let (mut files, mut folders) = (Vec::new(), vec![root.path().to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                let file = path.strip_prefix(root.path()).expect("a file of the copy");
                files.push(file.to_str().expect("a plain name").replace('\\', "/"));
            }
        }
    }
    files.sort();
    (root, files)
}

#[test]
fn an_edit_changes_the_identities_of_all_that_are_compiled_of_the_file_and_of_nobody_else() {
    let (root, files) = copy();
    let mut tree = Tree::new(root.path());
    let named = named(&tree);
    let before = identities(&mut tree, &named);
    let closures: BTreeMap<&String, BTreeSet<String>> =
        named.iter().map(|file| (file, tree.closure(file).unwrap_or_else(|why| panic!("{why}")))).collect();
    assert!(before.len() >= 45, "only {} files have an identity", before.len());
    assert_eq!(before.values().collect::<BTreeSet<_>>().len(), before.len(), "two files have one identity");
    let mut edits = 0;
    for file in &files {
        let (place, expected) = (root.path().join(file), closures.iter().filter(|(_, c)| c.contains(file)));
        let expected: Vec<&String> = expected.map(|(named, _)| *named).collect();
        let text = fs::read_to_string(&place).expect("a readable file");
        fs::write(&place, format!("{text}\n// Edited.\n")).expect("an edit");
        tree.forget(file);
        let after = identities(&mut tree, &named);
        let changed: Vec<&String> = named.iter().filter(|named| before[*named] != after[*named]).collect();
        assert_eq!(changed, expected, "after an edit of {file}");
        fs::write(&place, text).expect("the text as it was");
        tree.forget(file);
        edits += usize::from(!expected.is_empty());
    }
    assert!(edits >= 120, "only {edits} files are in an identity");
    assert_eq!(identities(&mut tree, &named), before);
}

#[test]
fn kernels_have_the_headers_they_include_and_no_others() {
    let headers = |file: &str| -> Vec<String> {
        let closure = closure(file).into_iter();
        let headers =
            closure.filter_map(|f| Some(f.strip_prefix("warplap-cuda/cuh/")?.strip_suffix(".cuh")?.to_string()));
        let mut names: Vec<String> = headers.map(|f| f.rsplit('/').next().unwrap_or("").to_string()).collect();
        names.sort();
        names
    };
    for twin in ["bsr/cuda/mma/mma_rows.rs", "bsr/cuda/mma/mma_tf32.rs"] {
        assert_eq!(headers(twin), ["ampere", "element", "scaled"], "{twin}");
    }
    for twin in ["bsr/cuda/wgmma/wgmma_fill.rs", "bsr/cuda/wgmma/wgmma_pack.rs", "bsr/cuda/wgmma/wgmma_swapab.rs"] {
        assert_eq!(headers(twin), ["element", "hopper", "scaled", "small_blocks"], "{twin}");
    }
    assert_eq!(headers("bsr/cuda/wgmma/wgmma_union.rs"), ["element", "hopper", "quant", "quant_hopper", "scaled"]);
    assert_eq!(headers("bsr/cuda/reference.rs"), ["element", "factor", "quant", "scaled"]);
    assert_eq!(
        headers("attention/cuda/flash_mma.rs"),
        ["ampere", "attention", "attention_ampere", "element", "packed", "philox", "squares"]
    );
    assert_eq!(
        headers("attention/cuda/flash_lazy.rs"),
        ["attention", "attention_hopper", "element", "hopper", "packed", "philox"]
    );
    assert_eq!(
        headers("attention/cuda/flash_wgmma.rs"),
        ["attention", "attention_hopper", "element", "hopper", "packed", "philox", "squares"]
    );
    assert_eq!(headers("gemm/cuda/mma_sync.rs"), ["ampere", "element", "epilogue"]);
    assert_eq!(headers("gemm/cuda/cublaslt.rs"), [""; 0]);
}

#[test]
fn variants_have_the_rust_files_they_use() {
    let has = |file: &str, used: &[&str]| {
        let closure = closure(file);
        used.iter().for_each(|used| assert!(closure.contains(*used), "{file} does not have {used}: {closure:#?}"));
    };
    let tree = Tree::new(crates());
    for file in named(&tree) {
        let file = file.trim_start_matches("warplap-ops/src/");
        let text = fs::read_to_string(crates().join("warplap-ops/src").join(file)).expect("a readable file");
        if file.contains("/cpu/") && text.contains("impl Variant<") {
            for lanes in ["avx2", "avx512", "element", "mod", "portable"] {
                has(file, &[&format!("warplap-cpu/src/simd/{lanes}.rs")]);
            }
        }
        if file.contains("/cuda/") && text.contains("impl CudaKernelSpec<") {
            let kernel = format!("warplap-ops/src/{}.cu", file.trim_end_matches(".rs"));
            let operation = file.split_once("/cuda/").expect("a folder of kernels").0;
            let plan = format!("warplap-ops/src/{operation}/cuda/plan.rs");
            has(file, &[&kernel, &plan, "warplap-ops/src/cuda/plan.rs", "warplap-cuda/src/compile/mod.rs"]);
        }
    }
    for wrapper in ["cuda/own.rs", "bsr/cuda/launch.rs"] {
        has(wrapper, &["warplap-ops/src/cuda/launch.rs", "warplap-cuda/src/driver/function.rs"]);
    }
    has("gemm/cpu/packed.rs", &["warplap-cpu/src/pool/mod.rs", "warplap-ops/src/gemm/cpu/kernel/blocked.rs"]);
    has("gemm/cuda/cublaslt.rs", &["warplap-cuda/src/libraries/cublaslt.rs"]);
    for room in ["descriptor", "graph", "library", "made", "plan"] {
        has("attention/cuda/cudnn.rs", &[&format!("warplap-cuda/src/libraries/cudnn/{room}.rs")]);
    }
    has("attention/cuda/cudnn.rs", &["warplap-ops/src/attention/cuda/cudnn_graph.rs"]);
    has("bsr/cuda/densify.rs", &["warplap-cuda/src/libraries/cublaslt.rs", "warplap-ops/src/bsr/cuda/densify.cu"]);
    for library in ["bsr/cuda/cusparse_bsr.rs", "bsr/cuda/blocked_ell.rs"] {
        has(library, &["warplap-cuda/src/libraries/cusparse.rs", "warplap-ops/src/bsr/cuda/turned/turn.cu"]);
    }
}

#[test]
fn who_uses_a_problem_is_not_compiled_of_its_siblings() {
    let mut tree = Tree::new(crates());
    for file in named(&tree) {
        let closure = tree.closure(&file).unwrap_or_else(|why| panic!("{why}"));
        let is_catalog =
            |used: &&String| fs::read_to_string(tree.place(used)).is_ok_and(|t| t.contains("fn catalog()"));
        assert_eq!(closure.iter().find(is_catalog), None, "{file} has a whole catalog");
        assert!(!closure.contains("warplap-cuda/src/lib.rs") && !closure.contains("warplap-cpu/src/lib.rs"), "{file}");
    }
}

#[test]
fn every_file_is_in_an_identity_or_known_not_to_be() {
    let mut tree = Tree::new(crates());
    let mut closures = BTreeSet::new();
    for file in named(&tree) {
        closures.extend(tree.closure(&file).unwrap_or_else(|why| panic!("{why}")));
    }
    for file in tree.files("warplap-ops", "").expect("sources") {
        let text = fs::read_to_string(tree.place(&file)).expect("a readable file");
        let door = file.ends_with("/mod.rs") && !text.contains("fn ");
        let known = door || NOBODYS.iter().any(|(part, _)| file.contains(part));
        assert!(
            known || closures.contains(&file),
            "{file} is in no variant's identity: a change of it would go unseen"
        );
    }
}

/// The identities of a catalog's variants as they were compiled in.
fn compiled<O: Op, D: Device>(catalog: &Catalog<O, D>) -> Vec<(String, String)> {
    catalog.variants().iter().map(|v| (v.id().to_string(), v.source().0)).collect()
}

/// What wrappers, the outermost first, say of what they wrap.
fn wrapped(tree: &mut Tree, wrappers: &[&str], inside: &str) -> String {
    let mut of = |file: &str| tree.identity(&format!("warplap-ops/src/{file}")).unwrap_or_else(|why| panic!("{why}"));
    let inside = of(inside);
    wrappers.iter().rev().fold(inside, |inside, wrapper| SourceHash::of(&[&of(wrapper), &inside]).0)
}

/// Twins of dense products that are wrapped to do pairs.
const PAIRED: [&str; 3] = ["gemv", "simt", "wgmma_tf32"];

/// What wraps an operation's variants on a device, the outermost first.
fn wrappers(op: &str, device: &str, id: &str) -> &'static [&'static str] {
    match (op, device) {
        ("gemm", "cpu") => &["gemm/cpu/batched.rs", "gemm/cpu/normed.rs", "gemm/cpu/paired.rs"],
        ("gemm", _) if PAIRED.contains(&id) => &["cuda/own.rs", "gemm/cuda/normed/mod.rs", "gemm/cuda/paired.rs"],
        // It finds the factors of a norm itself.
        ("gemm", _) if id != "wgmma_swapab" => &["cuda/own.rs", "gemm/cuda/normed/mod.rs"],
        (_, "cpu") => &[],
        ("bsr", _) => &["bsr/cuda/launch.rs"],
        _ => &["cuda/own.rs"],
    }
}

struct Compiled(Tree);

impl Compiled {
    fn hold(&mut self, op: &str, device: &str, variants: Vec<(String, String)>) {
        for (id, source) in variants {
            let (folder, name) = (format!("warplap-ops/src/{op}/{device}/"), format!("/{id}.rs"));
            let file = named(&self.0).into_iter().find(|file| file.starts_with(&folder) && file.ends_with(&name));
            let file = file.unwrap_or_else(|| panic!("{id}: no file below {folder}"));
            let file = file.trim_start_matches("warplap-ops/src/").to_string();
            let text = fs::read_to_string(crates().join("warplap-ops/src").join(&file)).expect("a readable file");
            // With a library's version, which is not in the files.
            if text.contains("source!()") && (device == "cpu" || text.contains("impl CudaKernelSpec<")) {
                assert_eq!(source, wrapped(&mut self.0, wrappers(op, device, &id), &file), "{file}");
            }
        }
    }
}

impl Visitor for Compiled {
    fn visit<O: Known>(&mut self) {
        self.hold(O::NAME, "cpu", compiled(&<O as Raced<Cpu>>::catalog()));
        self.hold(O::NAME, "cuda", compiled(&<O as Raced<Cuda>>::catalog()));
    }
}

#[test]
fn what_was_compiled_in_is_what_the_files_say() {
    registry::each(&mut Compiled(Tree::new(crates())));
}

#[test]
fn how_programs_name_an_operation_is_in_no_identity() {
    let small = Small::new(&[("warplap-ops/src/lib.rs", "mod op;"), ("warplap-ops/src/op.rs", KNOWN)]);
    let mut tree = Tree::new(small.0.path());
    let before = tree.identity("warplap-ops/src/op.rs").expect("an identity");
    for (text, same) in [(KNOWN.replace("gemm:m=1", "gemm:m=2"), true), (KNOWN.replace("fn a", "fn b"), false)] {
        fs::write(small.0.path().join("warplap-ops/src/op.rs"), text).expect("an edit");
        tree.forget("warplap-ops/src/op.rs");
        assert_eq!(tree.identity("warplap-ops/src/op.rs").expect("an identity") == before, same);
    }
}

const KNOWN: &str = "fn a() {}\n\nknown! {\n    /// Products.\n    Gemm {\n        example: \"gemm:m=1\",\n    }\n}\n";

#[test]
fn nobody_lists_by_hand_what_it_is_compiled_of() {
    let tree = Tree::new(crates());
    for file in named(&tree) {
        let text = fs::read_to_string(tree.place(&file)).expect("a readable file");
        let source =
            text.split("fn source(&self) -> SourceHash {").nth(1).unwrap_or_else(|| panic!("{file} has no source"));
        let body = source.split("\n    }").next().unwrap_or("");
        assert!(body.contains("source!(") || body.contains("(**self).source()"), "{file}: {body}");
        assert!(!text.contains(".rs\")"), "{file} includes Rust text");
    }
}

/// Sources in a folder, whose identities are asked for.
struct Small(TempDir);

impl Small {
    fn new(files: &[(&str, &str)]) -> Self {
        let small = Small(tempfile::tempdir().expect("a folder"));
        for (file, text) in files {
            let place: PathBuf = small.0.path().join(file);
            fs::create_dir_all(place.parent().expect("a folder")).expect("a folder");
            fs::write(place, text).expect("a file");
        }
        small
    }

    /// What a file uses beside itself, by the names of the files.
    fn uses(&self, file: &str) -> String {
        let closure = Tree::new(self.0.path()).closure(file).unwrap_or_else(|why| panic!("{why}"));
        let others = closure.iter().filter(|f| *f != file);
        others.map(|f| f.replace("warplap-ops/src/", "")).collect::<Vec<_>>().join(" ")
    }
}

fn one(text: &str) -> Small {
    Small::new(&[
        ("warplap-ops/src/lib.rs", "pub mod op; mod typed; mod one;"),
        (
            "warplap-ops/src/op/mod.rs",
            "mod a; mod b; mod problem; pub use problem::Problem; pub use a::A; pub struct Op; \
            pub mod slot { pub const X: usize = 0; }",
        ),
        ("warplap-ops/src/op/problem.rs", "pub struct Problem;"),
        ("warplap-ops/src/op/a.rs", "use super::{Op, Problem}; pub struct A;"),
        ("warplap-ops/src/op/b.rs", "use super::a; fn b() { a::f() }"),
        ("warplap-ops/src/typed.rs", "macro_rules! each { () => {} } pub(crate) use each;"),
        ("warplap-ops/src/one.cu", "// #include \"no.cuh\"\n#include \"x.cuh\"\n#include <cuda.h>\n"),
        ("warplap-cuda/cuh/x.cuh", "#include \"y.cuh\"\n"),
        ("warplap-cuda/cuh/y.cuh", ""),
        ("warplap-cpu/src/lib.rs", "pub mod simd; mod device; mod clock; pub use device::Cpu;"),
        ("warplap-cpu/src/device.rs", "use crate::clock::Clock; pub struct Cpu;"),
        ("warplap-cpu/src/clock.rs", "pub struct Clock;"),
        ("warplap-cpu/src/simd/mod.rs", "mod exp; pub use exp::exp; pub trait Lanes {}"),
        ("warplap-cpu/src/simd/exp.rs", "pub fn exp() {}"),
        ("warplap-ops/src/one.rs", text),
    ])
}

#[test]
fn names_are_followed_to_the_files_that_define_them() {
    for (text, expected) in [
        ("", ""),
        ("use std::fmt; use crate::op;", ""),
        ("use crate::op::Problem;", "op/problem.rs"),
        ("use crate::op::{self, Op as O};", "op/mod.rs"),
        ("use crate::op; fn f(_: op::Problem) {}", "op/problem.rs"),
        ("use super::op::slot; fn f() { slot::X }", "op/mod.rs"),
        ("fn f() { let x = crate::op::slot::X; }", "op/mod.rs"),
        ("use crate::op::A;", "op/a.rs op/mod.rs op/problem.rs"),
        ("use crate::op::*;", "op/a.rs op/mod.rs op/problem.rs"),
        ("use crate::typed::each;", "typed.rs"),
        ("use warplap_cpu::{Cpu, simd::exp};", "warplap-cpu/src/simd/exp.rs"),
        ("use warplap_cpu::simd; fn f<L: simd::Lanes>() {}", "warplap-cpu/src/simd/mod.rs"),
        ("mod inner { use super::super::op::Problem; }", "op/problem.rs"),
        ("const T: &str = include_str!(\"one.cu\");", "one.cu warplap-cuda/cuh/x.cuh warplap-cuda/cuh/y.cuh"),
        ("const T: &str = include_str!(\"../../warplap-cuda/cuh/x.cuh\");", ""),
    ] {
        let expected: BTreeSet<&str> = expected.split_whitespace().collect();
        let small = one(text);
        let files = small.uses("warplap-ops/src/one.rs");
        assert_eq!(files.split_whitespace().collect::<BTreeSet<_>>(), expected, "{text}");
    }
    assert_eq!(one("").uses("warplap-ops/src/op/b.rs"), "op/a.rs op/mod.rs op/problem.rs");
}

#[test]
fn tests_comments_and_strings_use_nothing() {
    for text in [
        "// use crate::op::Problem;",
        "/* /* */ use crate::op::Problem; */",
        "/// [`crate::op::Problem`]\nfn f() {}",
        "const T: &str = \"use crate::op::Problem; \\\" crate::op::Problem\";",
        "const T: &str = r#\"\" crate::op::Problem \"#;",
        "const T: [char; 2] = ['\"', '\\'']; fn f<'a>() {} // \"crate::op::Problem",
        "#[cfg(test)]\nmod tests { use crate::op::Problem; fn f() { {} } }",
        "#[cfg(test)] #[allow(unused)] use crate::op::{Op, Problem};",
    ] {
        assert_eq!(one(text).uses("warplap-ops/src/one.rs"), "", "{text}");
    }
    let after = "#[cfg(test)] mod tests { } use crate::op::Problem; const C: char = '{';";
    assert_eq!(one(after).uses("warplap-ops/src/one.rs"), "op/problem.rs");
    let field = "struct S { #[cfg(test)] x: u8, y: crate::op::Problem }";
    assert_eq!(one(field).uses("warplap-ops/src/one.rs"), "op/problem.rs");
}

#[test]
fn what_cannot_be_read_is_refused() {
    for (text, why) in [
        ("const T: &str = include_str!(\"none.cu\");", "none.cu"),
        ("const T: &str = include_str!(concat!(\"one\", \".cu\"));", "cannot be read"),
        ("mod none; use self::none::X;", "no file of module none"),
    ] {
        let small = one(text);
        let refused = Tree::new(small.0.path()).identity("warplap-ops/src/one.rs").expect_err(text);
        assert!(refused.contains(why) && refused.contains("warplap-ops/src/"), "{refused}");
    }
}
