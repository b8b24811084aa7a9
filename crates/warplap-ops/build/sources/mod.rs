//! What a variant is compiled of, found by reading the text: the one place where identities of sources are made.
//!
//! The identity of a file is the hash of all files it uses, directly or through others, itself among them. A file uses
//! 1. the file of every name it imports (`use crate::…`, `super::…`, `self::…`, `warplap_cpu::…`, `warplap_cuda::…`)
//!    and of every path it writes; a name that a module hands on (`pub use`) is followed to the file that defines it;
//! 2. the files of its `include_str!`, and a CUDA source the headers of its `#include "…"`. Headers count there alone:
//!    that a Rust file lists a `.cuh` for the compiler is no use of it.
//!
//! A `mod x;` line is no use, nor is a `pub use` of a name that the file itself does not write: these are doors for
//! others, so that who takes the problem from `gemm/mod.rs` does not become all variants declared there. Tests
//! (`#[cfg(test)]`) are not followed, and what an operation says to programs (`known! { … }`) does not count. Core is
//! not followed, nor are the rooms of a device that time, keep and guard kernels ([`ROOMS`]). What is reached through a
//! trait object names its file itself: a wrapper's identity contains that of what it wraps.

mod says;
mod tokens;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

use says::Says;

/// The packages whose files count, as paths name them and as their folders are called.
const CRATES: [(&str, &str); 3] =
    [("warplap_ops", "warplap-ops"), ("warplap_cpu", "warplap-cpu"), ("warplap_cuda", "warplap-cuda")];

/// Where headers lie that are not beside the kernel.
const HEADERS: &str = "warplap-cuda/cuh";
const HEADER_ROOMS: [&str; 4] = ["", "/attention", "/products", "/rows"];

/// The rooms of a device that time, keep and guard kernels, whose code is in none.
const ROOMS: [&str; 2] = ["warplap-cpu/src/device.rs", "warplap-cuda/src/device/"];

/// The sources of the packages. A file is named by its path from the folder of the packages on,
/// `warplap-ops/src/lib.rs`.
pub(crate) struct Tree {
    crates: PathBuf,
    read: BTreeMap<String, One>,
}

/// A file that was read.
struct One {
    text: String,
    hash: blake3::Hash,
    says: Says,
    uses: Option<BTreeSet<String>>,
}

/// What a path leads to.
enum ResolvedPath {
    Module(String),
    Item(String),
}

impl Tree {
    /// The packages that lie in a folder.
    pub(crate) fn new(crates: &Path) -> Self {
        Tree { crates: crates.to_path_buf(), read: BTreeMap::new() }
    }

    /// Where a file lies. Beside a package from a registry its siblings carry the version in their folder's name.
    pub(crate) fn place(&self, file: &str) -> PathBuf {
        let plain = self.crates.join(file);
        match file.split_once('/') {
            Some((package, rest)) if !self.crates.join(package).is_dir() => {
                self.crates.join(format!("{package}-{}", env!("CARGO_PKG_VERSION"))).join(rest)
            }
            _ => plain,
        }
    }

    /// The files read so far.
    pub(crate) fn read(&self) -> impl Iterator<Item = &str> {
        self.read.keys().map(String::as_str)
    }

    /// Forgets a file, which was edited, and who uses whom.
    pub(crate) fn forget(&mut self, file: &str) {
        self.read.remove(file);
        self.read.values_mut().for_each(|one| one.uses = None);
    }

    /// The files of a package's `src` whose names end so, in order.
    pub(crate) fn files(&self, package: &str, ending: &str) -> Result<Vec<String>, String> {
        let (mut files, mut folders) = (Vec::new(), vec![format!("{package}/src")]);
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(self.place(&folder)).map_err(|e| format!("{folder}: {e}"))?;
            for entry in entries {
                let entry = entry.map_err(|e| format!("{folder}: {e}"))?;
                let file = format!("{folder}/{}", entry.file_name().to_string_lossy());
                if entry.path().is_dir() {
                    folders.push(file);
                } else if file.ends_with(ending) {
                    files.push(file);
                }
            }
        }
        files.sort();
        Ok(files)
    }

    /// The text of a file.
    pub(crate) fn text(&mut self, file: &str) -> Result<&str, String> {
        Ok(&self.one(file)?.text)
    }

    /// All files that a file is compiled of, itself among them.
    pub(crate) fn closure(&mut self, file: &str) -> Result<BTreeSet<String>, String> {
        let (mut closure, mut next) = (BTreeSet::new(), vec![file.to_string()]);
        while let Some(file) = next.pop() {
            if closure.insert(file.clone()) {
                next.extend(self.uses(&file)?);
            }
        }
        Ok(closure)
    }

    /// The identity of what a file is compiled of: 16 hexadecimal digits.
    pub(crate) fn identity(&mut self, file: &str) -> Result<String, String> {
        let mut hasher = blake3::Hasher::new();
        for file in self.closure(file)? {
            hasher.update(&(file.len() as u64).to_le_bytes());
            hasher.update(file.as_bytes());
            hasher.update(self.one(&file)?.hash.as_bytes());
        }
        Ok(hasher.finalize().to_hex()[..16].to_string())
    }

    /// The files that a file itself uses.
    fn uses(&mut self, file: &str) -> Result<BTreeSet<String>, String> {
        if let Some(uses) = &self.one(file)?.uses {
            return Ok(uses.clone());
        }
        let mut uses = if file.ends_with(".rs") { self.rust_uses(file)? } else { self.headers(file)? };
        uses.remove(file);
        self.one(file)?.uses = Some(uses.clone());
        Ok(uses)
    }

    fn rust_uses(&mut self, file: &str) -> Result<BTreeSet<String>, String> {
        let says = &self.one(file)?.says;
        let imports = says.imports.iter();
        let written =
            imports.filter(|i| !i.is_door || says.words.contains(&i.name)).map(|i| (i.name == "*", i.path.clone()));
        let paths: Vec<_> = written.chain(says.paths.iter().map(|p| (false, p.clone()))).collect();
        let folder = parent(file);
        let counts = |i: &&String| !i.ends_with(".cuh");
        let mut uses: BTreeSet<String> = says.includes.iter().filter(counts).map(|i| beside(folder, i)).collect();
        for (all, path) in paths {
            for target in self.resolve(file, &path, &mut HashSet::new())? {
                match target {
                    ResolvedPath::Item(file) => _ = uses.insert(file),
                    ResolvedPath::Module(module) if all => uses.extend(self.behind(&module)?),
                    ResolvedPath::Module(_) => {}
                }
            }
        }
        Ok(uses)
    }

    /// A module whose names are all imported: its file, and those of the names it hands on.
    fn behind(&mut self, module: &str) -> Result<Vec<String>, String> {
        let doors = self.one(module)?.says.imports.iter().filter(|i| i.is_door);
        let doors: Vec<_> = doors.map(|i| i.path.clone()).collect();
        let mut files = vec![module.to_string()];
        for path in doors {
            let targets = self.resolve(module, &path, &mut HashSet::new())?;
            files.extend(targets.into_iter().map(|(ResolvedPath::Item(file) | ResolvedPath::Module(file))| file));
        }
        Ok(files)
    }

    /// What a path that a file writes leads to; nothing where it leads out of the packages.
    fn resolve(
        &mut self,
        from: &str,
        path: &[String],
        seen: &mut HashSet<(String, Vec<String>)>,
    ) -> Result<Vec<ResolvedPath>, String> {
        // A name that is imported as itself (`pub(crate) use for_dtype;` of a macro) leads nowhere.
        if !seen.insert((from.to_string(), path.to_vec())) {
            return Ok(Vec::new());
        }
        let Some((head, rest)) = path.split_first() else { return Ok(Vec::new()) };
        if let Some((_, package)) = CRATES.iter().find(|(name, _)| head == name) {
            return self.walk(format!("{package}/src/lib.rs"), rest, seen);
        }
        match head.as_str() {
            "crate" => {
                let package = from.split('/').next().unwrap_or("");
                self.walk(format!("{package}/src/lib.rs"), rest, seen)
            }
            "self" | "super" => self.walk(from.to_string(), path, seen),
            _ => {
                let says = &self.one(from)?.says;
                let is_known = says.children.contains(head) || says.imports.iter().any(|i| i.name == *head);
                if is_known { self.walk(from.to_string(), path, seen) } else { Ok(Vec::new()) }
            }
        }
    }

    /// Follows a path from inside a module.
    fn walk(
        &mut self,
        module: String,
        path: &[String],
        seen: &mut HashSet<(String, Vec<String>)>,
    ) -> Result<Vec<ResolvedPath>, String> {
        if ROOMS.iter().any(|room| module.starts_with(room)) {
            return Ok(Vec::new());
        }
        let Some((name, rest)) = path.split_first() else { return Ok(vec![ResolvedPath::Module(module)]) };
        match name.as_str() {
            "self" => return self.walk(module, rest, seen),
            "super" => return self.walk(self.above(&module)?, rest, seen),
            _ => {}
        }
        let says = &self.one(&module)?.says;
        let is_child = says.children.contains(name);
        // A module and a function may have one name: `exp` and `exp::exp`.
        let imported = says.imports.iter().filter(|i| i.name == *name && (!is_child || rest.is_empty()));
        let mut on: Vec<Vec<String>> = imported.map(|i| [i.path.as_slice(), rest].concat()).collect();
        on.retain(|path| path.as_slice() != [name.as_str()]);
        let behind: Vec<_> = says.imports.iter().filter(|i| i.name == "*").map(|i| i.path.clone()).collect();
        let mut targets = Vec::new();
        if is_child {
            let child = self.child(&module, name)?;
            targets = self.walk(child, rest, seen)?;
        } else if on.is_empty() {
            // Defined here, or behind a glob.
            targets.push(ResolvedPath::Item(module.clone()));
            for path in behind {
                for all in self.resolve(&module, &path, seen)? {
                    let (ResolvedPath::Item(file) | ResolvedPath::Module(file)) = all;
                    targets.extend(self.behind(&file)?.into_iter().map(ResolvedPath::Item));
                }
            }
        }
        for path in on {
            targets.extend(self.resolve(&module, &path, seen)?);
        }
        Ok(targets)
    }

    fn child(&self, module: &str, name: &str) -> Result<String, String> {
        let folder = match module.rsplit_once('/') {
            Some((folder, "lib.rs" | "mod.rs")) => folder.to_string(),
            _ => module.trim_end_matches(".rs").to_string(),
        };
        let places = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
        places
            .into_iter()
            .find(|p| self.place(p).is_file())
            .ok_or_else(|| format!("{module}: no file of module {name}"))
    }

    fn above(&self, module: &str) -> Result<String, String> {
        let folder = if module.ends_with("/mod.rs") { parent(parent(module)) } else { parent(module) };
        let places = [format!("{folder}/mod.rs"), format!("{folder}/lib.rs"), format!("{folder}.rs")];
        places.into_iter().find(|p| self.place(p).is_file()).ok_or_else(|| format!("{module}: no module above it"))
    }

    /// What a CUDA source includes by name.
    fn headers(&mut self, file: &str) -> Result<BTreeSet<String>, String> {
        let named = |line: &str| {
            Some(
                line.trim()
                    .strip_prefix('#')?
                    .trim()
                    .strip_prefix("include")?
                    .trim()
                    .strip_prefix('"')?
                    .split('"')
                    .next()?
                    .to_string(),
            )
        };
        let names: Vec<String> = self.text(file)?.lines().filter_map(named).collect();
        let header_place = |name: &String| {
            let rooms = HEADER_ROOMS.map(|room| beside(&format!("{HEADERS}{room}"), name));
            let mut places = iter::once(beside(parent(file), name)).chain(rooms);
            places.find(|p| self.place(p).is_file()).ok_or_else(|| format!("{file}: no header {name}"))
        };
        names.iter().map(header_place).collect()
    }

    fn one(&mut self, file: &str) -> Result<&mut One, String> {
        if !self.read.contains_key(file) {
            let text = fs::read_to_string(self.place(file)).map_err(|e| format!("{file}: {e}"))?;
            let says = if file.ends_with(".rs") { Says::of(&text) } else { Ok(Says::default()) };
            let says = says.map_err(|why| format!("{file}: {why}"))?;
            let hash = blake3::hash(compiled(&text).as_bytes());
            self.read.insert(file.to_string(), One { hash, text, says, uses: None });
        }
        self.read.get_mut(file).ok_or_else(|| format!("{file}: not read"))
    }
}

/// A text without what it says to programs alone (`known! { … }`): the problems that are tuned when nobody asks for
/// others are in no kernel.
fn compiled(text: &str) -> Cow<'_, str> {
    let known = text.find("\nknown! {\n").and_then(|from| Some((from, from + text[from..].find("\n}\n")? + 2)));
    known.map_or(Cow::Borrowed(text), |(from, to)| Cow::Owned([&text[..from], &text[to..]].concat()))
}

fn parent(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// A file named from a folder, without `..` on the way.
fn beside(folder: &str, name: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in name.split('/') {
        match part {
            ".." => _ = parts.pop(),
            "." => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}
