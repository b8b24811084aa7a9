//! The finder: where NVIDIA's libraries lie. The name of one comes in; the first that opens goes out: from the folder a
//! variable names, the active Python environment's packages, the toolkit, or the loader's own path.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// A library to be found at run time.
pub(crate) struct Wanted {
    /// How its file's name starts.
    pub(crate) stem: &'static str,
    /// The environment variable that names its file or folder.
    pub(crate) variable: &'static str,
    /// Its folder among the NVIDIA packages of a Python environment, besides those that all share.
    pub(crate) folder: &'static str,
    /// The Python package that brings it.
    pub(crate) package: &'static str,
    /// Versions the loader is asked for, best first.
    pub(crate) majors: &'static [&'static str],
}

impl Wanted {
    /// The first that opens, or a sentence on what to do.
    pub(crate) fn first<T, E: std::fmt::Display>(&self, open: impl Fn(&Path) -> Result<T, E>) -> Result<T, String> {
        let mut said = None;
        for path in self.places() {
            match open(&path) {
                Ok(library) => return Ok(library),
                Err(error) => said = Some(format!("{}: {error}", path.display())),
            }
        }
        let named = self.majors.iter().map(|major| format!("{}.{major}", self.stem));
        let opened = named.chain([self.stem.to_string()]).find_map(|name| open(Path::new(&name)).ok());
        opened.ok_or_else(|| {
            let Wanted { stem, variable, package, .. } = self;
            let hint = format!("set {variable} to the folder of {stem} (the Python package {package} brings it)");
            format!("{}; {hint}", said.unwrap_or_else(|| format!("{stem} is nowhere to be found")))
        })
    }

    /// Files it may be, best first.
    fn places(&self) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        if let Some(named) = env::var_os(self.variable).map(PathBuf::from) {
            if named.is_file() {
                return vec![named];
            }
            folders.push(named);
        }
        for root in ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(env::var_os) {
            for python in entries(&PathBuf::from(root).join("lib"), "python3") {
                let nvidia = python.join("site-packages").join("nvidia");
                folders.extend(["cu13", self.folder, "cu12"].map(|f| nvidia.join(f).join("lib")));
            }
        }
        let mut toolkits = entries(Path::new("/usr/local"), "cuda");
        toolkits.sort();
        folders.extend(toolkits.into_iter().rev().map(|t| t.join("lib64")));
        folders.iter().filter_map(|f| newest(f, self.stem)).collect()
    }
}

fn entries(folder: &Path, start: &str) -> Vec<PathBuf> {
    let named = |p: &PathBuf| p.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(start));
    fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).filter(named).collect()
}

/// The newest file whose name starts so.
pub(crate) fn newest(folder: &Path, start: &str) -> Option<PathBuf> {
    entries(folder, start).into_iter().filter(|p| p.is_file()).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_nowhere_is_said_with_what_to_do() {
        let wanted = Wanted {
            stem: "libwarplap-nowhere.so",
            variable: "WARPLAP_NOWHERE",
            folder: "nowhere",
            package: "nvidia-nowhere",
            majors: &["13"],
        };
        let said = wanted.first(|path| if path.exists() { Ok(()) } else { Err("not there") }).unwrap_err();
        assert!(said.contains("WARPLAP_NOWHERE") && said.contains("nvidia-nowhere"), "{said}");
        let opened = wanted.first(|path| if path.ends_with("libwarplap-nowhere.so.13") { Ok(7) } else { Err("no") });
        assert_eq!(opened, Ok(7));
    }

    #[test]
    fn of_several_versions_in_a_folder_the_newest_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["liba.so.12", "liba.so.13", "libb.so.99"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(newest(folder.path(), "liba.so"), Some(folder.path().join("liba.so.13")));
        assert_eq!(newest(folder.path(), "libc.so"), None);
    }
}
