//! A directory's files with the keys of its segments: see `keys`.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

use super::Directory;
use super::keys::{Keys, Known, name};
use super::manifest::Made;
use crate::place::SegmentId;

impl Directory {
    pub(super) fn keys(&self) -> MutexGuard<'_, BTreeMap<SegmentId, Keys>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn new_keys(&self, id: SegmentId, salt: u32) -> Keys {
        Keys::new(self.path.join(name(id)), salt)
    }

    /// Writes the keys of all growing segments out. The log is on the disk up to `settled`.
    pub(crate) fn write_keys(&self, settled: u64) {
        let mut all = self.keys();
        all.values_mut().for_each(|keys| keys.write_out(settled));
        let growing = self.files();
        let full: Vec<_> = all.keys().copied().filter(|id| !growing.contains_key(id)).collect();
        let full: Vec<_> = full.iter().filter_map(|id| all.remove(id)).collect();
        drop((all, growing));
        full.iter().for_each(Keys::sync);
    }

    /// Writes the keys of a segment that a recovery has read anew.
    pub(crate) fn rewrite_keys(&self, id: SegmentId, made: Made, records: &[u8]) {
        let mut keys = self.new_keys(id, made.salt);
        keys.add(records);
        keys.write_out(0);
    }

    /// What the directory knows about the keys of a segment.
    pub(crate) fn known_keys(&self, id: SegmentId, made: Made) -> Known {
        Known::read(&self.path.join(name(id)), made.salt)
    }
}
