//! A directory's files with the keys of its segments: see `keys`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{MutexGuard, PoisonError};

use super::Directory;
use super::keys::{Keys, Known, file_bytes_max};
use super::manifest::Made;
use super::replacement::reserve;
use crate::place::SegmentId;

impl Directory {
    pub(super) fn keys(&self) -> MutexGuard<'_, BTreeMap<SegmentId, Keys>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn keys_file(&self, id: SegmentId) -> PathBuf {
        self.path.join(format!("{id:08}.keys"))
    }

    /// Reserves the space for the keys of a segment, if the disk has it: without the list, a repair is less precise.
    /// Overwrites earlier keys: a crash may have kept them, but not their records. The file keeps its blocks: a full disk
    /// may have no others.
    pub(super) fn new_keys(&self, id: SegmentId, made: Made) -> io::Result<Keys> {
        let path = self.keys_file(id);
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        let earlier = file.metadata()?.len() as usize;
        let _ = reserve(&file, file_bytes_max(made.bytes));
        if earlier > 0 {
            file.write_all_at(&vec![0; earlier], 0)?;
            // A power cut must not bring the earlier keys back.
            file.sync_data()?;
        }
        Ok(Keys::new(file, made.salt))
    }

    /// Writes the keys of all growing segments out. The log is on the disk up to `settled`.
    pub(crate) fn write_keys(&self, settled: u64) {
        let mut all = self.keys();
        all.values_mut().for_each(|keys| keys.write_out(settled));
        let growing = self.files();
        all.retain(|id, _| growing.contains_key(id));
    }

    /// Writes the keys of a segment that a recovery has read anew.
    pub(crate) fn rewrite_keys(&self, id: SegmentId, made: Made, records: &[u8]) -> io::Result<()> {
        let mut keys = self.new_keys(id, made)?;
        keys.add(records);
        keys.sealed().map_or(Ok(()), |file| file.sync_data())
    }

    pub(crate) fn known_keys(&self, id: SegmentId, made: Made) -> Known {
        Known::read(&self.keys_file(id), made.salt)
    }
}
