//! The directory of a durable store: its segments and their manifest, for one store at a time.
//!
//! ```text
//! LOCK            held by the store that has the directory open
//! MANIFEST        the list of segments; replaced as a whole
//! MANIFEST.new    space for the next manifest, unless a crash could rename it to MANIFEST
//! 00000001.log    a segment: a page of head, then records
//! ```
//!
//! The space of a segment is reserved when it is made, so that a full disk refuses a segment, never
//! the middle of a commit.

mod error;
mod lock;
mod manifest;
mod replacement;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub use self::error::DirectoryError;
use self::lock::{Lock, lock};
use self::manifest::read_manifest;
pub(crate) use self::manifest::{Made, Manifest, Reached};
use super::place::SegmentId;
use super::segment::{FILE_HEAD_BYTES, Segment};
use super::types::Consistency;

/// Zeros that are written ahead of the log at a time.
const AHEAD_BYTES: usize = 256 * 1024;
/// Larger groups are written without zeros ahead of them.
const AHEAD_OF_BYTES_MAX: usize = AHEAD_BYTES / 8;
static ZEROS: [u8; AHEAD_BYTES] = [0; AHEAD_BYTES];
const MAGIC: &[u8; 8] = b"kneelog1";

/// An open directory.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    _lock: Lock,
    /// The open directory, to be synced even when the process may open no more files.
    itself: File,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    manifest: Manifest,
    /// Whether a crash could rename MANIFEST.new to MANIFEST: then it must not be overwritten.
    is_unsettled: bool,
    /// Segments that could not be made, but that a manifest on the disk may name. A recovery would miss them once a
    /// later segment is written to.
    withdrawn: Vec<SegmentId>,
    /// Files that are written.
    files: BTreeMap<SegmentId, Growing>,
}

/// The file of a segment that grows.
#[derive(Debug, Clone)]
struct Growing {
    file: Arc<File>,
    /// How much of the segment is in it.
    written: usize,
    /// Up to here it was written, with records or with zeros ahead of them.
    ahead: usize,
}

impl Directory {
    /// Opens a directory, and makes it if it is not there.
    pub(crate) fn open(
        path: &Path,
        consistency: Consistency,
    ) -> Result<(Directory, Manifest), DirectoryError> {
        let failed = |at: &Path| {
            let at = at.to_owned();
            move |error| DirectoryError::Io(at, error)
        };
        fs::create_dir_all(path).map_err(failed(path))?;
        let lock = lock(path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => DirectoryError::InUse(path.to_owned()),
            _ => DirectoryError::Io(path.join("LOCK"), error),
        })?;
        let manifest = read_manifest(path)?.unwrap_or_else(|| Manifest::new(consistency));
        if manifest.consistency != consistency {
            let made = manifest.consistency;
            let what =
                format!("it was made with {made} consistency, and is asked for {consistency}");
            return Err(DirectoryError::Other(path.to_owned(), what));
        }
        let open = Open {
            manifest: manifest.clone(),
            is_unsettled: false,
            withdrawn: Vec::new(),
            files: BTreeMap::new(),
        };
        let itself = File::open(path).map_err(failed(path))?;
        // The store before may have ended before its last rename was on the disk. From here on no crash turns
        // MANIFEST.new, which keeps its blocks for a full disk, into MANIFEST.
        itself.sync_all().map_err(failed(path))?;
        let directory =
            Directory { path: path.to_owned(), _lock: lock, itself, open: Mutex::new(open) };
        if !path.join("MANIFEST").exists() {
            let mut open = directory.state();
            directory.replace_manifest(&mut open, manifest.clone()).map_err(failed(path))?;
        }
        directory.reserve_manifest();
        directory.remove_orphans().map_err(failed(path))?;
        Ok((directory, manifest))
    }

    /// Removes files that a crash left before the manifest named them, or after it named them no longer.
    fn remove_orphans(&self) -> io::Result<()> {
        let open = self.state();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(".log")?.parse().ok());
            if id.is_some_and(|id| !open.manifest.segments.contains_key(&id)) {
                fs::remove_file(self.path.join(name))?;
            }
        }
        Ok(())
    }

    fn state(&self) -> std::sync::MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file of a segment.
    pub(crate) fn file(&self, id: SegmentId) -> PathBuf {
        self.path.join(format!("{id:08}.log"))
    }

    /// Makes a segment, its file with all its space, and enters it in the manifest.
    pub(crate) fn create(&self, id: SegmentId, bytes: usize) -> io::Result<Segment> {
        let salt = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), id) as u32;
        let segment = Segment::growing(id, salt, bytes)?;
        // There is at most one withdrawn segment: no other is made before it is gone.
        let mut open = self.state();
        if !open.withdrawn.is_empty() {
            let manifest = open.manifest.clone();
            self.replace_manifest(&mut open, manifest)?;
        }
        drop(open);
        let path = self.file(id);
        let entered = self
            .create_file(&path, id, salt, bytes)
            .and_then(|file| self.enter(id, Made { salt, bytes }, file));
        // The file goes if the segment cannot be used, unless a manifest may name it.
        entered.inspect_err(|_| {
            if !self.state().withdrawn.contains(&id) {
                let _ = fs::remove_file(&path);
            }
        })?;
        Ok(segment)
    }

    fn enter(&self, id: SegmentId, made: Made, file: File) -> io::Result<()> {
        let mut open = self.state();
        let mut manifest = open.manifest.clone();
        manifest.segments.insert(id, made);
        self.replace_manifest(&mut open, manifest).inspect_err(|_| {
            if open.manifest.segments.remove(&id).is_some() {
                open.withdrawn.push(id);
            }
        })?;
        open.files.insert(id, Growing { file: Arc::new(file), written: 0, ahead: 0 });
        Ok(())
    }

    /// Takes over a segment that was made before and never written to.
    pub(crate) fn take_over(&self, id: SegmentId, made: Made) -> io::Result<Segment> {
        let segment = Segment::growing(id, made.salt, made.bytes)?;
        let file = OpenOptions::new().read(true).write(true).open(self.file(id))?;
        self.state().files.insert(id, Growing { file: Arc::new(file), written: 0, ahead: 0 });
        Ok(segment)
    }

    fn create_file(&self, path: &Path, id: SegmentId, salt: u32, bytes: usize) -> io::Result<File> {
        let file =
            OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path)?;
        let length = FILE_HEAD_BYTES + bytes as u64;
        // SAFETY: a call with a descriptor that is open.
        let failed = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length as libc::off_t) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        file.write_all_at(&file_head(id, salt), 0)?;
        file.sync_all()?;
        Ok(file)
    }

    /// Writes a segment's records to its file; `safely` also syncs them.
    ///
    /// Zeros are written ahead of small groups that are synced. Without them, each group would be the first write to
    /// its reserved blocks, and fdatasync would wait for the file system's journal to note that.
    pub(crate) fn write(&self, segment: &Segment, safely: bool) -> io::Result<()> {
        let filled = segment.filled();
        let Some(growing) = self.state().files.get(&segment.id).cloned() else { return Ok(()) };
        let Growing { file, written: from, mut ahead } = growing;
        if from < filled {
            file.write_all_at(segment.written(from, filled), FILE_HEAD_BYTES + from as u64)?;
            if safely {
                if ahead < filled && filled - from <= AHEAD_OF_BYTES_MAX {
                    let end = segment.capacity().min(filled + AHEAD_BYTES);
                    let zeros = &ZEROS[..end - filled];
                    // A failure costs only time.
                    if file.write_all_at(zeros, FILE_HEAD_BYTES + filled as u64).is_ok() {
                        ahead = end;
                    }
                }
                file.sync_data()?;
            }
            if let Some(growing) = self.state().files.get_mut(&segment.id) {
                (growing.written, growing.ahead) = (filled, ahead);
            }
        }
        Ok(())
    }

    /// The same segment, read from its file, which is complete.
    pub(crate) fn open_sealed(&self, full: &Segment) -> io::Result<Segment> {
        let file = self.state().files.get(&full.id).map(|growing| Arc::clone(&growing.file));
        let sealed = match file {
            Some(file) => full.reopened(&file)?,
            None => full.reopened(&File::open(self.file(full.id))?)?,
        };
        self.state().files.remove(&full.id);
        Ok(sealed)
    }

    /// The file of a segment that a store wrote before.
    pub(crate) fn open_before(&self, id: SegmentId, salt: u32) -> Result<File, DirectoryError> {
        let path = self.file(id);
        let failed = |error| DirectoryError::Io(path.clone(), error);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(DirectoryError::Damaged(path, "it is missing".into()));
            }
            file => file.map_err(failed)?,
        };
        let mut head = [0; FILE_HEAD_BYTES as usize];
        let mut reader = &file;
        match reader.read_exact(&mut head) {
            Ok(()) if head == file_head(id, salt) => Ok(file),
            Ok(()) => Err(DirectoryError::Damaged(path, "its head is not this segment's".into())),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(DirectoryError::Damaged(path, "it was cut short, within its head".into()))
            }
            Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                Err(DirectoryError::Damaged(path, "the disk cannot read its head".into()))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Takes a segment out of the manifest, which notes how far the log has come; then removes its file.
    pub(crate) fn remove(&self, id: SegmentId, reached: Reached) -> io::Result<()> {
        let mut open = self.state();
        let mut manifest = open.manifest.clone();
        manifest.reach(reached);
        manifest.segments.remove(&id);
        self.replace_manifest(&mut open, manifest)?;
        open.files.remove(&id);
        fs::remove_file(self.file(id))
    }

    /// Notes in the manifest how far the log has come.
    pub(crate) fn note(&self, reached: Reached) -> io::Result<()> {
        let mut open = self.state();
        let mut manifest = open.manifest.clone();
        manifest.reach(reached);
        self.replace_manifest(&mut open, manifest)
    }

    /// Waits until all writes to all files of the file system are on the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        // SAFETY: a call with a descriptor that is open.
        match unsafe { libc::syncfs(self.itself.as_raw_fd()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Takes an unreadable segment out of the manifest, and renames its file.
    pub(crate) fn set_aside(&self, id: SegmentId) -> io::Result<()> {
        let mut open = self.state();
        let mut manifest = open.manifest.clone();
        manifest.segments.remove(&id);
        self.replace_manifest(&mut open, manifest)?;
        match fs::rename(self.file(id), self.path.join(format!("{id:08}.damaged"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn file_head(id: SegmentId, salt: u32) -> [u8; FILE_HEAD_BYTES as usize] {
    let mut head = [0; FILE_HEAD_BYTES as usize];
    head[..8].copy_from_slice(MAGIC);
    head[8..12].copy_from_slice(&id.to_le_bytes());
    head[12..16].copy_from_slice(&salt.to_le_bytes());
    head
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::record::{Kind, OnDisk, Record};

    /// How much of a segment its file has blocks for that were written.
    fn written_blocks(file: &Path) -> u64 {
        let file = File::open(file).unwrap();
        // SAFETY: a call with a descriptor that is open.
        let hole = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_HOLE) };
        u64::try_from(hole).unwrap() - FILE_HEAD_BYTES
    }

    #[test]
    fn blocks_are_written_ahead_of_small_groups_only() {
        let path = std::env::temp_dir().join(format!("knee-ahead-{}", std::process::id()));
        let (directory, _) = Directory::open(&path, Consistency::Linearizable).unwrap();
        let value = vec![7; AHEAD_OF_BYTES_MAX];
        let put = |segment: &Segment, value| {
            let kind = Kind::Put;
            segment.append(&Record { kind, value, ..Record::seal(1, OnDisk::default()) });
        };
        for (id, safely, value, ahead) in [
            (1, true, &value[..1], true),
            (2, true, &value[..], false),
            (3, false, &value[..1], false),
        ] {
            let segment = directory.create(id, 1 << 20).unwrap();
            put(&segment, value);
            directory.write(&segment, safely).unwrap();
            directory.sync().unwrap();
            let blocks = written_blocks(&directory.file(id));
            let least = segment.filled() + if ahead { AHEAD_BYTES } else { 0 };
            assert!(blocks >= least as u64, "{blocks} of segment {id}");
            // A file system that knows of no holes has blocks for all of it.
            assert!(
                blocks < (least + AHEAD_BYTES / 2) as u64 || blocks == 1 << 20,
                "{blocks} of segment {id}"
            );
        }
        // To the end and not beyond it, and what comes later is not lost behind zeros.
        let segment = directory.create(4, AHEAD_BYTES).unwrap();
        put(&segment, b"1");
        directory.write(&segment, true).unwrap();
        put(&segment, b"2");
        directory.write(&segment, true).unwrap();
        let file = fs::read(directory.file(4)).unwrap();
        assert_eq!(file.len() as u64, FILE_HEAD_BYTES + AHEAD_BYTES as u64);
        let records = segment.written(0, segment.filled());
        assert_eq!(file[FILE_HEAD_BYTES as usize..][..records.len()], *records);
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn failed_segment_leaves_the_manifest_with_the_next_one() {
        let path = std::env::temp_dir().join(format!("knee-withdrawn-{}", std::process::id()));
        let (mut directory, _) = Directory::open(&path, Consistency::Linearizable).unwrap();
        directory.create(1, 4096).unwrap();
        let itself = std::mem::replace(&mut directory.itself, File::open("/dev/null").unwrap());
        for id in 2..9 {
            directory.create(id, 4096).expect_err("it cannot be synced");
        }
        let files = |directory: &Directory| {
            (1..20).filter(|&id| directory.file(id).exists()).collect::<Vec<_>>()
        };
        assert_eq!(files(&directory).len(), 2);
        directory.itself = itself;
        directory.create(9, 4096).unwrap();
        let manifest = read_manifest(&path).unwrap().unwrap();
        assert_eq!(manifest.segments.into_keys().collect::<Vec<_>>(), [1, 9]);
        assert_eq!(files(&directory), [1, 9]);
        fs::remove_dir_all(path).unwrap();
    }
}
