//! Replaces a directory's manifest atomically, even on a full disk.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::manifest::Manifest;
use super::{Directory, Open};
use crate::segment::FILE_HEAD_BYTES;

/// Bytes of the checksum behind a manifest's text: eight digits between two line ends.
const CHECKSUM_BYTES: usize = 10;
/// Least number of bytes that a manifest can grow without another block: the record of a removed segment needs them.
const MANIFEST_ROOM_MIN: usize = 256;

impl Directory {
    /// Replaces the manifest. After a failed sync this process uses the new one, although the disk may have the old
    /// one.
    pub(super) fn replace_manifest(&self, open: &mut Open, manifest: Manifest) -> io::Result<()> {
        let (fresh, path) = (self.path.join("MANIFEST.new"), self.path.join("MANIFEST"));
        if open.is_unsettled {
            remove_if_there(&fresh)?;
        }
        let mut text = serde_json::to_string(&manifest)?;
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&fresh)?;
        // The file keeps its blocks: a full disk must take the manifest that frees a segment.
        let reserved = file.metadata()?.len() as usize;
        let line_end = text.len() + CHECKSUM_BYTES;
        let bytes = match line_end + MANIFEST_ROOM_MIN <= reserved {
            true => reserved,
            false => (line_end + 2 * MANIFEST_ROOM_MIN).next_multiple_of(FILE_HEAD_BYTES as usize),
        };
        text.extend(std::iter::repeat_n(' ', bytes - line_end));
        let line = format!("{text}\n{:08x}\n", crc32c::crc32c(text.as_bytes()));
        file.write_all_at(line.as_bytes(), 0)?;
        file.sync_all()?;
        open.is_unsettled = true;
        exchange(&fresh, &path)?;
        open.manifest = manifest;
        self.itself.sync_all()?;
        open.is_unsettled = false;
        self.reserve_manifest();
        for id in open.withdrawn.drain(..) {
            let _ = fs::remove_file(self.file(id));
        }
        Ok(())
    }

    /// Reserves as many blocks for the next manifest as this one takes. If the system refuses, the next manifest needs
    /// free blocks.
    pub(super) fn reserve_manifest(&self) {
        let (fresh, path) = (self.path.join("MANIFEST.new"), self.path.join("MANIFEST"));
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(fresh);
        if let (Ok(file), Ok(is)) = (file, fs::metadata(path)) {
            let length = is.len() as libc::off_t;
            // SAFETY: a call with a descriptor that is open.
            let _ = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) };
        }
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Exchanges the names of two files, or renames the first one if there is no second.
fn exchange(fresh: &Path, path: &Path) -> io::Result<()> {
    let name = |path: &Path| CString::new(path.as_os_str().as_bytes());
    let (fresh_name, path_name) = (name(fresh)?, name(path)?);
    let (here, flag) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
    // SAFETY: the names end with a zero and outlive the call.
    let done =
        unsafe { libc::renameat2(here, fresh_name.as_ptr(), here, path_name.as_ptr(), flag) };
    // Not every file system can exchange names, and at first there is no second file.
    if done == 0 { Ok(()) } else { fs::rename(fresh, path) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::File;
    use std::io::Read as _;

    use super::super::manifest::Reached;
    use super::*;
    use crate::types::Consistency;

    const NOTHING: Reached = Reached { last: 0, settled: None, compacted: 0, floor: 0 };

    /// Whether this manifest is still [`NOTHING`].
    fn is_whole(mut manifest: &File) -> bool {
        let mut text = String::new();
        manifest.read_to_string(&mut text).unwrap();
        let (json, checksum) = text.trim_end().rsplit_once('\n').unwrap();
        u32::from_str_radix(checksum, 16) == Ok(crc32c::crc32c(json.as_bytes()))
            && json.contains("\"last\":0,")
    }

    #[test]
    fn unsettled_manifest_is_not_overwritten() {
        let path = std::env::temp_dir().join(format!("knee-unsettled-{}", std::process::id()));
        let (mut directory, _) = Directory::open(&path, Consistency::Linearizable).unwrap();
        directory.note(NOTHING).unwrap();
        let called = || File::open(path.join("MANIFEST")).unwrap();
        let last = Reached { last: 7, ..NOTHING };
        let before = called();
        let itself = std::mem::replace(&mut directory.itself, File::open("/dev/null").unwrap());
        directory.note(last).expect_err("it cannot be synced");
        assert_eq!(directory.state().manifest.reached, last);
        directory.note(last).expect_err("it cannot be synced");
        directory.itself = itself;
        directory.note(last).unwrap();
        assert!(is_whole(&before));
        fs::remove_dir_all(path).unwrap();
    }
}
