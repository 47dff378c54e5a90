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
    Occupied,
    /// Another copy of that name is being made, or was left unfinished.
    InUse,
    /// The system refused something.
    Io(io::Error),
    /// The copy is complete, but its rename is not on the disk: a power failure may undo it.
    Unsettled(io::Error),
    /// The log of the copy refuses writes: its disk may be full.
    Log(Unwritable),
    /// The store's own log could not be synced.
    Store(Unwritable),
    /// A record of the store cannot be read.
    Damage(Damage),
}

impl From<Damage> for BackupError {
    fn from(damage: Damage) -> BackupError {
        BackupError::Damage(damage)
    }
}

impl From<io::Error> for BackupError {
    fn from(error: io::Error) -> BackupError {
        match error.kind() {
            io::ErrorKind::NotADirectory | io::ErrorKind::DirectoryNotEmpty => {
                BackupError::Occupied
            }
            io::ErrorKind::AlreadyExists => BackupError::InUse,
            _ => BackupError::Io(error),
        }
    }
}

impl From<Unwritable> for BackupError {
    fn from(unwritable: Unwritable) -> BackupError {
        BackupError::Log(unwritable)
    }
}

/// Removes the unfinished copies in a directory, and returns their paths. A copy that cannot be removed stays: no copy
/// can have its name.
///
/// # Errors
/// When the system cannot list the directory.
pub fn remove_unfinished_copies(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_unfinished = |name: &str| {
            name.strip_prefix(UNFINISHED.0).is_some_and(|name| name.ends_with(UNFINISHED.1))
        };
        let name = path.file_name().and_then(OsStr::to_str);
        if name.is_some_and(is_unfinished) {
            // A directory without a lock holds no store.
            let gone = match path.join("LOCK").exists() {
                true => fs::remove_dir_all(&path),
                false => fs::remove_dir(&path),
            };
            removed.extend(gone.is_ok().then_some(path));
        }
    }
    Ok(removed)
}

impl Store {
    /// Copies the newest versions of all keys into a directory that does not exist, or is empty. Returns the last
    /// commit in the copy. Other threads may write during the copy. [`Store::open`] opens the copy.
    ///
    /// # Errors
    /// See [`BackupError`].
    pub fn backup(&self, path: &Path) -> Result<Sequence, BackupError> {
        match fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
            Ok(true) => {}
            Ok(false) => return Err(BackupError::Occupied),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let mut name = OsString::from(UNFINISHED.0);
        name.push(path.file_name().unwrap_or_default());
        name.push(UNFINISHED.1);
        let partial = path.with_file_name(name);
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let parent = File::open(parent)?;
        fs::create_dir(&partial)?;
        let made = self
            .copy_to(&partial)
            .and_then(|sequence| {
                fs::rename(&partial, path)?;
                Ok(sequence)
            })
            .inspect_err(|_| {
                let _ = fs::remove_dir_all(&partial);
            })?;
        parent.sync_all().map_err(BackupError::Unsettled)?;
        Ok(made)
    }

    /// Returns the last commit of the copy.
    fn copy_to(&self, path: &Path) -> Result<Sequence, BackupError> {
        let snapshot = self.snapshot();
        let sequence = snapshot.sequence();
        self.sync(sequence).map_err(BackupError::Store)?;
        let consistency = self.0.options.consistency;
        let opened =
            Directory::open(path, consistency, Repair::No).map_err(|error| match error {
                DirectoryError::Io(_, error) => BackupError::Io(error),
                other => BackupError::Io(io::Error::other(other.to_string())),
            })?;
        let segment_bytes = self.0.options.segment_bytes;
        let recovered = Recovered { last: sequence, ..Recovered::nothing(segment_bytes) };
        // The copy is synced when a segment is full, and at the end: no timer syncs it.
        let written = Some((opened.directory, Durability::Interval(0)));
        // A copy in key order may take more segments than the original log.
        let log = Log::new(written, recovered, u64::MAX).map_err(BackupError::Io)?;
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
