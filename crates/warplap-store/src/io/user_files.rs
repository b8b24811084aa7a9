//! Files that a user names. To read: never more than asked for, and nobody waits for a pipe that stays silent. To write:
//! a regular file is put in its place whole, and what is none (a pipe, a terminal, `/dev/null`) is written through and
//! never replaced.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the other end of a pipe may be silent.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The bytes of a file, at most so many.
pub fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(OpenOptions::new().read(true), path)?;
    let mut bytes = Vec::new();
    if file.metadata()?.is_file() {
        (&file).take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    } else {
        from_pipe(&file, has_no_name(path), most, &mut bytes)?;
    }
    match bytes.len() as u64 > most {
        true => Err(io::Error::new(ErrorKind::FileTooLarge, format!("it has more than {most} bytes"))),
        false => Ok(bytes),
    }
}

/// The text of a file, at most so many bytes.
pub fn text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(bytes(path, most)?).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is no text"))
}

/// Writes a file: whole or not at all where it is a regular one or a new one, through it where it is anything else.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(meta) if !meta.is_file() => through(path, bytes),
        // The file behind a link, not the link.
        Ok(_) => in_place(&fs::canonicalize(path)?, bytes),
        Err(_) => in_place(path, bytes),
    }
}

/// An error where a file of so many bytes is more than the process may write: a system that was told so
/// (`ulimit -f`) would end it with a signal.
pub fn allowed(bytes: usize) -> io::Result<()> {
    #[cfg(unix)]
    {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if let Some(limit) = limit.filter(|limit| bytes as u64 > *limit) {
            let why = format!("{bytes} bytes are more than this process may write to a file ({limit}, ulimit -f)");
            return Err(io::Error::new(ErrorKind::FileTooLarge, why));
        }
    }
    Ok(())
}

/// Puts a file in its place by a rename. Its mode follows the user's umask.
fn in_place(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?.to_string_lossy();
    let part = path.with_file_name(format!(".{name}.{}-{:x}.part", std::process::id(), fastrand::u64(..)));
    let written = (|| {
        allowed(bytes.len())?;
        let mut file = OpenOptions::new().write(true).create_new(true).open(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part, path)
    })();
    written.inspect_err(|_| drop(fs::remove_file(&part)))
}

/// Writes to what is no regular file. A pipe whose other end nobody opens is an error in the end.
fn through(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let begun = Instant::now();
    let mut file = loop {
        match open(OpenOptions::new().write(true), path) {
            Err(e) if nobody_reads(&e) && has_no_name(path) => return Err(ErrorKind::BrokenPipe.into()),
            Err(e) if nobody_reads(&e) && begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(5)),
            Err(e) if nobody_reads(&e) => {
                return Err(io::Error::new(
                    ErrorKind::TimedOut,
                    format!("nobody read it for {} s", PATIENCE.as_secs()),
                ));
            }
            other => break other?,
        }
    };
    blocking(&file)?;
    file.write_all(bytes)?;
    file.flush()
}

/// Whether nobody can find a pipe by its name: whoever has its other end has it already (`/dev/stdin`, `<(…)`).
fn has_no_name(path: &Path) -> bool {
    fs::canonicalize(path).is_err()
}

/// Reads what is no regular file: it may say nothing yet, and is asked again until it was silent for too long.
fn from_pipe(mut file: &File, has_no_name: bool, most: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut heard = Instant::now();
    // Where there is another end: one without a name was given to somebody.
    let mut joined = has_no_name;
    let mut part = vec![0; 1 << 16];
    while bytes.len() as u64 <= most {
        match file.read(&mut part) {
            // A pipe that nobody has opened yet gives nothing either.
            Ok(0) if joined || !is_pipe(file) => return Ok(()),
            Ok(n) if n > 0 => {
                joined = true;
                bytes.extend_from_slice(&part[..n]);
                heard = Instant::now();
                continue;
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => joined = true,
            Err(e) if e.kind() != ErrorKind::Interrupted => return Err(e),
            _ => {}
        }
        if heard.elapsed() > PATIENCE {
            let why = format!("nobody wrote to it for {} s", PATIENCE.as_secs());
            return Err(io::Error::new(ErrorKind::TimedOut, why));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

#[cfg(unix)]
fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    // Opening a pipe would wait for its other end, opening a terminal make it ours.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    options.custom_flags(flags.bits() as i32).open(path)
}

#[cfg(unix)]
fn blocking(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags - rustix::fs::OFlags::NONBLOCK)?)
}

#[cfg(unix)]
fn nobody_reads(e: &io::Error) -> bool {
    e.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error())
}

#[cfg(unix)]
fn is_pipe(file: &File) -> bool {
    use std::os::unix::fs::FileTypeExt;
    file.metadata().is_ok_and(|m| m.file_type().is_fifo())
}

#[cfg(not(unix))]
fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.open(path)
}

#[cfg(not(unix))]
fn blocking(_: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
fn nobody_reads(_: &io::Error) -> bool {
    false
}

#[cfg(not(unix))]
fn is_pipe(_: &File) -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileTypeExt, symlink};

    fn pipe(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    #[test]
    fn a_pipe_and_a_device_are_written_through_and_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        pipe(&path);
        let heard = std::thread::scope(|scope| {
            let reader = scope.spawn(|| bytes(&path, 1 << 20).unwrap());
            write(&path, &vec![7; 200_000]).unwrap();
            reader.join().unwrap()
        });
        assert_eq!(heard, vec![7; 200_000]);
        assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
        write(Path::new("/dev/null"), b"x").unwrap();
        assert!(fs::symlink_metadata("/dev/null").unwrap().file_type().is_char_device());
        assert!(write(Path::new("/dev/full"), b"x").is_err());
        assert!(write(dir.path(), b"x").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_pipe_whose_other_end_has_gone_is_not_waited_for() {
        use std::os::fd::AsRawFd;
        let at = |end: &dyn AsRawFd| std::path::PathBuf::from(format!("/proc/self/fd/{}", end.as_raw_fd()));
        let begun = Instant::now();
        let (reader, writer) = io::pipe().unwrap();
        drop(writer);
        assert_eq!(bytes(&at(&reader), 10).unwrap(), b"");
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        assert_eq!(write(&at(&writer), b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        pipe(&path);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| bytes(&path, 10).unwrap());
            // It opens as soon as somebody reads, and is seen before it goes.
            let writer = OpenOptions::new().write(true).open(&path).unwrap();
            std::thread::sleep(Duration::from_millis(200));
            drop(writer);
            assert_eq!(reader.join().unwrap(), b"");
        });
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_file_is_replaced_whole_behind_a_link_too_and_no_more_is_read_than_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("file"), dir.path().join("link"));
        write(&path, b"one").unwrap();
        symlink(&path, &link).unwrap();
        write(&link, b"two").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!((bytes(&path, 3).unwrap(), text(&link, 9).unwrap()), (b"two".to_vec(), "two".to_string()));
        assert!(bytes(&path, 2).unwrap_err().to_string().contains("more than 2"));
        assert!(bytes(Path::new("/dev/zero"), 1000).is_err());
        assert_eq!(bytes(Path::new("/dev/null"), 1000).unwrap(), b"");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left behind");
    }
}
