//! The directory of a durable store: its segments and their manifest, for one store at a time.
//!
//! ```text
//! LOCK            held by the store that has the directory open
//! MANIFEST        the list of segments, with a checksum
//! MANIFEST.copy   the same; overwritten once MANIFEST is on the disk, or before it is overwritten
//! 00000001.log    a segment: a page of head, then records
//! 00000001.keys   the keys of its records: see `keys`
//! ```
//!
//! If both copies of the manifest are damaged, a repair makes a new one from the heads of the segments' files: see
//! `heads`.
//!
//! Making a segment reserves its space. So a full disk can refuse a new segment, but cannot
//! interrupt a commit.

mod copies;
mod error;
mod heads;
mod keys;
mod listing;
mod lock;
mod manifest;
mod replacement;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::copies::{Copies, Fault};
pub use self::error::DirectoryError;
use self::heads::{file_head, rebuilt, segment_heads, segment_number};
use self::keys::Keys;
pub(crate) use self::keys::{Entry, Known, key_sum};
use self::lock::{Lock, lock};
use self::manifest::Manifest;
pub(crate) use self::manifest::{Made, Reached};
use super::place::SegmentId;
use super::segment::{FILE_HEAD_BYTES, Segment};
use super::types::Consistency;

/// Zeros that one write puts ahead of the log.
const AHEAD_BYTES: usize = 256 * 1024;
/// Larger groups are written without zeros ahead of them.
const AHEAD_OF_BYTES_MAX: usize = AHEAD_BYTES / 8;
static ZEROS: [u8; AHEAD_BYTES] = [0; AHEAD_BYTES];

/// Whether a directory opens without its damaged parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repair {
    /// It does not open.
    No,
    /// It opens in memory, and its files stay as they are.
    Dry,
    /// It opens.
    Yes,
}

#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    _lock: Lock,
    /// The open directory. It can be synced even when the process may open no more files.
    itself: File,
    open: Mutex<Open>,
    /// Open files of growing segments. Not in `open`, which is locked while the manifest is synced.
    files: Mutex<BTreeMap<SegmentId, Growing>>,
    keys: Mutex<BTreeMap<SegmentId, Keys>>,
    /// Whether its files stay as they are.
    is_dry: bool,
}

#[derive(Debug)]
struct Open {
    manifest: Manifest,
    /// The number of a copy that is whole on the disk. It is overwritten after the other one.
    settled: usize,
    /// Segments that could not be made, but that a manifest on the disk may name. Once a later segment has records, a
    /// recovery would report these as missing.
    withdrawn: Vec<SegmentId>,
}

#[derive(Debug, Clone)]
struct Growing {
    file: Arc<File>,
    /// Bytes of the segment that the file has.
    written: usize,
    /// Bytes of the segment that are on the disk.
    synced: usize,
    /// End of the written bytes in the file: records, and zeros ahead of them.
    ahead: usize,
}

impl Growing {
    fn new(file: File) -> Growing {
        Growing { file: Arc::new(file), written: 0, synced: 0, ahead: 0 }
    }
}

#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) directory: Directory,
    pub(crate) manifest: Manifest,
    /// Damaged copies of the manifest.
    pub(crate) faults: Vec<Fault>,
    /// Whether the manifest was made from the segments. Such a manifest is not yet on the disk, and lacks what was
    /// reached.
    pub(crate) is_rebuilt: bool,
}

impl Directory {
    /// Opens a directory; makes a missing one. A manifest without a whole copy is an error, unless this is a `repair`.
    /// A dry repair changes no file: it acts in memory.
    pub(crate) fn open(
        path: &Path,
        consistency: Consistency,
        repair: Repair,
    ) -> Result<Opened, DirectoryError> {
        let failed = |at: &Path| {
            let at = at.to_owned();
            move |error| DirectoryError::Io(at, error)
        };
        let is_dry = repair == Repair::Dry;
        if !is_dry {
            fs::create_dir_all(path).map_err(failed(path))?;
        }
        let lock = lock(path, !is_dry).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => DirectoryError::InUse(path.to_owned()),
            _ => DirectoryError::Io(path.join("LOCK"), error),
        })?;
        let Copies { newest, are_same, are_missing, mut faults } = Copies::read(path)?;
        let heads = match newest {
            Some(_) => Vec::new(),
            None => segment_heads(path).map_err(failed(path))?,
        };
        let mut is_rebuilt = false;
        let (manifest, settled) = match newest {
            Some(newest) => newest,
            None if are_missing && heads.is_empty() => {
                faults.clear();
                (Manifest::new(consistency), 1)
            }
            None if repair != Repair::No => {
                is_rebuilt = true;
                (rebuilt(&heads, consistency), 1)
            }
            None => {
                let [(one, what), (_, what_else)] = &faults[..] else {
                    unreachable!("both copies have a fault")
                };
                let what = format!("{what}; its copy: {what_else}");
                return Err(DirectoryError::Damaged(one.clone(), what));
            }
        };
        if manifest.consistency != consistency {
            let made = manifest.consistency;
            let what = format!("made with {made} consistency; {consistency} was requested");
            return Err(DirectoryError::Other(path.to_owned(), what));
        }
        let open = Open { manifest: manifest.clone(), settled, withdrawn: Vec::new() };
        let itself = File::open(path).map_err(failed(path))?;
        let directory = Directory {
            path: path.to_owned(),
            _lock: lock,
            itself,
            open: Mutex::new(open),
            files: Mutex::default(),
            keys: Mutex::default(),
            is_dry,
        };
        if !are_same && !is_rebuilt {
            let mut open = directory.state();
            directory.replace_manifest(&mut open, manifest.clone()).map_err(failed(path))?;
        }
        directory.remove_orphans().map_err(failed(path))?;
        if !is_dry {
            directory.itself.sync_all().map_err(failed(path))?;
        }
        Ok(Opened { directory, manifest, faults, is_rebuilt })
    }

    /// Removes files of segments that the manifest does not name: a crash may leave such files.
    fn remove_orphans(&self) -> io::Result<()> {
        if self.is_dry {
            return Ok(());
        }
        let open = self.state();
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            let is_orphan = |id| !open.manifest.segments.contains_key(&id);
            if [".log", ".keys"].iter().any(|of| segment_number(&path, of).is_some_and(is_orphan)) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<SegmentId, Growing>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self, id: SegmentId) -> PathBuf {
        self.path.join(format!("{id:08}.log"))
    }

    /// Makes a segment and its file, reserves all its space, and adds it to the manifest.
    pub(crate) fn create(&self, id: SegmentId, bytes: usize) -> io::Result<Segment> {
        let salt = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), id) as u32;
        let segment = Segment::growing(id, salt, bytes)?;
        if self.is_dry {
            return Ok(segment);
        }
        // At most one segment is withdrawn: no other one is made before it has left the manifest.
        let mut open = self.state();
        if !open.withdrawn.is_empty() {
            let manifest = open.manifest.clone();
            self.replace_manifest(&mut open, manifest)?;
        }
        drop(open);
        let path = self.file(id);
        let entered = self
            .create_files(&path, id, Made { salt, bytes })
            .and_then(|(file, keys)| self.enter(id, Made { salt, bytes }, file, keys));
        // Remove the file of an unusable segment, unless a manifest may name it.
        entered.inspect_err(|_| {
            if !self.state().withdrawn.contains(&id) {
                let _ = self.remove_files(id);
            }
        })?;
        Ok(segment)
    }

    fn enter(&self, id: SegmentId, made: Made, file: File, keys: Keys) -> io::Result<()> {
        let mut open = self.state();
        let mut manifest = open.manifest.clone();
        manifest.segments.insert(id, made);
        self.replace_manifest(&mut open, manifest).inspect_err(|_| {
            if open.manifest.segments.remove(&id).is_some() {
                open.withdrawn.push(id);
            }
        })?;
        self.enter_files(id, file, keys);
        Ok(())
    }

    fn enter_files(&self, id: SegmentId, file: File, keys: Keys) {
        self.files().insert(id, Growing::new(file));
        self.keys().insert(id, keys);
    }

    /// Takes over an earlier segment without records.
    pub(crate) fn take_over(&self, id: SegmentId, made: Made) -> io::Result<Segment> {
        let segment = Segment::growing(id, made.salt, made.bytes)?;
        if self.is_dry {
            return Ok(segment);
        }
        let file = OpenOptions::new().read(true).write(true).open(self.file(id))?;
        self.enter_files(id, file, self.new_keys(id, made)?);
        Ok(segment)
    }

    fn create_files(&self, path: &Path, id: SegmentId, made: Made) -> io::Result<(File, Keys)> {
        let file =
            OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path)?;
        let length = FILE_HEAD_BYTES + made.bytes as u64;
        // SAFETY: a call with a descriptor that is open.
        let failed = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length as libc::off_t) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        let consistency = self.state().manifest.consistency;
        file.write_all_at(&file_head(id, made, consistency), 0)?;
        file.sync_all()?;
        let keys = self.new_keys(id, made)?;
        // The manifest must not name a file whose name a power cut takes away.
        self.itself.sync_all()?;
        Ok((file, keys))
    }

    /// Hands a segment's records before `end` to the system, perhaps with zeros `ahead` of them.
    ///
    /// Zeros go ahead of small groups that are synced next. Otherwise each group would be the first write to reserved
    /// blocks. Then fdatasync would wait for the journal of the file system.
    pub(crate) fn write(&self, segment: &Segment, end: usize, ahead: bool) -> io::Result<()> {
        let filled = segment.filled().min(end);
        let Some(growing) = self.files().get(&segment.id).cloned() else { return Ok(()) };
        let Growing { file, written: from, ahead: mut zeroed, .. } = growing;
        if from < filled {
            let records = segment.written(from, filled);
            file.write_all_at(records, FILE_HEAD_BYTES + from as u64)?;
            if let Some(keys) = self.keys().get_mut(&segment.id) {
                keys.add(records);
            }
            if ahead && zeroed < filled && filled - from <= AHEAD_OF_BYTES_MAX {
                let end = segment.capacity().min(filled + AHEAD_BYTES);
                let zeros = &ZEROS[..end - filled];
                // A failure here only makes later syncs slower.
                if file.write_all_at(zeros, FILE_HEAD_BYTES + filled as u64).is_ok() {
                    zeroed = end;
                }
            }
            if let Some(growing) = self.files().get_mut(&segment.id) {
                (growing.written, growing.ahead) = (filled, zeroed);
            }
        }
        Ok(())
    }

    /// Waits until the written records of a growing segment are on the disk.
    pub(crate) fn sync_file(&self, id: SegmentId) -> io::Result<()> {
        let Some(Growing { file, written, synced, .. }) = self.files().get(&id).cloned() else {
            return Ok(());
        };
        if synced < written {
            file.sync_data()?;
            let keys = self.keys().get(&id).and_then(Keys::sealed);
            let _ = keys.map(|keys| keys.sync_data());
            if let Some(growing) = self.files().get_mut(&id) {
                growing.synced = written;
            }
        }
        Ok(())
    }

    /// Whether a dry repair opened it.
    pub(crate) fn is_dry(&self) -> bool {
        self.is_dry
    }

    /// Reopens a full segment from its complete file.
    pub(crate) fn open_sealed(&self, full: &Segment) -> io::Result<Segment> {
        let file = self.files().get(&full.id).map(|growing| Arc::clone(&growing.file));
        let sealed = match file {
            Some(file) => full.reopened(&file)?,
            None => full.reopened(&File::open(self.file(full.id))?)?,
        };
        self.files().remove(&full.id);
        Ok(sealed)
    }

    /// Opens the file of a segment that an earlier process wrote.
    pub(crate) fn open_before(&self, id: SegmentId, made: Made) -> Result<File, DirectoryError> {
        let path = self.file(id);
        let consistency = self.state().manifest.consistency;
        let failed = |error| DirectoryError::Io(path.clone(), error);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(DirectoryError::Damaged(path, "missing".into()));
            }
            file => file.map_err(failed)?,
        };
        let mut head = [0; FILE_HEAD_BYTES as usize];
        let mut reader = &file;
        match reader.read_exact(&mut head) {
            Ok(()) if head == file_head(id, made, consistency) => Ok(file),
            Ok(()) => {
                Err(DirectoryError::Damaged(path, "the head belongs to another segment".into()))
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(DirectoryError::Damaged(path, "cut short within the head".into()))
            }
            Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                Err(DirectoryError::Damaged(path, "the disk cannot read the head".into()))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Removes a segment from the manifest, which also records `reached`; then removes its file.
    pub(crate) fn remove(&self, id: SegmentId, reached: Reached) -> io::Result<()> {
        let mut open = self.state();
        let mut manifest = open.manifest.clone();
        manifest.reach(reached);
        manifest.segments.remove(&id);
        self.replace_manifest(&mut open, manifest)?;
        self.files().remove(&id);
        self.keys().remove(&id);
        if self.is_dry {
            return Ok(());
        }
        self.remove_files(id)
    }

    fn remove_files(&self, id: SegmentId) -> io::Result<()> {
        let _ = fs::remove_file(self.keys_file(id));
        fs::remove_file(self.file(id))
    }

    /// Records in the manifest how far the log has come.
    pub(crate) fn note(&self, reached: Reached) -> io::Result<()> {
        let mut open = self.state();
        let mut manifest = open.manifest.clone();
        manifest.reach(reached);
        self.replace_manifest(&mut open, manifest)
    }

    /// Waits until all writes to all files of the file system are on the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        if self.is_dry {
            return Ok(());
        }
        // SAFETY: a call with a descriptor that is open.
        match unsafe { libc::syncfs(self.itself.as_raw_fd()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Renames the file of an unreadable segment, and removes it from the manifest, once all else is on the disk: until
    /// then it shows the damage. A repair that is killed in between finds a missing file.
    pub(crate) fn set_aside(&self, id: SegmentId) -> io::Result<()> {
        self.sync()?;
        let mut open = self.state();
        let mut manifest = open.manifest.clone();
        manifest.segments.remove(&id);
        if !self.is_dry {
            match fs::rename(self.file(id), self.path.join(format!("{id:08}.damaged"))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => self.itself.sync_all()?,
            }
        }
        self.replace_manifest(&mut open, manifest)?;
        if !self.is_dry {
            let _ = fs::remove_file(self.keys_file(id));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::record::{Kind, OnDisk, Record};

    /// Bytes of a segment for which its file has written blocks.
    fn written_blocks(file: &Path) -> u64 {
        let file = File::open(file).unwrap();
        // SAFETY: a call with a descriptor that is open.
        let hole = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_HOLE) };
        u64::try_from(hole).unwrap() - FILE_HEAD_BYTES
    }

    #[test]
    fn blocks_are_written_ahead_of_small_groups_only() {
        let path = std::env::temp_dir().join(format!("knee-ahead-{}", std::process::id()));
        let opened = Directory::open(&path, Consistency::Linearizable, Repair::No).unwrap();
        let directory = opened.directory;
        let value = vec![7; AHEAD_OF_BYTES_MAX];
        let put = |segment: &Segment, value| {
            let kind = Kind::Put;
            segment.append(&Record { kind, value, ..Record::seal(1, OnDisk::default()) });
        };
        for (id, is_ahead, value, ahead) in [
            (1, true, &value[..1], true),
            (2, true, &value[..], false),
            (3, false, &value[..1], false),
        ] {
            let segment = directory.create(id, 1 << 20).unwrap();
            put(&segment, value);
            directory.write(&segment, usize::MAX, is_ahead).unwrap();
            directory.sync().unwrap();
            let blocks = written_blocks(&directory.file(id));
            let least = segment.filled() + if ahead { AHEAD_BYTES } else { 0 };
            assert!(blocks >= least as u64, "{blocks} of segment {id}");
            // A file system without holes has blocks for the whole file.
            assert!(
                blocks < (least + AHEAD_BYTES / 2) as u64 || blocks == 1 << 20,
                "{blocks} of segment {id}"
            );
        }
        // Zeros end at the end of the segment, and later records replace them.
        let segment = directory.create(4, AHEAD_BYTES).unwrap();
        put(&segment, b"1");
        directory.write(&segment, usize::MAX, true).unwrap();
        put(&segment, b"2");
        directory.write(&segment, usize::MAX, true).unwrap();
        let file = fs::read(directory.file(4)).unwrap();
        assert_eq!(file.len() as u64, FILE_HEAD_BYTES + AHEAD_BYTES as u64);
        let records = segment.written(0, segment.filled());
        assert_eq!(file[FILE_HEAD_BYTES as usize..][..records.len()], *records);
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn failed_segment_leaves_the_manifest_with_the_next_one() {
        let path = std::env::temp_dir().join(format!("knee-withdrawn-{}", std::process::id()));
        let directory =
            Directory::open(&path, Consistency::Linearizable, Repair::No).unwrap().directory;
        directory.create(1, 4096).unwrap();
        let (copy, aside) = (path.join("MANIFEST.copy"), path.join("aside"));
        fs::rename(&copy, &aside).unwrap();
        std::os::unix::fs::symlink("/dev/full", &copy).unwrap();
        for id in 2..9 {
            directory.create(id, 4096).expect_err("it cannot be written");
        }
        let files = |directory: &Directory| {
            (1..20).filter(|&id| directory.file(id).exists()).collect::<Vec<_>>()
        };
        assert_eq!(files(&directory).len(), 2);
        fs::rename(aside, copy).unwrap();
        directory.create(9, 4096).unwrap();
        let manifest = directory.state().manifest.clone();
        assert_eq!(manifest.segments.into_keys().collect::<Vec<_>>(), [1, 9]);
        assert_eq!(files(&directory), [1, 9]);
        fs::remove_dir_all(path).unwrap();
    }
}
