//! Replaces a directory's manifest.
//!
//! A new manifest overwrites one copy, and the other one once the first is on the disk. So after a crash at least one
//! is whole, and a damaged copy costs nothing. The manifest takes effect once both copies are on the disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::copies::NAMES;
use super::manifest::Manifest;
use super::{Directory, Open};
use crate::segment::FILE_HEAD_BYTES;

/// Bytes of the checksum after a manifest's text: eight digits between two line ends.
const CHECKSUM_BYTES: usize = 10;
/// Least number of bytes that a manifest can grow without another block: the record of a removed segment needs them.
const MANIFEST_ROOM_MIN: usize = 256;

impl Directory {
    /// Replaces both copies of the manifest. After a failure this process uses the new one, although a crash may leave
    /// the old one; except if there was no space for it.
    pub(super) fn replace_manifest(&self, open: &mut Open, manifest: Manifest) -> io::Result<()> {
        let number = open.manifest.number + 1;
        let manifest = Manifest { number, ..manifest };
        if self.is_dry {
            open.manifest = manifest;
            return Ok(());
        }
        let paths = NAMES.map(|name| self.path.join(name));
        let is_made = !paths.iter().all(|path| path.exists());
        let [one, other] = &paths;
        let files = [written(one)?, written(other)?];
        // The copies keep their blocks: a full disk must take the manifest that frees a segment.
        let reserved = files[open.settled].metadata()?.len() as usize;
        let mut text = serde_json::to_string(&manifest)?;
        let line_end = text.len() + CHECKSUM_BYTES;
        let bytes = match line_end + MANIFEST_ROOM_MIN <= reserved {
            true => reserved,
            false => (line_end + 2 * MANIFEST_ROOM_MIN).next_multiple_of(FILE_HEAD_BYTES as usize),
        };
        text.extend(std::iter::repeat_n(' ', bytes - line_end));
        let text = format!("{text}\n{:08x}\n", crc32c::crc32c(text.as_bytes()));
        files.iter().try_for_each(|file| reserve(file, bytes))?;
        open.manifest = manifest;
        for copy in [1 - open.settled, open.settled] {
            files[copy].write_all_at(text.as_bytes(), 0)?;
            if files[copy].metadata()?.len() > bytes as u64 {
                files[copy].set_len(bytes as u64)?;
            }
            files[copy].sync_all()?;
            if is_made {
                self.itself.sync_all()?;
            }
            open.settled = copy;
        }
        for id in open.withdrawn.drain(..) {
            let _ = self.remove_files(id);
        }
        Ok(())
    }
}

fn written(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).open(path)
}

/// Reserves blocks, without a change of the file's length. Some file systems cannot.
pub(super) fn reserve(file: &File, bytes: usize) -> io::Result<()> {
    let (mode, length) = (libc::FALLOC_FL_KEEP_SIZE, bytes as libc::off_t);
    // SAFETY: a call with a descriptor that is open.
    if unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, length) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV) => Ok(()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::os::unix::fs::symlink;

    use std::path::PathBuf;

    use super::super::Repair;
    use super::super::copies::Copies;
    use super::super::error::DirectoryError;
    use super::super::manifest::{Reached, parse};
    use super::*;
    use crate::types::Consistency;

    const NOTHING: Reached = Reached { last: 0, settled: None, compacted: 0, floor: 0, unsure: 0 };

    fn directory(name: &str) -> (PathBuf, Directory) {
        let path = std::env::temp_dir().join(format!("knee-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        let opened = Directory::open(&path, Consistency::Linearizable, Repair::No).unwrap();
        (path, opened.directory)
    }

    fn last(path: &Path) -> Result<u64, DirectoryError> {
        parse(path, &fs::read(path).unwrap()).map(|manifest| manifest.reached.last)
    }

    #[test]
    fn failed_write_leaves_the_other_copy_whole() {
        let (path, directory) = directory("unsettled");
        let copies = NAMES.map(|name| path.join(name));
        for (full, whole) in [(0, 1), (1, 0)] {
            directory.note(NOTHING).unwrap();
            fs::rename(&copies[full], path.join("aside")).unwrap();
            symlink("/dev/full", &copies[full]).unwrap();
            for last in [7, 8] {
                directory.note(Reached { last, ..NOTHING }).expect_err("there is no room");
                assert_eq!(directory.state().manifest.reached.last, last, "the new one is used");
            }
            // The full copy is the first to be written, or the second and then the first.
            let settled = last(&copies[whole]).unwrap();
            assert!(settled == 0 || settled == 7, "{settled}");
            fs::rename(path.join("aside"), &copies[full]).unwrap();
            directory.note(Reached { last: 9, ..NOTHING }).unwrap();
            assert!(copies.iter().all(|copy| last(copy).unwrap() == 9));
        }
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn any_damage_to_a_copy_leaves_the_other_in_use() {
        let (path, directory) = directory("copies");
        (1..4).for_each(|id| drop(directory.create(id, 4096).unwrap()));
        let reached = Reached { last: 7, compacted: 3, ..NOTHING };
        directory.note(reached).unwrap();
        let expected = directory.state().manifest.clone();
        drop(directory);
        let copies = NAMES.map(|name| path.join(name));
        let whole = fs::read(&copies[0]).unwrap();
        assert_eq!(whole, fs::read(&copies[1]).unwrap());
        // A quarter of each copy is text, and the rest blanks.
        let text = whole.iter().rposition(|&byte| byte == b'}').unwrap();
        let places: Vec<_> = (0..=text + 3).chain(whole.len() - 20..whole.len()).collect();
        let flipped = |at: usize, by: u8| {
            let mut bytes = whole.clone();
            bytes[at] ^= by;
            Some(bytes)
        };
        let bits = places.iter().flat_map(|&at| (0..8).map(move |bit| (at, 1 << bit)));
        let flips = bits.chain(places.iter().map(|&at| (at, 0xff))).map(|(at, by)| flipped(at, by));
        let cuts = places.iter().map(|&length| Some(whole[..length].to_vec()));
        let others = [None, Some(vec![0; whole.len()]), Some(Vec::new())];
        for harmed in flips.chain(cuts).chain(others) {
            for copy in &copies {
                match &harmed {
                    Some(bytes) => fs::write(copy, bytes).unwrap(),
                    None => fs::remove_file(copy).unwrap(),
                }
                let read = Copies::read(&path).unwrap();
                let (manifest, _) = read.newest.unwrap();
                assert_eq!(manifest, expected);
                // Other blanks or capitals in the checksum's line change nothing.
                if let Some((file, _)) = read.faults.first() {
                    assert_eq!((file, read.faults.len()), (copy, 1));
                    assert!(!read.are_same);
                }
                fs::write(copy, &whole).unwrap();
            }
        }
        fs::write(&copies[1], &whole[..9]).unwrap();
        let opened = Directory::open(&path, Consistency::Linearizable, Repair::No).unwrap();
        assert_eq!(opened.faults, [(copies[1].clone(), "wrong checksum".to_owned())]);
        assert!(copies.iter().all(|copy| last(copy).unwrap() == 7), "both are whole again");
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn empty_copies_of_a_failed_first_start_are_no_damage() {
        let (path, directory) = directory("empty");
        drop(directory);
        NAMES.iter().for_each(|name| fs::write(path.join(name), "").unwrap());
        let opened = Directory::open(&path, Consistency::Linearizable, Repair::No).unwrap();
        assert!(opened.faults.is_empty());
        opened.directory.create(1, 4096).unwrap();
        drop(opened);
        NAMES.iter().for_each(|name| fs::write(path.join(name), "").unwrap());
        let refused = Directory::open(&path, Consistency::Linearizable, Repair::No);
        assert!(refused.is_err_and(|error| matches!(error, DirectoryError::Damaged(..))));
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn copy_of_a_crash_between_both_is_brought_up_to_date() {
        for stale in NAMES {
            let (path, directory) = directory(&format!("between-{stale}"));
            directory.note(Reached { last: 1, ..NOTHING }).unwrap();
            let before = fs::read(path.join(stale)).unwrap();
            directory.note(Reached { last: 2, ..NOTHING }).unwrap();
            drop(directory);
            fs::write(path.join(stale), before).unwrap();
            let opened = Directory::open(&path, Consistency::Linearizable, Repair::No).unwrap();
            assert_eq!((opened.manifest.reached.last, opened.faults), (2, Vec::new()));
            assert!(NAMES.iter().all(|name| last(&path.join(name)).unwrap() == 2));
            fs::remove_dir_all(path).unwrap();
        }
    }
}
