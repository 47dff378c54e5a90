//! Stores for the tests, and their contents.

use std::collections::BTreeMap;
use std::fs;
use std::ops::{Bound, ControlFlow};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use knee_kv_cache::engine::Expiry;
use knee_kv_store::{
    Action, Condition, Consistency, DirectoryError, DirectoryOptions, Durability, ReadError,
    Report, Snapshot, Store, StoreOptions, Visited, Write,
};

pub(crate) const SEGMENT_BYTES: usize = 4096;

pub(crate) fn options(consistency: Consistency) -> StoreOptions {
    StoreOptions { consistency, stripes: 4, value_bytes_max: 2000, segment_bytes: SEGMENT_BYTES }
}

pub(crate) fn in_memory(consistency: Consistency) -> Store {
    Store::in_memory(options(consistency), 1 << 26).expect("memory")
}

/// A directory of a store whose writes wait for the disk.
pub(crate) fn durable(path: &Path, repair: bool) -> DirectoryOptions {
    DirectoryOptions { path: path.to_owned(), durability: Durability::Always, repair }
}

pub(crate) fn open(path: &Path) -> Result<Store, DirectoryError> {
    Store::open(options(Consistency::Linearizable), &durable(path, false), 1 << 26)
        .map(|(store, _)| store)
}

/// The repaired store, and its losses.
pub(crate) fn repaired(directory: &Directory) -> (Store, Report) {
    Store::open(options(Consistency::Linearizable), &durable(&directory.0, true), 1 << 26)
        .expect("opens")
}

pub(crate) fn put(value: &[u8]) -> Action<'_> {
    Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value }
}

pub(crate) fn act(store: &Store, key: &[u8], action: Action<'_>) -> u64 {
    let write = Write { key, condition: Condition::Always, action };
    store.write(&[write], None, 1).expect("it is taken").version
}

pub(crate) fn set(store: &Store, key: &[u8], to: &[u8]) -> u64 {
    act(store, key, put(to))
}

pub(crate) fn value(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    let shown = store.read(key, 1, |piece| {
        value.extend_from_slice(piece);
        true
    });
    shown.expect("nothing is damaged").found.map(|_| value)
}

pub(crate) fn value_at(
    store: &Store,
    key: &[u8],
    version: u64,
) -> Result<Option<Vec<u8>>, ReadError> {
    let mut value = Vec::new();
    let shown = store.read_at(key, version, 1, |piece| {
        value.extend_from_slice(piece);
        true
    });
    shown.found.map(|shown| shown.map(|_| value))
}

/// A temporary directory.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Directory {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("knee-kv-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        Directory(path)
    }

    /// Copies the files as a crash would leave them. The store stays open.
    pub(crate) fn copy(&self) -> Directory {
        let copy = Directory::new("copy");
        fs::create_dir(&copy.0).expect("it can be made");
        for (path, bytes) in self.contents() {
            let name = path.file_name().expect("it has one");
            fs::write(copy.0.join(name), bytes).expect("writable");
        }
        copy
    }

    pub(crate) fn segments(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).expect("the directory is there");
        let mut segments: Vec<PathBuf> = entries
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|name| name == "log"))
            .collect();
        segments.sort();
        segments
    }

    /// Damages the byte at `shift` from the first place of `text` in the segments. Returns the segment.
    pub(crate) fn spoil(&self, text: &[u8], shift: i64, byte: u8) -> PathBuf {
        let place = |path: &PathBuf| {
            let bytes = fs::read(path).expect("readable");
            bytes.windows(text.len()).position(|window| window == text)
        };
        let found = self.segments().into_iter().find_map(|path| Some((place(&path)?, path)));
        let (at, path) = found.expect("it is somewhere");
        let file = fs::File::options().write(true).open(&path).expect("writable");
        file.write_all_at(&[byte], (at as i64 + shift) as u64).expect("writable");
        path
    }

    pub(crate) fn contents(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = fs::read_dir(&self.0).expect("the directory is there");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.map(|path| (path.clone(), fs::read(path).expect("readable"))).collect()
    }

    pub(crate) fn restore(&self, contents: &[(PathBuf, Vec<u8>)]) {
        let _ = fs::remove_dir_all(&self.0);
        fs::create_dir(&self.0).expect("it can be made");
        for (path, bytes) in contents {
            fs::write(path, bytes).expect("writable");
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) fn scanned(store: &Store, snapshot: Option<&Snapshot>) -> Model {
    let mut found = Model::new();
    for stripe in 0..store.stripes() {
        let mut from = Some(Vec::new());
        while let Some(first) = from {
            let range = (Bound::Included(&first[..]), Bound::Unbounded);
            let visit = |visited: &Visited<'_>| {
                let mut value = Vec::new();
                visited.value(|piece| {
                    value.extend_from_slice(piece);
                    true
                })?;
                assert!(found.insert(visited.key.to_vec(), value).is_none(), "shown twice");
                Ok(ControlFlow::Continue(()))
            };
            let scanned = store.scan_stripe(stripe, snapshot, range, 2, 1, visit);
            from = scanned.expect("nothing is damaged").next;
        }
    }
    found
}

/// Writes values of 100 equal bytes under `key0`, `key1`, …; returns the contents.
pub(crate) fn written(directory: &Directory, keys: usize) -> Model {
    let store = open(&directory.0).expect("opens");
    let mut model = Model::new();
    for number in 0..keys {
        let (key, value) =
            (format!("key{number}").into_bytes(), vec![b'a' + (number % 26) as u8; 100]);
        let write = Write { key: &key, condition: Condition::Absent, action: put(&value) };
        let committed = store.write(&[write], None, 1).expect("it is taken");
        store.sync(committed.sequence).expect("the disk takes it");
        model.insert(key, value);
    }
    model
}

/// Waits until `holds` returns true, for effects of the keeper.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "{what} did not come");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
