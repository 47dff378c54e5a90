//! A copy of the store as it was at one commit, in a directory of its own, while others write.
//!
//! It is made under another name, `.NAME.partial`, and has its own when it is whole and on the disk: a
//! directory with that name is a whole copy, whatever happened. What a process that was killed left
//! of one is removed by the next.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::directory::{self, Directory, DirectoryError};
use super::log::{Durability, Forgotten, Log, Recovered, Unwritable};
use super::record::{Kind, OnDisk, Record, Sequence};
use super::store::{Consistency, Store, lock};
use super::table::{Damage, Table, View};
use super::write::{Growing, pieces};
use crate::engine::{Expiry, Version};

/// Bytes that are copied under one lock, and one value more.
const STEP_BYTES: usize = 1 << 20;
/// Keys that are looked at under one lock.
const STEP_KEYS: usize = 1024;

/// How the names of copies that are being made begin and end.
const UNFINISHED: (&str, &str) = (".", ".partial");

/// Why there is no copy. Nothing of it is left.
#[derive(Debug)]
pub enum BackupError {
    /// There is something where the copy was to be made.
    Occupied(PathBuf),
    /// Somebody else makes one of that name.
    InUse(PathBuf),
    /// The system refused something.
    Io(PathBuf, io::Error),
    /// The directory could not be made.
    Directory(DirectoryError),
    /// The log of the copy takes nothing: its disk may be full.
    Log(Unwritable),
    /// The store itself could not be made safe.
    Store(Unwritable),
    /// What was to be copied cannot be read.
    Damage(Damage),
}

impl std::fmt::Display for BackupError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BackupError::Occupied(path) => {
                write!(f, "{}: it is not an empty directory: name another one", path.display())
            }
            BackupError::InUse(path) => {
                write!(f, "{}: somebody else makes this copy: name another one", path.display())
            }
            BackupError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            BackupError::Directory(error) => write!(f, "{error}"),
            BackupError::Log(Unwritable::Full(why) | Unwritable::Broken(why)) => {
                write!(f, "the copy could not be written: {why}")
            }
            BackupError::Store(Unwritable::Full(why) | Unwritable::Broken(why)) => {
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

/// Removes what processes that are gone left of copies in a directory, and returns the names of that.
///
/// # Errors
/// When the system refuses it.
pub fn remove_unfinished_copies(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_unfinished = |name: &str| {
            name.strip_prefix(UNFINISHED.0).is_some_and(|name| name.ends_with(UNFINISHED.1))
        };
        let name = path.file_name().and_then(OsStr::to_str);
        if name.is_some_and(is_unfinished) && remove_unfinished(&path)? {
            removed.push(path);
        }
    }
    Ok(removed)
}

/// Removes an unfinished copy, if there is one that nobody makes. Returns whether there was.
fn remove_unfinished(partial: &Path) -> io::Result<bool> {
    match directory::lock(partial) {
        // Held until it is gone.
        Ok(_lock) => fs::remove_dir_all(partial).map(|()| true),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::WouldBlock) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

impl Store {
    /// Copies the store as it is now, its newest versions and no older ones, into a directory that
    /// does not exist, or is empty, and returns the last commit that is in the copy. Others may write
    /// meanwhile. [`Store::open`] opens the copy.
    ///
    /// # Errors
    /// See [`BackupError`].
    pub fn backup(&self, path: &Path) -> Result<Sequence, BackupError> {
        // Of two, one makes it, and only that one takes away what is there of it.
        if !lock(&self.0.copying).insert(path.to_owned()) {
            return Err(BackupError::InUse(path.to_owned()));
        }
        let made = self.make_copy(path);
        lock(&self.0.copying).remove(path);
        made
    }

    fn make_copy(&self, path: &Path) -> Result<Sequence, BackupError> {
        let told = |path: &Path| {
            let path = path.to_owned();
            move |error| BackupError::Io(path, error)
        };
        match fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
            Ok(true) => {}
            Ok(false) => return Err(BackupError::Occupied(path.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(told(path)(error)),
        }
        let mut name = OsString::from(UNFINISHED.0);
        name.push(path.file_name().unwrap_or_default());
        name.push(UNFINISHED.1);
        let partial = path.with_file_name(name);
        remove_unfinished(&partial).map_err(told(&partial))?;
        // Of two processes, one makes it.
        fs::create_dir(&partial).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => BackupError::InUse(path.to_owned()),
            _ => told(&partial)(error),
        })?;
        let made = self.copy_to(&partial).and_then(|sequence| {
            fs::rename(&partial, path).map_err(told(path))?;
            let parent = match path.parent() {
                Some(parent) if parent != Path::new("") => parent,
                _ => Path::new("."),
            };
            File::open(parent).and_then(|parent| parent.sync_all()).map_err(told(parent))?;
            Ok(sequence)
        });
        let is_own = !matches!(made, Err(BackupError::Directory(DirectoryError::InUse(_))));
        if made.is_err() && is_own {
            let _ = fs::remove_dir_all(&partial);
        }
        made
    }

    fn copy_to(&self, path: &Path) -> Result<Sequence, BackupError> {
        let snapshot = self.snapshot();
        let sequence = snapshot.sequence();
        self.sync(sequence).map_err(BackupError::Store)?;
        let consistency = self.0.options.consistency;
        let (directory, _) = Directory::open(path, consistency).map_err(BackupError::Directory)?;
        let recovered = Recovered { last: sequence, ..Recovered::nothing() };
        // It is written whenever a segment is full, and in the end.
        let written = Some((directory, Durability::Interval(0)));
        let (_, bytes_max) = self.0.log.bytes();
        let log = Log::new(written, recovered, self.0.options.segment_bytes, bytes_max)
            .map_err(|error| BackupError::Io(path.to_owned(), error))?;
        let mut copy = Copied { log, segment_bytes: self.0.options.segment_bytes, unwritten: 0 };
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

    /// Some keys of a stripe as they were at a commit, and the key to go on with.
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
                // Where versions count the writes of a key, its last one is not to be forgotten.
                None if counts && table.first_sequence(slot) <= at => {
                    keys.push(Key::gone(key, at, table.newest_version(slot)));
                }
                None => {}
            }
        }
        Ok(None)
    }
}

/// A key as it is to be copied.
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

/// A copy as it grows.
struct Copied {
    log: Log,
    segment_bytes: usize,
    /// Bytes that are not on the disk.
    unwritten: usize,
}

impl Copied {
    /// Adds a key: its records are those of a commit of long ago.
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
            self.log.begin_move(&record, true)?.append_moved(&record);
            self.unwritten += record.bytes();
        }
        if self.unwritten >= self.segment_bytes {
            self.log.write_out()?;
            self.unwritten = 0;
        }
        Ok(())
    }
}
