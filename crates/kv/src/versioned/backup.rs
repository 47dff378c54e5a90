//! A copy of the store as it was at one commit, in a directory of its own, while others write.
//!
//! It is made under another name, `.NAME.partial`, and has its own when it is whole and on the disk: a
//! directory with that name is a whole copy, whatever happened. What a process that was killed left
//! of one is removed by the next. Who makes one has it locked until it has its name, and nobody removes
//! what he has not locked.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::{self, Directory, DirectoryError, Lock};
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
/// Longest name of a copy, in bytes: that of an unfinished one is to be a name, too.
pub(crate) const COPY_NAME_BYTES_MAX: usize = 255 - UNFINISHED.0.len() - UNFINISHED.1.len();

/// Why there is no copy, and nothing of it is left; or, if it is [`BackupError::Unsettled`], why it may
/// not last.
#[derive(Debug)]
pub enum BackupError {
    /// There is something where the copy was to be made.
    Occupied(PathBuf),
    /// Somebody else makes one of that name.
    InUse(PathBuf),
    /// The system refused something.
    Io(PathBuf, io::Error),
    /// It is there, and whole, but a failure of the power may take it.
    Unsettled(PathBuf, io::Error),
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
            BackupError::Unsettled(path, error) => write!(
                f,
                "{}: the copy is there and whole, but a failure of the power may take it: {error}",
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

/// What there was of copies that nobody makes any more.
#[derive(Debug, Default)]
pub struct Unfinished {
    /// Those that were removed.
    pub removed: Vec<PathBuf>,
    /// What has such a name and could not be removed, if it ever was a copy.
    pub left: Vec<(PathBuf, io::Error)>,
}

/// Removes what processes that are gone left of copies in a directory.
///
/// # Errors
/// When the system does not say what is in it.
pub fn remove_unfinished_copies(directory: &Path) -> io::Result<Unfinished> {
    let mut found = Unfinished::default();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_unfinished = |name: &str| {
            name.strip_prefix(UNFINISHED.0).is_some_and(|name| name.ends_with(UNFINISHED.1))
        };
        let name = path.file_name().and_then(OsStr::to_str);
        if name.is_some_and(is_unfinished) {
            match remove_unfinished(&path) {
                Ok(true) => found.removed.push(path),
                Ok(false) => {}
                Err(error) => found.left.push((path, error)),
            }
        }
    }
    Ok(found)
}

/// Removes an unfinished copy, if there is one that nobody makes. Returns whether there was.
///
/// # Errors
/// When there is something that a copy never was: no directory, or one with files that nobody locks.
fn remove_unfinished(partial: &Path) -> io::Result<bool> {
    match directory::lock_again(partial) {
        // Held until it is gone.
        Ok(_lock) => fs::remove_dir_all(partial).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        // Whoever made it came no further; or comes to it now, and makes it again.
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::remove_dir(partial) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true),
        },
        Err(error) => Err(error),
    }
}

/// The place of a copy that is being made.
struct Making<'a> {
    store: &'a Store,
    path: &'a Path,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        lock(&self.store.0.copying).remove(self.path);
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
        // Of two, one makes it.
        if !lock(&self.0.copying).insert(path.to_owned()) {
            return Err(BackupError::InUse(path.to_owned()));
        }
        let _making = Making { store: self, path };
        self.make_copy(path)
    }

    fn make_copy(&self, path: &Path) -> Result<Sequence, BackupError> {
        let told = |path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| match error.kind() {
                io::ErrorKind::NotADirectory | io::ErrorKind::DirectoryNotEmpty => {
                    BackupError::Occupied(path)
                }
                _ => BackupError::Io(path, error),
            }
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
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let parent = File::open(parent).map_err(told(parent))?;
        let made = self.copy_to(&partial).and_then(|(sequence, _held)| {
            fs::rename(&partial, path).map_err(told(path))?;
            Ok(sequence)
        });
        let sequence = made.map_err(|error| match error {
            // What somebody else makes, or is about to, is his: were it removed, nobody might make one.
            BackupError::Directory(DirectoryError::InUse(_)) => BackupError::InUse(path.to_owned()),
            // Somebody else took what was not locked yet for what nobody makes, and makes it himself.
            BackupError::Directory(DirectoryError::Io(file, cause))
                if file.starts_with(&partial)
                    && matches!(
                        cause.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists
                    ) =>
            {
                BackupError::InUse(path.to_owned())
            }
            error => {
                let _ = remove_unfinished(&partial);
                error
            }
        })?;
        parent.sync_all().map_err(|error| BackupError::Unsettled(path.to_owned(), error))?;
        Ok(sequence)
    }

    /// The last commit of the copy, and what keeps it locked.
    fn copy_to(&self, path: &Path) -> Result<(Sequence, Arc<Lock>), BackupError> {
        let snapshot = self.snapshot();
        let sequence = snapshot.sequence();
        self.sync(sequence).map_err(BackupError::Store)?;
        let consistency = self.0.options.consistency;
        let told = |error| BackupError::Io(path.to_owned(), error);
        let (directory, manifest) =
            Directory::open(path, consistency).map_err(BackupError::Directory)?;
        // Somebody else's copy has just failed, and he is about to remove it.
        if !manifest.segments.is_empty() {
            return Err(BackupError::Directory(DirectoryError::InUse(path.to_owned())));
        }
        let held = directory.held();
        let recovered = Recovered { last: sequence, ..Recovered::nothing() };
        // It is written whenever a segment is full, and in the end.
        let written = Some((directory, Durability::Interval(0)));
        // Nobody writes more to it: key by key it may take more segments than the log that it is of.
        let log =
            Log::new(written, recovered, self.0.options.segment_bytes, u64::MAX).map_err(told)?;
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
        Ok((sequence, held))
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
