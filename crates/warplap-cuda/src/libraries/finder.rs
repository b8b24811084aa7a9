//! The finder: where NVIDIA's libraries lie. The name of one comes in; the first that opens goes out: from the folder a
//! variable names, the active Python environment's packages, the toolkit, or the loader's own path.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use warplap_core::environment;

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
        if let Some(named) = environment::var(self.variable).map(PathBuf::from) {
            if named.is_file() {
                return vec![named];
            }
            folders.push(named);
        }
        for nvidia in packages() {
            folders.extend(["cu13", self.folder, "cu12"].map(|f| nvidia.join(f).join("lib")));
        }
        folders.extend(toolkits().into_iter().map(|t| t.join("lib64")));
        folders.iter().filter_map(|f| newest(f, self.stem)).collect()
    }
}

/// The NVIDIA packages of the active Python environments.
fn packages() -> Vec<PathBuf> {
    let roots = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(environment::var);
    let pythons = roots.flat_map(|root| entries(&PathBuf::from(root).join("lib"), "python3"));
    pythons.map(|python| python.join("site-packages").join("nvidia")).collect()
}

/// Toolkits in the usual place, newest first.
fn toolkits() -> Vec<PathBuf> {
    let mut toolkits = entries(Path::new("/usr/local"), "cuda");
    toolkits.sort();
    toolkits.reverse();
    toolkits
}

/// Folders of the toolkit's own headers (`cuda_fp16.h`, `cub/block/block_reduce.cuh`), for kernels of users that
/// include them; none where there is no toolkit.
pub(crate) fn toolkit_headers() -> &'static [PathBuf] {
    static FOLDERS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    FOLDERS.get_or_init(|| {
        let named = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(environment::var).map(PathBuf::from);
        let shared = packages().into_iter().flat_map(|p| ["cu13", "cuda_runtime", "cu12"].map(|f| p.join(f)));
        headers_of(named.chain(shared).chain(toolkits()))
    })
}

/// The header folders of the first of these toolkits that has any.
fn headers_of(mut roots: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let Some(root) = roots.find(|root| root.join("include/cuda_fp16.h").is_file()) else { return Vec::new() };
    // CUB and Thrust have moved to a folder of their own.
    ["include", "include/cccl"].map(|f| root.join(f)).into_iter().filter(|f| f.is_dir()).collect()
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
    fn headers_come_from_the_first_toolkit_that_has_them() {
        let folder = tempfile::tempdir().unwrap();
        let root = |name: &str| folder.path().join(name);
        for made in ["bare/include", "old/include", "new/include/cccl"] {
            fs::create_dir_all(root(made)).unwrap();
        }
        for name in ["old", "new"] {
            fs::write(root(name).join("include/cuda_fp16.h"), "").unwrap();
        }
        let result = |names: &[&str]| headers_of(names.iter().map(|n| root(n)));
        assert_eq!(result(&["none", "bare", "new", "old"]), [root("new/include"), root("new/include/cccl")]);
        assert_eq!(result(&["old"]), [root("old/include")]);
        assert!(result(&["none", "bare"]).is_empty());
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
