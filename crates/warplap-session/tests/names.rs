//! Names can be searched: no type name stands twice in a package, and words that say nothing to a stranger are not names.
//! Operations are folders of their own, in which the same few types come again and again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Participles and private words; what is said instead is in `CONTRIBUTING.md`.
const NOT_NAMES: [&str; 19] = [
    "told", "given", "found", "lent", "heat", "heats", "bent", "lies", "stir", "Card", "Road", "Desk", "Twin", "Shelf",
    "Told", "Given", "Found", "Lent", "Heat",
];

/// Two forms of one type, of which a build has one.
const EITHER: [&str; 1] = ["OpenMp"];

/// The packages that are held to it.
const PACKAGES: [&str; 16] = [
    "core", "store", "ops", "worker", "cpu", "cuda", "report", "graph", "session", "spec", "cli", "fleet", "standin",
    "fuzz", "py", "burn",
];

fn sources(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => sources(&path, all),
            false if path.extension().is_some_and(|e| e == "rs") => all.push(path),
            false => {}
        }
    }
}

/// The identifiers of a line: what stands in comments and texts is prose.
fn identifiers(line: &str) -> Vec<&str> {
    let code = line.split("//").next().unwrap_or_default();
    let outside = code.split('"').step_by(2);
    outside.flat_map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '_')).filter(|w| !w.is_empty()).collect()
}

/// The type that a line at the left margin declares.
fn declared(line: &str) -> Option<&str> {
    let rest =
        line.strip_prefix("pub ").or_else(|| line.split_once(") ").filter(|l| l.0.starts_with("pub(")).map(|l| l.1));
    let rest = rest.unwrap_or(line);
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let name = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[test]
fn no_type_name_stands_twice_in_a_package_and_no_word_is_private() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut faults = Vec::new();
    for package in PACKAGES {
        let mut files = Vec::new();
        let source = crates.join(format!("warplap-{package}")).join("src");
        if source.is_dir() {
            sources(&source, &mut files);
        }
        let mut types: BTreeMap<String, String> = BTreeMap::new();
        for file in files {
            let place = file.strip_prefix(&crates).expect("a file of ours").display().to_string();
            for (number, line) in fs::read_to_string(&file).expect("a source").lines().enumerate() {
                // Folders of operations have the same few types again and again.
                if let Some(name) = declared(line).filter(|name| package != "ops" && !EITHER.contains(name))
                    && let Some(other) = types.insert(name.to_string(), place.clone())
                {
                    faults
                        .push(format!("{place}: the type {name} stands in {other} too: give one of them its own name"));
                }
                let wrong = identifiers(line).into_iter().filter(|word| NOT_NAMES.contains(word));
                faults.extend(wrong.map(|word| format!("{place}:{}: '{word}' is no name", number + 1)));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn declarations_and_identifiers_are_seen() {
    assert_eq!(declared("pub(crate) struct Road<D> {"), Some("Road"));
    assert_eq!(declared("enum Found {"), Some("Found"));
    assert_eq!(declared("    struct Inner;"), None);
    assert_eq!(identifiers(r#"let found = say("told"); // given"#), ["let", "found", "say"]);
}
