//! Writes the table of identities that `src/sources.rs` reads: of each file that says `source!`, what it is compiled
//! of.

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

#[allow(dead_code)] // What the tests alone use.
#[path = "build/sources/mod.rs"]
mod sources;

use sources::Tree;

fn main() -> Result<(), String> {
    let var = |name: &str| env::var_os(name).map(PathBuf::from).ok_or_else(|| format!("{name} is not set"));
    let here = var("CARGO_MANIFEST_DIR")?;
    let mut tree = Tree::new(here.parent().ok_or("the package lies in no folder")?);
    let mut table = String::from("[\n");
    for file in tree.files("warplap-ops", ".rs")? {
        // The macro itself stands in `sources.rs`.
        if !file.ends_with("/src/sources.rs")
            && fs::read_to_string(tree.place(&file)).map_err(|e| format!("{file}: {e}"))?.contains("source!(")
        {
            let own = file.trim_start_matches("warplap-ops/");
            let _ = writeln!(table, "    ({own:?}, {:?}),", tree.identity(&file)?);
        }
    }
    table.push(']');
    let out = var("OUT_DIR")?.join("sources.rs");
    fs::write(&out, table).map_err(|e| format!("{}: {e}", out.display()))?;
    // All of this package's files: each may begin to say `source!`. Of the others those that were read.
    let others = tree.read().filter(|file| !file.starts_with("warplap-ops/")).map(|file| tree.place(file));
    let watched: BTreeSet<PathBuf> =
        ["build.rs", "build", "src"].map(|f| here.join(f)).into_iter().chain(others).collect();
    watched.iter().for_each(|file| watch(file));
    Ok(())
}

/// Runs this script again when a file changes.
#[allow(clippy::print_stdout)] // How a build script speaks with Cargo.
fn watch(file: &Path) {
    println!("cargo::rerun-if-changed={}", file.display());
}
