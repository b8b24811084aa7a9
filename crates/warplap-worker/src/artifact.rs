//! Artifacts: compiled bytes by the hash of all that decides them, in files made whole and sealed with a key of the
//! user.
//!
//! Layout: `<folder>/<digest>` = `warplap artifact 1\n`, the MAC (32 bytes), the length of the report (4 bytes), the
//! report as JSON, the image. The MAC covers the name and everything behind it: a changed byte or a renamed file means
//! that the kernel is built again, never that it is loaded.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;
use warplap_core::temp_dirs::ScratchDir;
use warplap_core::user_files;

const MAGIC: &[u8] = b"warplap artifact 1\n";
const KEY_FILE: &str = "key";
const KEY: usize = 32;

/// Compiled bytes, and what the compiler said of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact<R> {
    /// The image that is loaded.
    pub image: Vec<u8>,
    /// What is worth knowing of it.
    pub report: R,
}

/// Why artifacts cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("artifacts: {0}")]
pub struct ArtifactError(String);

impl ArtifactError {
    fn at(place: impl std::fmt::Display) -> impl Fn(std::io::Error) -> Self {
        move |error| ArtifactError(format!("{place}: {error}"))
    }
}

/// The name of an artifact: every text that decides its bytes, hashed.
pub fn digest<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    let mut hasher = blake3::Hasher::new();
    for text in texts {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// Whether a text is a digest: only such become names of files that came from elsewhere.
fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// A folder of artifacts.
#[derive(Debug)]
pub struct Artifacts {
    folder: PathBuf,
    key: [u8; KEY],
    /// The directory, where it goes with this object.
    _passing: Option<ScratchDir>,
}

impl Artifacts {
    /// Opens or makes the folder `artifacts-v1` in a directory (the store's), readable by the user alone.
    pub fn open(directory: &Path) -> Result<Self, ArtifactError> {
        let folder = directory.join("artifacts-v1");
        let failed = ArtifactError::at(folder.display().to_string());
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&folder).map_err(&failed)?;
        owned(&fs::symlink_metadata(&folder).map_err(&failed)?).map_err(&failed)?;
        restrict(&folder, 0o700).map_err(&failed)?;
        let key = key(&folder).map_err(&failed)?;
        Ok(Artifacts { folder, key, _passing: None })
    }

    /// In a directory of their own that nobody else can open and that goes with this object.
    pub fn passing() -> Result<Self, ArtifactError> {
        let passing = ScratchDir::new().map_err(ArtifactError::at("a folder of their own"))?;
        let mut artifacts = Self::open(passing.path())?;
        artifacts._passing = Some(passing);
        Ok(artifacts)
    }

    /// The directory that holds the folder.
    pub fn directory(&self) -> &Path {
        self.folder.parent().unwrap_or(&self.folder)
    }

    /// What was kept under a digest, if it is exactly what was written.
    pub fn get<R: DeserializeOwned>(&self, digest: &str) -> Option<Artifact<R>> {
        let body = self.body(digest)?;
        let (len, rest) = body.split_at_checked(4)?;
        let (report, image) = rest.split_at_checked(u32::from_le_bytes(len.try_into().ok()?) as usize)?;
        Some(Artifact { report: serde_json::from_slice(report).ok()?, image: image.to_vec() })
    }

    /// The bytes that were kept under a digest, report and image together, for somebody far away.
    pub fn bytes(&self, digest: &str) -> Option<Vec<u8>> {
        is_digest(digest).then(|| self.body(digest)).flatten()
    }

    /// Keeps bytes that [`Artifacts::bytes`] gave somewhere else, sealed with the key of this place. They are code:
    /// whoever calls this has checked that somebody who is trusted signed them.
    pub fn put_bytes(&self, digest: &str, body: &[u8]) -> Result<(), ArtifactError> {
        let parts = body.split_at_checked(4).and_then(|(len, rest)| {
            let (report, image) = rest.split_at_checked(u32::from_le_bytes(len.try_into().ok()?) as usize)?;
            let report = serde_json::from_slice::<serde_json::Value>(report).ok();
            report.filter(|_| !image.is_empty())
        });
        if !is_digest(digest) || parts.is_none() {
            return Err(ArtifactError(format!("{} bytes under '{digest:.64}' are no artifact", body.len())));
        }
        match self.body(digest) {
            Some(_) => Ok(()),
            None => self.write(digest, body),
        }
    }

    fn body(&self, digest: &str) -> Option<Vec<u8>> {
        let bytes = fs::read(self.folder.join(digest)).ok()?;
        let rest = bytes.strip_prefix(MAGIC)?;
        let (mac, body) = rest.split_at_checked(KEY)?;
        // blake3's comparison takes the same time wherever the difference is.
        if self.mac(digest, body) != <[u8; KEY]>::try_from(mac).ok()? {
            tracing::warn!("artifact {digest} was changed since it was written; it is built again");
            return None;
        }
        Some(body.to_vec())
    }

    /// Keeps a kernel: temporary file, fsync, rename. Two writers of one digest write the same bytes.
    pub fn put<R: Serialize>(&self, digest: &str, artifact: &Artifact<R>) -> Result<(), ArtifactError> {
        let report = serde_json::to_vec(&artifact.report).map_err(|e| ArtifactError(e.to_string()))?;
        let mut body = (report.len() as u32).to_le_bytes().to_vec();
        body.extend_from_slice(&report);
        body.extend_from_slice(&artifact.image);
        self.write(digest, &body)
    }

    fn write(&self, digest: &str, body: &[u8]) -> Result<(), ArtifactError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let unique = format!(".{digest}.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let temporary = self.folder.join(unique);
        let written = (|| {
            user_files::allowed(MAGIC.len() + KEY + body.len())?;
            let mut file = File::create(&temporary)?;
            file.write_all(MAGIC)?;
            file.write_all(self.mac(digest, body).as_bytes())?;
            file.write_all(body)?;
            file.sync_all()?;
            fs::rename(&temporary, self.folder.join(digest))?;
            // The name is safe once the folder is; some file systems cannot sync one.
            let _ = File::open(&self.folder).and_then(|f| f.sync_all());
            Ok(())
        })();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written.map_err(ArtifactError::at(digest))
    }

    fn mac(&self, digest: &str, body: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&(digest.len() as u64).to_le_bytes());
        hasher.update(digest.as_bytes());
        hasher.update(body);
        hasher.finalize()
    }
}

/// The user's key: made on first use, 0600. A key that is not whole, or that others could read, is replaced, and what it
/// sealed is built again; one that belongs to somebody else is refused.
fn key(folder: &Path) -> std::io::Result<[u8; KEY]> {
    let path = folder.join(KEY_FILE);
    for _ in 0..3 {
        match fs::symlink_metadata(&path) {
            Ok(meta) => {
                if meta.is_file() {
                    owned(&meta)?;
                }
                let sealed = if meta.is_file() && is_secret(&meta) { fs::read(&path).ok() } else { None };
                if let Some(key) = sealed.and_then(|bytes| <[u8; KEY]>::try_from(&bytes[..]).ok()) {
                    return Ok(key);
                }
                tracing::warn!("{} is no key that the user alone knew; it is made anew", path.display());
                fs::remove_file(&path)?;
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let mut key = [0u8; KEY];
        File::open("/dev/urandom")?.read_exact(&mut key)?;
        let temporary = folder.join(format!(".key.{}", std::process::id()));
        let _ = fs::remove_file(&temporary);
        let mut options = OpenOptions::new();
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.write(true).create_new(true).open(&temporary)?;
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

/// An error where something belongs to another user, or is a link.
#[cfg(unix)]
fn owned(meta: &fs::Metadata) -> std::io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let own = rustix::process::geteuid().as_raw();
    match () {
        () if meta.is_symlink() => Err(std::io::Error::other("it is a symbolic link: expected what it points to")),
        () if meta.uid() != own => {
            let (uid, remedy) = (meta.uid(), "remove it, or keep the store elsewhere");
            Err(std::io::Error::other(format!("it belongs to user {uid}, not to user {own}: {remedy}")))
        }
        () => Ok(()),
    }
}

#[cfg(not(unix))]
fn owned(_: &fs::Metadata) -> std::io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn is_secret(meta: &fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::mode(meta) & 0o077 == 0
}

#[cfg(not(unix))]
fn is_secret(_: &fs::Metadata) -> bool {
    true
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

    type Kept = Artifact<Vec<u32>>;

    fn kept() -> (tempfile::TempDir, Artifacts, Kept) {
        let folder = tempfile::tempdir().unwrap();
        let artifacts = Artifacts::open(folder.path()).unwrap();
        let artifact = Artifact { image: vec![7; 300], report: vec![90, 0] };
        artifacts.put("abc", &artifact).unwrap();
        (folder, artifacts, artifact)
    }

    #[test]
    fn what_was_kept_comes_back_also_for_the_next_process() {
        let (folder, artifacts, artifact) = kept();
        assert_eq!(artifacts.get("abc"), Some(artifact.clone()));
        assert_eq!(Artifacts::open(folder.path()).unwrap().get("abc"), Some(artifact));
        assert_eq!(artifacts.get::<Vec<u32>>("abd"), None);
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
            assert_eq!(artifacts.get::<Vec<u32>>("abc"), None, "byte {at}");
        }
        for len in [0, 5, MAGIC.len(), MAGIC.len() + 20, whole.len() - 1] {
            fs::write(&path, &whole[..len]).unwrap();
            assert_eq!(artifacts.get::<Vec<u32>>("abc"), None, "length {len}");
        }
    }

    #[test]
    fn a_renamed_file_and_another_users_key_are_refused() {
        let (folder, artifacts, _) = kept();
        let inside = folder.path().join("artifacts-v1");
        fs::copy(inside.join("abc"), inside.join("other")).unwrap();
        assert_eq!(artifacts.get::<Vec<u32>>("other"), None);
        fs::write(inside.join(KEY_FILE), [1; KEY]).unwrap();
        restrict(&inside.join(KEY_FILE), 0o600).unwrap();
        assert_eq!(Artifacts::open(folder.path()).unwrap().get::<Vec<u32>>("abc"), None);
    }

    #[test]
    fn bytes_travel_to_another_folder_under_another_key() {
        let (one, other) = (Artifacts::passing().unwrap(), Artifacts::passing().unwrap());
        let (digest, artifact) = ("0a".repeat(32), Kept { image: vec![7; 300], report: vec![90, 0] });
        one.put(&digest, &artifact).unwrap();
        let bytes = one.bytes(&digest).unwrap();
        other.put_bytes(&digest, &bytes).unwrap();
        assert_eq!(other.get(&digest), Some(artifact));
        assert_eq!(one.bytes("../artifacts-v1/key"), None);
        for (name, bad) in [("../x", &bytes[..]), (&digest[1..], &bytes), (&digest, &bytes[..3]), (&digest, &[9; 40])] {
            assert!(other.put_bytes(name, bad).is_err(), "{name}");
        }
    }

    #[test]
    fn a_passing_folder_goes_with_its_object_and_texts_are_not_run_together() {
        let passing = Artifacts::passing().unwrap();
        let directory = passing.directory().to_path_buf();
        passing.put("abc", &Kept { image: vec![1], report: vec![] }).unwrap();
        assert_eq!(passing.get::<Vec<u32>>("abc").unwrap().image, [1]);
        drop(passing);
        assert!(!directory.exists());
        assert_ne!(digest(["ab", "c"]), digest(["a", "bc"]));
    }

    #[cfg(unix)]
    #[test]
    fn the_key_is_for_the_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let (folder, ..) = kept();
        let mode = |p: &str| fs::metadata(folder.path().join(p)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("artifacts-v1"), mode("artifacts-v1/key")), (0o700, 0o600));
    }

    #[cfg(unix)]
    #[test]
    fn a_key_that_others_could_read_seals_nothing_any_more_and_anothers_is_refused() {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        let (folder, _, artifact) = kept();
        let path = folder.path().join("artifacts-v1/key");
        let open = || Artifacts::open(folder.path());
        assert_eq!(open().unwrap().get("abc"), Some(artifact));
        for mode in [0o644, 0o660, 0o606] {
            let before = fs::read(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(open().unwrap().get::<Vec<u32>>("abc"), None, "{mode:o}");
            assert_ne!(fs::read(&path).unwrap(), before, "{mode:o}: a new key");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        // A link to a file that somebody else knows.
        let known = folder.path().join("known");
        fs::write(&known, [1; KEY]).unwrap();
        fs::set_permissions(&known, fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(&path).unwrap();
        symlink(&known, &path).unwrap();
        open().unwrap();
        assert_ne!(fs::read(&path).unwrap(), [1; KEY]);
        assert_eq!(fs::read(&known).unwrap(), [1; KEY]);
        if rustix::process::geteuid().is_root() {
            chown(&path, Some(12345), None).unwrap();
            assert!(open().unwrap_err().to_string().contains("belongs to user 12345"));
            chown(&path, Some(0), None).unwrap();
            chown(path.parent().unwrap(), Some(12345), None).unwrap();
            assert!(open().unwrap_err().to_string().contains("belongs to user 12345"));
        }
    }
}
