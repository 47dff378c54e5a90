//! What a directory's manifest says, and how it is read.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use super::error::DirectoryError;
use crate::place::{Location, SegmentId};
use crate::record::Sequence;
use crate::types::Consistency;

/// What a manifest says.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Manifest {
    /// Version of the format.
    pub(crate) format: u32,
    /// What versions count: a store that counts otherwise would make some twice.
    pub(crate) consistency: Consistency,
    /// The segments, as they were made.
    pub(crate) segments: BTreeMap<SegmentId, Made>,
    /// What the segments alone no longer say.
    pub(crate) reached: Reached,
}

impl Manifest {
    pub(crate) const FORMAT: u32 = 3;

    pub(super) fn new(consistency: Consistency) -> Manifest {
        let reached = Reached { last: 0, settled: None, compacted: 0, floor: 0 };
        Manifest { format: Manifest::FORMAT, consistency, segments: BTreeMap::new(), reached }
    }

    /// The log has come so far. What was dropped stays dropped.
    pub(super) fn reach(&mut self, reached: Reached) {
        let compacted = reached.compacted.max(self.reached.compacted);
        let floor = reached.floor.max(self.reached.floor);
        self.reached = Reached { compacted, floor, ..reached };
    }
}

/// A segment as it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Made {
    /// Seeds its checksums.
    pub(crate) salt: u32,
    /// Bytes that were reserved for its records.
    pub(crate) bytes: usize,
}

/// How far a log had come when the last segment was taken out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Reached {
    /// The last commit.
    pub(crate) last: Sequence,
    /// Up to here it was on the disk.
    pub(crate) settled: Option<Location>,
    /// Versions before it may have been dropped.
    pub(crate) compacted: u64,
    /// No key that was forgotten had a larger version, where versions count the writes of each key.
    pub(crate) floor: u64,
}

/// The manifest, if there is one.
pub(super) fn read_manifest(directory: &Path) -> Result<Option<Manifest>, DirectoryError> {
    let path = directory.join("MANIFEST");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return if holds_segments(directory) {
                Err(DirectoryError::Damaged(path, "it is missing, and there are segments".into()))
            } else {
                Ok(None)
            };
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(DirectoryError::Damaged(path, "it is no text".into()));
        }
        Err(error) => return Err(DirectoryError::Io(path, error)),
    };
    let (json, checksum) = text.trim_end().rsplit_once('\n').unwrap_or((&text, ""));
    if u32::from_str_radix(checksum, 16) != Ok(crc32c::crc32c(json.as_bytes())) {
        return Err(DirectoryError::Damaged(path, "its checksum does not hold".into()));
    }
    let unknown =
        |error: serde_json::Error| DirectoryError::Damaged(path.clone(), error.to_string());
    let Format { format } = serde_json::from_str(json).map_err(unknown)?;
    if format != Manifest::FORMAT {
        let what = format!("it has format {format}, and only {} is known here", Manifest::FORMAT);
        return Err(DirectoryError::Other(path, what));
    }
    serde_json::from_str(json).map(Some).map_err(unknown)
}

/// What every manifest says, whatever its format.
#[derive(serde::Deserialize)]
struct Format {
    format: u32,
}

fn holds_segments(directory: &Path) -> bool {
    fs::read_dir(directory).is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.path().extension().is_some_and(|name| name == "log"))
    })
}
