//! Artifacts: compiled bytes by the hash of all that decides them, in files made whole and sealed with a key of the user.
//!
//! Layout: `<folder>/<digest>` = `warplap artifact 1\n`, the MAC (32 bytes), the length of the report (4 bytes), the
//! report as JSON, the image. The MAC covers the name and everything behind it: a changed byte or a renamed file means
//! that the kernel is built again, never that it is loaded.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::compile::Cubin;
use crate::error::CudaError;

const MAGIC: &[u8] = b"warplap artifact 1\n";
const KEY_FILE: &str = "key";
const KEY: usize = 32;

/// A folder of artifacts.
#[derive(Debug)]
pub struct Artifacts {
    folder: PathBuf,
    key: [u8; KEY],
}

impl Artifacts {
    /// Opens or makes the folder `artifacts-v1` in a directory (the store's), readable by the user alone.
    pub fn open(directory: &Path) -> Result<Self, CudaError> {
        let folder = directory.join("artifacts-v1");
        let failed = |e: std::io::Error| CudaError::Artifact(format!("{}: {e}", folder.display()));
        fs::create_dir_all(&folder).map_err(failed)?;
        restrict(&folder, 0o700).map_err(failed)?;
        let key = key(&folder).map_err(failed)?;
        Ok(Artifacts { folder, key })
    }

    /// The directory that holds the folder.
    pub fn directory(&self) -> &Path {
        self.folder.parent().unwrap_or(&self.folder)
    }

    /// What was kept under a digest, if it is exactly what was written.
    pub fn get(&self, digest: &str) -> Option<Cubin> {
        let bytes = fs::read(self.folder.join(digest)).ok()?;
        let rest = bytes.strip_prefix(MAGIC)?;
        let (mac, body) = rest.split_at_checked(KEY)?;
        // blake3's comparison takes the same time wherever the difference is.
        if self.mac(digest, body) != <[u8; KEY]>::try_from(mac).ok()? {
            tracing::warn!("artifact {digest} was changed since it was written; it is built again");
            return None;
        }
        let (len, rest) = body.split_at_checked(4)?;
        let (report, image) = rest.split_at_checked(u32::from_le_bytes(len.try_into().ok()?) as usize)?;
        Some(Cubin { report: serde_json::from_slice(report).ok()?, image: image.to_vec() })
    }

    /// Keeps a kernel: temporary file, fsync, rename. Two writers of one digest write the same bytes.
    pub fn put(&self, digest: &str, cubin: &Cubin) -> Result<(), CudaError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let failed = |e: std::io::Error| CudaError::Artifact(format!("{digest}: {e}"));
        let report = serde_json::to_vec(&cubin.report).map_err(|e| CudaError::Artifact(e.to_string()))?;
        let mut body = (report.len() as u32).to_le_bytes().to_vec();
        body.extend_from_slice(&report);
        body.extend_from_slice(&cubin.image);
        let unique = format!(".{digest}.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let temporary = self.folder.join(unique);
        let written = (|| {
            let mut file = File::create(&temporary)?;
            file.write_all(MAGIC)?;
            file.write_all(self.mac(digest, &body).as_bytes())?;
            file.write_all(&body)?;
            file.sync_all()?;
            fs::rename(&temporary, self.folder.join(digest))?;
            // The name is safe once the folder is; some file systems cannot sync one.
            let _ = File::open(&self.folder).and_then(|f| f.sync_all());
            Ok(())
        })();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written.map_err(failed)
    }

    fn mac(&self, digest: &str, body: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&(digest.len() as u64).to_le_bytes());
        hasher.update(digest.as_bytes());
        hasher.update(body);
        hasher.finalize()
    }
}

/// The user's key: made on first use, 0600. A key that is not whole is replaced, and what it sealed is built again.
fn key(folder: &Path) -> std::io::Result<[u8; KEY]> {
    let path = folder.join(KEY_FILE);
    for _ in 0..3 {
        if let Ok(bytes) = fs::read(&path) {
            if let Ok(key) = <[u8; KEY]>::try_from(&bytes[..]) {
                restrict(&path, 0o600)?;
                return Ok(key);
            }
            fs::remove_file(&path)?;
        }
        let mut key = [0u8; KEY];
        File::open("/dev/urandom")?.read_exact(&mut key)?;
        let temporary = folder.join(format!(".key.{}", std::process::id()));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&temporary)?;
        restrict(&temporary, 0o600)?;
        file.write_all(&key)?;
        file.sync_all()?;
        // A hard link fails where another process was first: its key counts.
        let linked = fs::hard_link(&temporary, &path);
        fs::remove_file(&temporary)?;
        if linked.is_ok() {
            return Ok(key);
        }
    }
    Err(std::io::Error::other("no key could be made"))
}

#[cfg(unix)]
fn restrict(path: &Path, mode: u32) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn restrict(_: &Path, _: u32) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptxas::Report;

    fn kept() -> (tempfile::TempDir, Artifacts, Cubin) {
        let folder = tempfile::tempdir().unwrap();
        let artifacts = Artifacts::open(folder.path()).unwrap();
        let cubin = Cubin { image: vec![7; 300], report: Report { registers: 90, ..Report::default() } };
        artifacts.put("abc", &cubin).unwrap();
        (folder, artifacts, cubin)
    }

    #[test]
    fn what_was_kept_comes_back_also_for_the_next_process() {
        let (folder, artifacts, cubin) = kept();
        assert_eq!(artifacts.get("abc"), Some(cubin.clone()));
        assert_eq!(Artifacts::open(folder.path()).unwrap().get("abc"), Some(cubin));
        assert_eq!(artifacts.get("abd"), None);
    }

    #[test]
    fn a_changed_byte_anywhere_means_build_again() {
        let (folder, artifacts, _) = kept();
        let path = folder.path().join("artifacts-v1/abc");
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).unwrap();
            assert_eq!(artifacts.get("abc"), None, "byte {at}");
        }
        for len in [0, 5, MAGIC.len(), MAGIC.len() + 20, whole.len() - 1] {
            fs::write(&path, &whole[..len]).unwrap();
            assert_eq!(artifacts.get("abc"), None, "length {len}");
        }
    }

    #[test]
    fn a_renamed_file_and_another_users_key_are_refused() {
        let (folder, artifacts, _) = kept();
        let inside = folder.path().join("artifacts-v1");
        fs::copy(inside.join("abc"), inside.join("other")).unwrap();
        assert_eq!(artifacts.get("other"), None);
        fs::write(inside.join(KEY_FILE), [1; KEY]).unwrap();
        assert_eq!(Artifacts::open(folder.path()).unwrap().get("abc"), None);
    }

    #[cfg(unix)]
    #[test]
    fn the_key_is_for_the_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let (folder, ..) = kept();
        let mode = |p: &str| fs::metadata(folder.path().join(p)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("artifacts-v1"), mode("artifacts-v1/key")), (0o700, 0o600));
    }
}
