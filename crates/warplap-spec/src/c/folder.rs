//! The build folder: a private place below the user's own directory comes out, checked again before anything is loaded
//! from it, and removed with its owner. What killed runs left behind goes at the next start.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use warplap::core::store;
use warplap::core::temp_dirs::ScratchDir;

/// A folder of one's own. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Folder(ScratchDir);

impl Folder {
    /// Makes one below the user's cache directory, or, where there is none to be trusted, in the temporary directory.
    pub(crate) fn create() -> io::Result<Self> {
        let root = store::default_root().filter(|root| store::is_private(root).is_ok());
        match root.map(|root| Self::below(&root.join("build-v1"))) {
            Some(Ok(folder)) => Ok(folder),
            _ => ScratchDir::new().map(Folder),
        }
    }

    fn below(root: &Path) -> io::Result<Self> {
        // With no rights for others from the very call that makes it, whatever the umask.
        DirBuilder::new().mode(0o700).recursive(true).create(root)?;
        is_ours(root)?;
        ScratchDir::within(root).map(Folder)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Whether a file in it is nobody else's: to be asked before it is loaded or run.
    pub(crate) fn holds(&self, file: &Path) -> io::Result<()> {
        is_ours(self.path())?;
        let meta = fs::symlink_metadata(file)?;
        let own = meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0;
        if own { Ok(()) } else { Err(refused(file, &meta)) }
    }
}

/// Whether a directory is the user's own and closed to all others.
fn is_ours(path: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(path)?;
    let own = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o077 == 0;
    if own { Ok(()) } else { Err(refused(path, &meta)) }
}

fn refused(path: &Path, meta: &fs::Metadata) -> io::Error {
    let what = if meta.is_symlink() { "a link" } else { "no place of ours alone" };
    let (path, uid, mode) = (path.display(), meta.uid(), meta.mode() & 0o7777);
    io::Error::other(format!(
        "{path} is {what} (user {uid}, mode {mode:04o}): expected one that only this user can change"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn it_is_closed_to_others_and_gone_with_its_owner_and_leftovers_go_at_the_next_start() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("build-v1");
        let first = Folder::below(&root).unwrap();
        for path in [root.as_path(), first.path()] {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, 0o700, "{}", path.display());
        }
        // One whose owner was killed: no process has this number, or has had it since that moment.
        let name = first.path().file_name().unwrap().to_str().unwrap();
        let killed = root.join(name.replacen(&format!("-{}-", std::process::id()), "-4194303-", 1));
        fs::create_dir(&killed).unwrap();
        fs::set_permissions(&killed, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(killed.join("k.so"), "").unwrap();
        let second = Folder::below(&root).unwrap();
        assert!(first.path().is_dir() && second.path().is_dir() && !killed.exists());
        let gone = first.path().to_path_buf();
        drop(first);
        assert!(!gone.exists());
    }

    #[test]
    fn it_is_closed_to_others_whatever_the_umask() {
        let this = std::env::current_exe().unwrap();
        let other =
            "c::folder::tests::it_is_closed_to_others_and_gone_with_its_owner_and_leftovers_go_at_the_next_start";
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "umask 0; exec \"$0\" --exact \"$1\""]).arg(this).arg(other);
        let ran = shell.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    fn nothing_is_loaded_from_where_others_could_write() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::below(&home.path().join("build-v1")).unwrap();
        let library = folder.path().join("k.so");
        fs::write(&library, "").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        set(&library, 0o755);
        folder.holds(&library).unwrap();
        set(&library, 0o777);
        assert!(folder.holds(&library).unwrap_err().to_string().contains("mode 0777"));
        set(&library, 0o755);
        set(folder.path(), 0o777);
        assert!(folder.holds(&library).unwrap_err().to_string().contains("mode 0777"));
        set(folder.path(), 0o700);
        let link = folder.path().join("link.so");
        std::os::unix::fs::symlink(&library, &link).unwrap();
        assert!(folder.holds(&link).unwrap_err().to_string().contains("a link"));
        // A folder that others prepared is not used at all.
        let open = home.path().join("open");
        fs::create_dir(&open).unwrap();
        set(&open, 0o777);
        assert!(Folder::below(&open).is_err());
    }
}
