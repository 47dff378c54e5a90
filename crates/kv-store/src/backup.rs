//! Copies the store as of one commit into a directory, while other threads write.
//!
//! The copy has the name `.NAME.partial` until it is complete and on the disk. A directory of copies belongs to one
//! server, which removes unfinished copies at its start.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use knee_kv_cache::engine::{Expiry, Version};

use super::action::{Growing, pieces};
use super::directory::{Directory, DirectoryError, Repair};
use super::log::{Forgotten, Log, Recovered};
use super::record::{Kind, OnDisk, Record, Sequence};
use super::store::Store;
use super::table::{Damage, Table, View};
use super::types::{Consistency, Durability, Unwritable};

/// Bytes that are copied under one lock; the last value may exceed them.
const STEP_BYTES: usize = 1 << 20;
/// Number of keys that are visited under one lock.
const STEP_KEYS: usize = 1024;

/// Prefix and suffix of the name of an unfinished copy.
const UNFINISHED: (&str, &str) = (".", ".partial");
/// Longest name of a copy, in bytes. The name of an unfinished copy is longer.
pub const COPY_NAME_BYTES_MAX: usize = 255 - UNFINISHED.0.len() - UNFINISHED.1.len();

/// Why a copy failed. Its files are removed, unless the error is [`BackupError::Unsettled`].
#[derive(Debug)]
pub enum BackupError {
    /// The directory of the copy is not empty.
    Occupied(PathBuf),
    /// Another copy of that name is being made, or was left unfinished in this directory.
    InUse(PathBuf),
    /// The system refused something.
    Io(PathBuf, io::Error),
    /// The copy is complete, but its rename is not on the disk: a power failure may undo it.
    Unsettled(PathBuf, io::Error),
    /// The directory could not be made.
    Directory(DirectoryError),
    /// The log of the copy refuses writes: its disk may be full.
    Log(Unwritable),
    /// The store's own log could not be synced.
    Store(Unwritable),
    /// A record of the store cannot be read.
    Damage(Damage),
}

impl std::fmt::Display for BackupError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BackupError::Occupied(path) => {
                write!(f, "{}: not an empty directory; name another one", path.display())
            }
            BackupError::InUse(path) => {
                write!(
                    f,
                    "{}: another copy of this name is being made, or was left unfinished; name another one, or \
                     remove that directory",
                    path.display()
                )
            }
            BackupError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            BackupError::Unsettled(path, error) => write!(
                f,
                "{}: the copy is complete, but a power failure may undo it: {error}",
                path.display()
            ),
            BackupError::Directory(error) => write!(f, "{error}"),
            BackupError::Log(why) => write!(f, "the copy could not be written: {why}"),
            BackupError::Store(why) => {
                write!(f, "the store cannot be copied, its log failed: {why}")
            }
            BackupError::Damage(damage) => write!(f, "{damage}"),
        }
    }
}

impl std::error::Error for BackupError {}

impl From<Damage> for BackupError {
    fn from(damage: Damage) -> BackupError {
        BackupError::Damage(damage)
    }
}

impl From<Unwritable> for BackupError {
    fn from(unwritable: Unwritable) -> BackupError {
        BackupError::Log(unwritable)
    }
}

/// Copies that an earlier server did not finish.
#[derive(Debug, Default)]
pub struct Unfinished {
    /// Removed copies.
    pub removed: Vec<PathBuf>,
    /// Copies that could not be removed.
    pub left: Vec<(PathBuf, io::Error)>,
}

/// Removes the unfinished copies in a directory.
///
/// # Errors
/// When the system cannot list the directory.
pub fn remove_unfinished_copies(directory: &Path) -> io::Result<Unfinished> {
    let mut found = Unfinished::default();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_unfinished = |name: &str| {
            name.strip_prefix(UNFINISHED.0).is_some_and(|name| name.ends_with(UNFINISHED.1))
        };
        let name = path.file_name().and_then(OsStr::to_str);
        if name.is_some_and(is_unfinished) {
            // A directory without a lock holds no store.
            let removed = match path.join("LOCK").exists() {
                true => fs::remove_dir_all(&path),
                false => fs::remove_dir(&path),
            };
            match removed {
                Ok(()) => found.removed.push(path),
                Err(error) => found.left.push((path, error)),
            }
        }
    }
    Ok(found)
}

impl Store {
    /// Copies the newest versions of all keys into a directory that does not exist, or is empty. Returns the last
    /// commit in the copy. Other threads may write during the copy. [`Store::open`] opens the copy.
    ///
    /// # Errors
    /// See [`BackupError`].
    pub fn backup(&self, path: &Path) -> Result<Sequence, BackupError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| match error.kind() {
                io::ErrorKind::NotADirectory | io::ErrorKind::DirectoryNotEmpty => {
                    BackupError::Occupied(path)
                }
                io::ErrorKind::AlreadyExists => BackupError::InUse(path),
                _ => BackupError::Io(path, error),
            }
        };
        match fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
            Ok(true) => {}
            Ok(false) => return Err(BackupError::Occupied(path.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(path)(error)),
        }
        let mut name = OsString::from(UNFINISHED.0);
        name.push(path.file_name().unwrap_or_default());
        name.push(UNFINISHED.1);
        let partial = path.with_file_name(name);
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let parent = File::open(parent).map_err(failed(parent))?;
        fs::create_dir(&partial).map_err(failed(&partial))?;
        let made = self
            .copy_to(&partial)
            .and_then(|sequence| {
                fs::rename(&partial, path).map_err(failed(path))?;
                Ok(sequence)
            })
            .inspect_err(|_| {
                let _ = fs::remove_dir_all(&partial);
            })?;
        parent.sync_all().map_err(|error| BackupError::Unsettled(path.to_owned(), error))?;
        Ok(made)
    }

    /// Returns the last commit of the copy.
    fn copy_to(&self, path: &Path) -> Result<Sequence, BackupError> {
        let snapshot = self.snapshot();
        let sequence = snapshot.sequence();
        self.sync(sequence).map_err(BackupError::Store)?;
        let consistency = self.0.options.consistency;
        let opened =
            Directory::open(path, consistency, Repair::No).map_err(BackupError::Directory)?;
        let segment_bytes = self.0.options.segment_bytes;
        let recovered = Recovered { last: sequence, ..Recovered::nothing(segment_bytes) };
        // The copy is synced when a segment is full, and at the end: no timer syncs it.
        let written = Some((opened.directory, Durability::Interval(0)));
        // A copy in key order may take more segments than the original log.
        let log = Log::new(written, recovered, u64::MAX)
            .map_err(|error| BackupError::Io(path.to_owned(), error))?;
        let mut copy = Copied { log, segment_bytes, unwritten: 0 };
        let mut keys = Vec::new();
        for stripe in 0..self.stripes() {
            let mut from = Some(Vec::new());
            while let Some(first) = from {
                from = self.keys_from(stripe, &first, sequence, &mut keys)?;
                keys.drain(..).try_for_each(|key| copy.add(&key))?;
            }
        }
        copy.log.note(Forgotten { compacted: sequence, ..self.forgotten() })?;
        copy.log.close()?;
        Ok(sequence)
    }

    /// Returns some keys of a stripe as of a commit, and the key to resume at.
    fn keys_from(
        &self,
        stripe: usize,
        first: &[u8],
        at: Sequence,
        keys: &mut Vec<Key>,
    ) -> Result<Option<Vec<u8>>, Damage> {
        let table = self.stripe(stripe);
        let counts = self.0.options.consistency == Consistency::Sequential;
        let mut bytes = 0;
        for (visited, slot) in table.slots_from(first)?.enumerate() {
            let (key, view) = table.key_and_view(slot, at)?;
            if visited == STEP_KEYS || bytes >= STEP_BYTES {
                return Ok(Some(key.to_vec()));
            }
            match view {
                Some(view) => {
                    let key = Key::there(&table, key, &view)?;
                    bytes += key.value.len();
                    keys.push(key);
                }
                // A deleted key keeps its last version number: a later write continues from it.
                None if counts && table.first_sequence(slot) <= at => {
                    keys.push(Key::gone(key, at, table.newest_version(slot)));
                }
                None => {}
            }
        }
        Ok(None)
    }
}

/// A key to copy.
struct Key {
    key: Vec<u8>,
    kind: Kind,
    sequence: Sequence,
    version: Version,
    flags: u32,
    expiry: Expiry,
    marks: u8,
    value: Vec<u8>,
}

impl Key {
    fn there(table: &Table, key: &[u8], view: &View) -> Result<Key, Damage> {
        let &View { sequence, version, flags, expiry, marks, value_bytes, .. } = view;
        let mut value = Vec::with_capacity(value_bytes);
        table.pieces(view, |piece| {
            value.extend_from_slice(piece);
            true
        })?;
        let key = key.to_vec();
        Ok(Key { key, kind: Kind::Put, sequence, version, flags, expiry, marks, value })
    }

    fn gone(key: &[u8], sequence: Sequence, version: Version) -> Key {
        let (key, value, expiry) = (key.to_vec(), Vec::new(), Expiry::NEVER);
        Key { key, kind: Kind::Delete, sequence, version, flags: 0, expiry, marks: 0, value }
    }
}

/// A copy in progress.
struct Copied {
    log: Log,
    segment_bytes: usize,
    /// Bytes not yet on the disk.
    unwritten: usize,
}

impl Copied {
    /// Appends the records of a key.
    fn add(&mut self, key: &Key) -> Result<(), Unwritable> {
        let mut growing = Growing::default();
        for (part, (kind, value)) in pieces(key.kind, &key.value).enumerate() {
            let record = Record {
                kind,
                sequence: key.sequence,
                part: part as u32,
                version: key.version,
                flags: key.flags,
                expiry: key.expiry,
                marks: key.marks,
                more: false,
                first: false,
                moved: true,
                on_disk: OnDisk::default(),
                request: None,
                growth: growing.grow((key.sequence, part as u32), kind, value.len()),
                key: &key.key,
                value,
            };
            self.log.begin_move(&record)?.append_moved(&record);
            self.unwritten += record.bytes();
        }
        if self.unwritten >= self.segment_bytes {
            self.log.write_out()?;
            self.unwritten = 0;
        }
        Ok(())
    }
}
