//! Reads the two copies of a directory's manifest.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::DirectoryError;
use super::manifest::{Manifest, parse};

pub(super) const NAMES: [&str; 2] = ["MANIFEST", "MANIFEST.copy"];

/// A damaged copy, and the damage.
pub(super) type Fault = (PathBuf, String);

#[derive(Debug)]
pub(super) struct Copies {
    /// The newest manifest, and the number of its copy.
    pub(super) newest: Option<(Manifest, usize)>,
    /// Whether both copies are whole and equal.
    pub(super) are_same: bool,
    /// Whether each copy is missing or empty.
    pub(super) are_missing: bool,
    pub(super) faults: Vec<Fault>,
}

impl Copies {
    pub(super) fn read(directory: &Path) -> Result<Copies, DirectoryError> {
        let (mut whole, mut faults, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        for (number, name) in NAMES.iter().enumerate() {
            let path = directory.join(name);
            let read = match fs::read(&path) {
                // A first start that found no space leaves empty copies.
                Ok(bytes) if bytes.is_empty() => {
                    missing.push((path, "empty".to_owned()));
                    continue;
                }
                Ok(bytes) => parse(&path, &bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    missing.push((path, "missing".to_owned()));
                    continue;
                }
                Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                    Err(DirectoryError::Damaged(path, "the disk cannot read it".into()))
                }
                Err(error) => Err(DirectoryError::Io(path, error)),
            };
            match read {
                Ok(manifest) => whole.push((manifest, number)),
                Err(DirectoryError::Damaged(path, what)) => faults.push((path, what)),
                Err(error) => return Err(error),
            }
        }
        let are_same = matches!(&whole[..], [one, other] if one.0 == other.0);
        let are_missing = missing.len() == NAMES.len();
        faults.append(&mut missing);
        let newest = whole.into_iter().max_by_key(|(manifest, _)| manifest.number);
        Ok(Copies { newest, are_same, are_missing, faults })
    }
}
