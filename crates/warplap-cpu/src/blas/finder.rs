//! Where BLAS libraries lie: places come in; one library a maker goes out, with what was passed by and why.
//!
//! Looked through in this order: what `WARPLAP_BLAS` names (then nothing else), what is in the process already, the
//! active Python environments, the loader's path and the usual folders. Nothing is loaded here but what is loaded
//! already, and nothing is ever taken from a relative path or from a place that others can write to.

use std::env::consts::ARCH;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use warplap_core::environment;
use warplap_core::store::{self, StoreError};

use super::library::in_python;
use super::{BlasLibraries, Maker, Seen};

/// How files are called, and whose they are then. The best of a folder is the last by name: `libopenblasp`, with
/// threads, stands behind `libopenblas`, which has none on some systems.
const STEMS: [(&str, Maker); 8] = [
    ("libmkl_rt.", Maker::Mkl),
    ("mkl_rt.", Maker::Mkl),
    (TORCH, Maker::Mkl),
    ("libopenblas", Maker::OpenBlas),
    ("openblas", Maker::OpenBlas),
    ("libscipy_openblas", Maker::OpenBlas),
    ("libblis", Maker::Blis),
    ("Accelerate", Maker::Accelerate),
];

/// torch's library, which has MKL inside on x86. To load it takes 0.3 to 0.9 s, 110 MB, and CUDA's runtime in builds
/// for GPUs, all for one function (OpenBLAS: 2 to 20 ms): it is used where it is in the process, or where it is named.
const TORCH: &str = "libtorch_cpu.";

/// Folders of libraries that packages bring, below an environment's packages.
const PACKAGES: [&str; 5] =
    ["numpy.libs", "scipy.libs", "numpy/.dylibs", "scipy_openblas64/lib", "scipy_openblas32/lib"];

/// Apple's, which has no file: it lies in the loader's own memory.
const ACCELERATE: &str = "/System/Library/Frameworks/Accelerate.framework/Accelerate";

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// A file that the user has named, or `off`.
    pub named: Option<OsString>,
    /// Files that are in the process already.
    pub loaded: Vec<PathBuf>,
    /// Python environments.
    pub environments: Vec<PathBuf>,
    /// Folders of libraries.
    pub folders: Vec<PathBuf>,
}

impl Places {
    /// Those of this process.
    pub fn here() -> Places {
        let [mkl, path] = ["MKLROOT", "LD_LIBRARY_PATH"].map(|name| environment::var(name).unwrap_or_default());
        let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        folders.extend((!mkl.is_empty()).then(|| PathBuf::from(mkl).join("lib")));
        folders.extend(["/opt/intel/oneapi/mkl/latest/lib".into(), format!("/usr/lib/{ARCH}-linux-gnu").into()]);
        let usual = ["/usr/lib64", "/usr/lib", "/usr/local/lib", "/opt/homebrew/opt/openblas/lib"];
        folders.extend(usual.map(PathBuf::from));
        Places { named: environment::var("WARPLAP_BLAS"), loaded: loaded(), environments: environments(), folders }
    }

    /// One library a maker.
    pub fn look(&self) -> BlasLibraries {
        let mut result = BlasLibraries::default();
        match &self.named {
            Some(off) if off.eq_ignore_ascii_case("off") => result.passed_by.push("WARPLAP_BLAS=off".into()),
            Some(named) => result.take(Path::new(named), maker(Path::new(named)).unwrap_or(Maker::Named)),
            None => self.look_everywhere(&mut result),
        }
        result
    }

    fn look_everywhere(&self, result: &mut BlasLibraries) {
        for path in &self.loaded {
            if let Some(maker) = maker(path).filter(|m| result.library(m.word()).is_none()) {
                let seen = Seen::new(maker, path.clone(), fs::metadata(path).ok().as_ref());
                match seen.open() {
                    Ok(_) => result.libraries.push(seen),
                    Err(why) => result.passed_by.push(why),
                }
            }
        }
        let packages: Vec<PathBuf> = self.environments.iter().flat_map(|e| packages(e)).collect();
        let brought = packages.iter().flat_map(|p| PACKAGES.map(|folder| p.join(folder)));
        let own = self.environments.iter().map(|e| e.join("lib"));
        for folder in own.chain(brought).chain(self.folders.iter().cloned()) {
            result.take_from(&folder);
        }
        if cfg!(target_os = "macos") {
            result.libraries.push(Seen::new(Maker::Accelerate, ACCELERATE.into(), None));
        }
        let torch = packages.iter().flat_map(|p| files(&p.join("torch/lib"))).find(|f| is_torch(f));
        if let Some(torch) = torch.filter(|_| result.library(Maker::Mkl.word()).is_none()) {
            let why = "torch's is large: it is loaded only where WARPLAP_BLAS names it";
            result.passed_by.push(format!("{}: {why}", torch.display()));
        }
    }
}

impl BlasLibraries {
    /// Takes from a folder what is there of makers that have none yet.
    fn take_from(&mut self, folder: &Path) {
        let mut files = files(folder);
        files.sort();
        for path in files.iter().rev().filter(|f| !is_torch(f)) {
            if let Some(maker) = maker(path).filter(|m| self.library(m.word()).is_none()) {
                self.take(path, maker);
            }
        }
    }

    fn take(&mut self, path: &Path, maker: Maker) {
        match trusted(path).and_then(|real| whole(maker, real)) {
            Ok(real) => {
                let meta = fs::metadata(&real).ok();
                self.libraries.push(Seen::new(maker, real, meta.as_ref()));
            }
            Err(why) => self.passed_by.push(format!("{}: {why}", path.display())),
        }
    }
}

/// The real path of a library's file that nobody but the user and root can change.
fn trusted(path: &Path) -> Result<PathBuf, String> {
    if !path.is_absolute() {
        return Err("expected the whole path of a library's file, or off".into());
    }
    if path == Path::new(ACCELERATE) {
        return Ok(path.into());
    }
    let real = path.canonicalize().map_err(|e| e.to_string())?;
    let meta = fs::metadata(&real).map_err(|e| e.to_string())?;
    if !meta.is_file() {
        return Err("it is not a file".into());
    }
    if let Some(why) = store::distrust(&meta) {
        return Err(why);
    }
    match real.parent().map(store::is_private) {
        Some(Err(StoreError::Untrusted { path, why, .. })) => Err(format!("{}: {why}", path.display())),
        Some(Err(other)) => Err(other.to_string()),
        _ => Ok(real),
    }
}

/// The same path, where it is a library that has what it needs.
fn whole(maker: Maker, real: PathBuf) -> Result<PathBuf, String> {
    let name = real.file_name().map(|n| n.to_string_lossy()).unwrap_or_default();
    if maker == Maker::Mkl && name.contains("mkl_rt") {
        // MKL's runtime loads its parts at the first call, and ends the program where it does not find them.
        for part in ["mkl_core", "mkl_sequential"] {
            let part = name.replace("mkl_rt", part);
            if !real.with_file_name(&part).is_file() {
                return Err(format!("{part} is not beside it"));
            }
        }
        // It keeps for the whole process which threads it was first told to use, and a package that is imported later
        // may want others.
        if in_python() {
            return Err("in a Python process MKL's runtime is used where a package has loaded it".into());
        }
    }
    let mut first = [0; 4];
    let read = File::open(&real).and_then(|mut file| file.read_exact(&mut first));
    read.map_err(|e| format!("it cannot be read: {e}"))?;
    if cfg!(target_os = "linux") && &first != b"\x7fELF" {
        return Err("it is not a library".into());
    }
    Ok(real)
}

/// Whose library a file is, by its name.
fn maker(path: &Path) -> Option<Maker> {
    let name = path.file_name()?.to_str()?;
    let is_library = [".so", ".dylib", ".dll"].iter().any(|end| {
        // Versions stand behind the ending, or before it.
        name.find(end).is_some_and(|at| name[at + end.len()..].chars().all(|c| c == '.' || c.is_ascii_digit()))
    });
    STEMS
        .iter()
        .find(|(stem, maker)| name.starts_with(stem) && (is_library || *maker == Maker::Accelerate))
        .map(|s| s.1)
}

fn is_torch(path: &Path) -> bool {
    path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(TORCH))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    if !folder.is_absolute() {
        return Vec::new();
    }
    fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect()
}

/// The folders of an environment's packages.
fn packages(environment: &Path) -> Vec<PathBuf> {
    let pythons = files(&environment.join("lib")).into_iter();
    let named = pythons.filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("python3")));
    named.flat_map(|p| [p.join("site-packages"), p.join("dist-packages")]).collect()
}

/// The active Python environments, and that of the first `python3` on the path. No Python is started.
fn environments() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(environment::var).map(PathBuf::from).collect();
    let path = environment::var("PATH").unwrap_or_default();
    let bin = std::env::split_paths(&path).find(|folder| folder.is_absolute() && folder.join("python3").is_file());
    roots.extend(bin.and_then(|bin| bin.parent().map(Path::to_path_buf)));
    roots
}

/// Libraries that are in the process already, where the system tells.
fn loaded() -> Vec<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut files: Vec<PathBuf> =
        maps.lines().filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..]))).collect();
    files.retain(|file| maker(file).is_some());
    files.dedup();
    files
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// What every library starts with here.
    const ELF: &[u8] = b"\x7fELF and more";

    /// A folder of fake files below the target folder: no library is taken from the temporary one, which is everyone's.
    struct Fake(tempfile::TempDir);

    impl Fake {
        fn new() -> Self {
            let test = std::env::current_exe().unwrap();
            Fake(tempfile::tempdir_in(test.parent().unwrap()).unwrap())
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(name)
        }

        fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.at(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, bytes).unwrap();
            self.mode(name, 0o755);
            path
        }

        fn mode(&self, name: &str, mode: u32) {
            fs::set_permissions(self.at(name), fs::Permissions::from_mode(mode)).unwrap();
        }

        fn look(&self, folders: &[&str]) -> BlasLibraries {
            Places { folders: folders.iter().map(|f| self.at(f)).collect(), ..Places::default() }.look()
        }
    }

    fn taken(result: &BlasLibraries) -> Vec<(&str, &Path)> {
        result.libraries().iter().map(|s| (s.maker().word(), s.path())).collect()
    }

    fn said(result: &BlasLibraries) -> String {
        assert!(result.libraries().is_empty(), "{result:?}");
        result.none()
    }

    #[test]
    fn makers_are_known_by_the_names_of_their_files() {
        for (name, right) in [
            ("libmkl_rt.so.2", Some(Maker::Mkl)),
            ("libmkl_rt.so", Some(Maker::Mkl)),
            ("mkl_rt.2.dll", Some(Maker::Mkl)),
            ("libtorch_cpu.so", Some(Maker::Mkl)),
            ("libopenblas.so.0", Some(Maker::OpenBlas)),
            ("libopenblasp-r0.3.21.so", Some(Maker::OpenBlas)),
            ("libscipy_openblas64_-32a4b2a6.so", Some(Maker::OpenBlas)),
            ("libscipy_openblas64_.dylib", Some(Maker::OpenBlas)),
            ("libblis.so.4", Some(Maker::Blis)),
            ("Accelerate", Some(Maker::Accelerate)),
            ("libblas.so.3", None),
            ("libopenblas.a", None),
            ("libopenblas.so.0.txt", None),
            ("libmkl_rt_helper.so", None),
            ("libtorch_cpu_more.so", None),
        ] {
            assert_eq!(maker(&Path::new("/usr/lib").join(name)), right, "{name}");
        }
    }

    #[test]
    fn environments_are_looked_through_before_folders_and_one_a_maker_is_taken() {
        let fake = Fake::new();
        let site = "venv/lib/python3.12/site-packages";
        let numpy = fake.put(&format!("{site}/numpy.libs/libscipy_openblas64_-0f.so"), ELF);
        fake.put(&format!("{site}/scipy.libs/libscipy_openblas-1e.so"), ELF);
        fake.put(&format!("{site}/numpy.libs/libgfortran-04.so.5"), ELF);
        let mkl = fake.put("venv/lib/libmkl_rt.so.2", ELF);
        fake.put("venv/lib/libmkl_core.so.2", ELF);
        fake.put("venv/lib/libmkl_sequential.so.2", ELF);
        fake.put("usr/libopenblas.so.0", ELF);
        let blis = fake.put("usr/libblis.so.4.0", ELF);
        symlink(&blis, fake.at("usr/libblis.so.4")).unwrap();
        let places = Places { environments: vec![fake.at("venv")], folders: vec![fake.at("usr")], ..Places::default() };
        let result = places.look();
        assert_eq!(taken(&result), [("mkl", &*mkl), ("openblas", &*numpy), ("blis", &*blis)]);
        assert_eq!(result.library("openblas").unwrap().path(), numpy);
        let before = result.identity();
        fs::write(&numpy, b"\x7fELF of another version").unwrap();
        assert_ne!(places.look().identity(), before, "another file is another library");
        fs::remove_file(fake.at("venv/lib/libmkl_core.so.2")).unwrap();
        let result = places.look();
        assert!(result.library("mkl").is_none() && result.passed_by()[0].contains("libmkl_core.so.2 is not beside it"));
    }

    #[test]
    fn what_others_can_write_to_and_what_is_no_library_are_passed_by() {
        let fake = Fake::new();
        fake.put("text/libopenblas.so", b"INPUT(-lopenblas)");
        assert!(said(&fake.look(&["text"])).contains("it is not a library"));
        fake.put("empty/libopenblas.so", b"");
        assert!(said(&fake.look(&["empty"])).contains("it cannot be read"));
        fs::create_dir_all(fake.at("folder/libopenblas.so")).unwrap();
        assert!(said(&fake.look(&["folder"])).contains("it is not a file"));
        fs::create_dir_all(fake.at("gone")).unwrap();
        symlink("/nowhere/libopenblas.so", fake.at("gone/libopenblas.so")).unwrap();
        assert!(said(&fake.look(&["gone"])).contains("No such file"));
        fake.put("open/libopenblas.so", ELF);
        fake.mode("open/libopenblas.so", 0o666);
        assert!(said(&fake.look(&["open"])).contains("others may write to it (mode 0666)"));
        fake.mode("open/libopenblas.so", 0o644);
        assert_eq!(fake.look(&["open"]).libraries().len(), 1);
        fake.mode("open", 0o777);
        assert!(said(&fake.look(&["open"])).contains("mode 0777"));
        // A link leads to where it leads.
        fs::create_dir_all(fake.at("link")).unwrap();
        symlink(fake.at("open/libopenblas.so"), fake.at("link/libopenblas.so")).unwrap();
        assert!(said(&fake.look(&["link"])).contains("mode 0777"));
        // The next folder has a better one.
        let good = fake.put("good/libopenblas.so.0", ELF);
        let result = fake.look(&["open", "text", "good"]);
        assert_eq!((taken(&result), result.passed_by().len()), (vec![("openblas", &*good)], 2));
        let closed = fake.put("closed/libopenblas.so", ELF);
        fake.mode("closed/libopenblas.so", 0o000);
        // Root reads everything.
        if File::open(&closed).is_err() {
            assert!(said(&fake.look(&["closed"])).contains("it cannot be read"));
        }
    }

    #[test]
    fn nothing_is_taken_from_a_relative_path() {
        let named = |name: &str| Places { named: Some(name.into()), ..Places::default() }.look();
        for relative in ["libopenblas.so", "./libopenblas.so.0", "lib/libmkl_rt.so.2"] {
            assert!(said(&named(relative)).contains("expected the whole path"), "{relative}");
        }
        let relative = ["", ".", "lib"].map(PathBuf::from).to_vec();
        let result = Places { folders: relative.clone(), environments: relative, ..Places::default() }.look();
        assert_eq!((result.libraries().len(), result.passed_by().len()), (0, 0));
    }

    #[test]
    fn the_variable_names_one_or_none() {
        let fake = Fake::new();
        let (own, other) = (fake.put("own/libmine.so", ELF), fake.put("usr/libopenblas.so.0", ELF));
        let named =
            |name: &Path| Places { named: Some(name.into()), folders: vec![fake.at("usr")], ..Places::default() };
        assert_eq!(taken(&named(&own).look()), [("named", &*own)]);
        assert_eq!(taken(&named(&other).look()), [("openblas", &*other)]);
        assert!(said(&named(Path::new("off")).look()).contains("WARPLAP_BLAS=off"));
        let why = named(&own).look().libraries()[0].open().unwrap_err();
        assert!(why.starts_with(&own.display().to_string()) && why.contains("too short"), "{why}");
    }

    #[test]
    fn torch_is_named_but_not_loaded_for_one_function() {
        let fake = Fake::new();
        let torch = fake.put("venv/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so", ELF);
        let places = Places { environments: vec![fake.at("venv")], ..Places::default() };
        let why = said(&places.look());
        assert!(why.contains(&torch.display().to_string()) && why.contains("where WARPLAP_BLAS names it"), "{why}");
        let places = Places { named: Some(torch.clone().into()), ..places };
        assert_eq!(taken(&places.look()), [("mkl", &*torch)]);
    }
}
