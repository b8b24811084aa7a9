//! Memory that a cell and its caller share: so many bytes come in; a file without a name that both can reach goes out.
//!
//! The caller reads and writes it as a file and never maps it: whatever a kernel does to it, this process is only told
//! other bytes. The content ends where the file ends, so that forbidden memory begins right behind it; what lies before
//! it, and behind it up to the next cache line, is a band whose bytes are known.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Files have a multiple of this many bytes: a multiple of every page size there is.
const GRAIN: u64 = 64 << 10;
/// Content begins on a cache line.
const LINE: u64 = 64;
/// Bytes of the band before the content that are looked at.
const BAND: u64 = 4096;
/// What bands hold.
const MARK: u8 = 0xa5;

/// Shared memory.
#[derive(Debug)]
pub(crate) struct Memory {
    id: u64,
    file: File,
    whole: u64,
    at: u64,
    len: u64,
}

impl Memory {
    /// Memory for so many bytes.
    pub(crate) fn new(len: u64) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // At least a line in front: a write before the content is seen or faults.
        let whole = (len.next_multiple_of(LINE) + LINE).next_multiple_of(GRAIN);
        let memory = Memory {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            file: shared(whole)?,
            whole,
            at: whole - len.next_multiple_of(LINE),
            len,
        };
        for (start, bytes) in memory.bands() {
            memory.file.write_all_at(&vec![MARK; bytes], start)?;
        }
        Ok(memory)
    }

    /// Which one it is, in this process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Where its content begins in the file.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Bytes of the file.
    pub(crate) fn whole(&self) -> u64 {
        self.whole
    }

    /// The file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Puts in the whole content.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() as u64 != self.len {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the content has another length"));
        }
        self.file.write_all_at(bytes, self.at)
    }

    /// The whole content.
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.len).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, self.at)?;
        Ok(bytes)
    }

    /// A part of the content, from so many bytes behind its beginning.
    pub(crate) fn read_part(&self, from: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let mut part = vec![0; bytes];
        self.file.read_exact_at(&mut part, self.at + from)?;
        Ok(part)
    }

    fn bands(&self) -> [(u64, usize); 2] {
        let (front, end) = (self.at.min(BAND), self.at + self.len);
        [(self.at - front, front as usize), (end, (self.whole - end) as usize)]
    }

    /// Where somebody wrote beside the content, if so, in bytes from its beginning. The bands are mended: nobody else
    /// is blamed for it.
    pub(crate) fn trespass(&self) -> io::Result<Option<i64>> {
        let mut result = None;
        let mut bytes = [0; BAND as usize];
        for (start, len) in self.bands() {
            let band = &mut bytes[..len];
            self.file.read_exact_at(band, start)?;
            if let Some(at) = band.iter().position(|b| *b != MARK) {
                result = result.or(Some((start + at as u64) as i64 - self.at as i64));
                band.fill(MARK);
                self.file.write_all_at(band, start)?;
            }
        }
        Ok(result)
    }
}

/// A file of so many bytes that has no name, and whose length nobody can change.
#[cfg(target_os = "linux")]
fn shared(bytes: u64) -> io::Result<File> {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    let file = File::from(memfd_create("warplap", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.set_len(bytes)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// The same where there is no such memory: a file that is removed at once.
#[cfg(not(target_os = "linux"))]
fn shared(bytes: u64) -> io::Result<File> {
    let file = tempfile::tempfile()?;
    file.set_len(bytes)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ends_at_the_end_of_the_file_and_a_byte_beside_it_is_seen_once() {
        for len in [1, 63, 64, 4000, GRAIN - 1, GRAIN, 3 * GRAIN + 5] {
            let memory = Memory::new(len).unwrap();
            let content = vec![7; len as usize];
            memory.write(&content).unwrap();
            assert!(
                memory.whole() - memory.at() - len < LINE && memory.at().is_multiple_of(LINE) && memory.at() >= LINE
            );
            assert_eq!(memory.trespass().unwrap(), None);
            for beside in [-1, -64, len as i64].into_iter().filter(|at| memory.at() as i64 + at < memory.whole() as i64)
            {
                memory.file.write_all_at(&[0], (memory.at() as i64 + beside) as u64).unwrap();
                assert_eq!(memory.trespass().unwrap(), Some(beside), "{len}");
                assert_eq!(memory.trespass().unwrap(), None, "{len}");
            }
            assert_eq!(memory.read().unwrap(), content);
        }
        assert!(Memory::new(5).unwrap().write(&[1; 6]).is_err());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn nobody_can_cut_it_short_under_another_reader() {
        let memory = Memory::new(100).unwrap();
        assert!(memory.file.set_len(0).is_err() && memory.file.set_len(1 << 30).is_err());
    }
}
