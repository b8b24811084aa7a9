//! The thin layer between the store and the file system: every step that can fail goes through here, so that a test can
//! make the k-th one fail, or end the process before it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

/// One kind of step on the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Opening a file for reading.
    Open,
    /// Creating a file that must not be there yet.
    Create,
    /// Writing half of the bytes.
    Write,
    /// Making a file's bytes durable.
    Sync,
    /// Putting a whole file in its place.
    Rename,
    /// Removing a file.
    Remove,
    /// Creating a directory.
    CreateDir,
    /// Making a directory's entries durable.
    SyncDir,
    /// Opening or taking a lock file.
    Lock,
}

/// Called before each step; an error is what the step answers instead of being done.
pub trait Hook: Send + Sync {
    /// May fail, or never return.
    fn before(&self, step: Step, path: &Path) -> io::Result<()>;
}

/// The file system, with a test's hook in front of it where there is one.
#[derive(Clone, Default)]
pub struct Files(Option<Arc<dyn Hook>>);

impl Files {
    /// A file system whose steps ask the hook first.
    pub fn with_hook(hook: Arc<dyn Hook>) -> Self {
        Files(Some(hook))
    }

    fn ask(&self, step: Step, path: &Path) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |hook| hook.before(step, path))
    }

    /// A file's bytes, at most `limit`. Never follows a link, never waits for a pipe, takes nobody else's file.
    pub(crate) fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, ReadError> {
        self.read_with(path, limit).map(|(bytes, _)| bytes)
    }

    /// As [`Files::read`], with what the file system says of the file.
    pub(crate) fn read_with(&self, path: &Path, limit: u64) -> Result<(Vec<u8>, fs::Metadata), ReadError> {
        self.ask(Step::Open, path)?;
        let file = no_follow(OpenOptions::new().read(true)).open(path).map_err(|e| match e.raw_os_error() {
            Some(code) if code == loop_error() => ReadError::Bad("it is a symbolic link".into()),
            _ => ReadError::Io(e),
        })?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(ReadError::Bad("it is not a regular file".into()));
        }
        if let Some(why) = crate::backends::trust::distrust(&meta) {
            return Err(ReadError::Bad(why));
        }
        if meta.len() > limit {
            return Err(ReadError::Bad(format!("it has {} bytes, more than {limit}", meta.len())));
        }
        let mut bytes = Vec::with_capacity(meta.len() as usize + 1);
        (&file).take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(ReadError::Bad(format!("it has more than {limit} bytes")));
        }
        Ok((bytes, meta))
    }

    pub(crate) fn create(&self, path: &Path) -> io::Result<File> {
        self.ask(Step::Create, path)?;
        no_follow(OpenOptions::new().write(true).create_new(true)).open(path)
    }

    pub(crate) fn write(&self, file: &mut File, path: &Path, bytes: &[u8]) -> io::Result<()> {
        // In two halves, so that a test can stop between them.
        let (first, second) = bytes.split_at(bytes.len() / 2);
        self.ask(Step::Write, path)?;
        crate::io::user_files::allowed(bytes.len())?;
        if self.0.is_none() {
            return file.write_all(bytes);
        }
        file.write_all(first)?;
        self.ask(Step::Write, path)?;
        file.write_all(second)
    }

    pub(crate) fn sync(&self, file: &File, path: &Path) -> io::Result<()> {
        self.ask(Step::Sync, path)?;
        file.sync_all()
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.ask(Step::Rename, to)?;
        fs::rename(from, to)
    }

    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        self.ask(Step::Remove, path)?;
        fs::remove_file(path)
    }

    pub(crate) fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.ask(Step::CreateDir, path)?;
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(path)
    }

    pub(crate) fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.ask(Step::SyncDir, path)?;
        if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
    }

    pub(crate) fn open_lock(&self, path: &Path) -> io::Result<File> {
        self.ask(Step::Lock, path)?;
        no_follow(OpenOptions::new().read(true).write(true).create(true).truncate(false)).open(path)
    }

    /// Takes the lock of an open file; `Ok(false)` when somebody else has it.
    pub(crate) fn try_lock(&self, file: &File, path: &Path) -> io::Result<bool> {
        self.ask(Step::Lock, path)?;
        match file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    /// Waits for the lock of an open file.
    pub(crate) fn lock(&self, file: &File, path: &Path) -> io::Result<()> {
        self.ask(Step::Lock, path)?;
        loop {
            match file.lock() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

/// Why a file could not be read.
pub(crate) enum ReadError {
    /// The file system said no: nothing is known about the file.
    Io(io::Error),
    /// The file is there and is not one of ours.
    Bad(String),
}

impl From<io::Error> for ReadError {
    fn from(e: io::Error) -> Self {
        ReadError::Io(e)
    }
}

#[cfg(unix)]
fn no_follow(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    // NONBLOCK: opening a planted pipe must not wait for its other end.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NONBLOCK;
    options.mode(0o600).custom_flags(flags.bits() as i32)
}

#[cfg(not(unix))]
fn no_follow(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

#[cfg(unix)]
fn loop_error() -> i32 {
    rustix::io::Errno::LOOP.raw_os_error()
}

#[cfg(not(unix))]
fn loop_error() -> i32 {
    i32::MIN
}
