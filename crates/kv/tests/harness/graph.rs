//! Stores with graphs.

use std::collections::BTreeMap;
use std::fs;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use knee_kv::graph::{Edge, LoadOptions, MARK_PREFIX, Progress};
use knee_kv_store::{Consistency, DirectoryOptions, Durability, Store, StoreOptions, Visited};

pub(crate) const NOW: u32 = 1;

pub(crate) fn options(consistency: Consistency) -> StoreOptions {
    StoreOptions { consistency, stripes: 4, value_bytes_max: 16 << 20, segment_bytes: 4 << 20 }
}

pub(crate) fn open(path: &Path, consistency: Consistency) -> Store {
    let directory =
        DirectoryOptions { path: path.to_owned(), durability: Durability::Always, repair: false };
    let options =
        StoreOptions { segment_bytes: 128 << 10, value_bytes_max: 100_000, ..options(consistency) };
    Store::open(options, &directory, 1 << 30).expect("it opens").0
}

/// A temporary directory.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Directory {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("knee-kv-graph-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) type Followers = BTreeMap<u64, Vec<u64>>;

pub(crate) fn followers(edges: &[Edge]) -> Followers {
    let mut followers = Followers::new();
    for edge in edges {
        followers.entry(edge.user).or_default().push(edge.follower);
    }
    followers
}

pub(crate) fn stored(store: &Store) -> Followers {
    let mut found = Followers::new();
    for stripe in 0..store.stripes() {
        let range = (Bound::Unbounded, Bound::Unbounded);
        let visit = |visited: &Visited<'_>| {
            let (key, mut value) = (visited.key, Vec::new());
            visited.value(|piece| {
                value.extend_from_slice(piece);
                true
            })?;
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it is text");
            if !key.starts_with(MARK_PREFIX.as_bytes()) {
                let numbers =
                    text(&value).lines().map(|line| line.parse().expect("a number")).collect();
                assert!(value.ends_with(b"\n"));
                found.insert(text(key).parse().expect("a number"), numbers);
            }
            Ok(ControlFlow::Continue(()))
        };
        let more = store.scan_stripe(stripe, None, range, usize::MAX, NOW, visit);
        assert_eq!(more.expect("nothing is damaged").next, None);
    }
    found
}

pub(crate) fn text(edges: &[Edge]) -> Vec<u8> {
    let lines = edges.iter().map(|Edge { user, follower }| format!("{user}\t{follower}\n"));
    lines.collect::<String>().into_bytes()
}

pub(crate) fn on(_: &Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

pub(crate) fn named(name: &str, commit_edges: usize) -> LoadOptions<'_> {
    LoadOptions { name, commit_edges, now: || NOW }
}
