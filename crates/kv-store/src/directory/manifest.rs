//! The content of a directory's manifest, and its reader.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::DirectoryError;
use crate::place::{Location, SegmentId};
use crate::record::Sequence;
use crate::types::Consistency;

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Manifest {
    pub(crate) format: u32,
    /// Counts the manifests of the directory.
    pub(crate) number: u64,
    /// How versions are counted. A store that counts differently would reuse version numbers.
    pub(crate) consistency: Consistency,
    pub(crate) segments: BTreeMap<SegmentId, Made>,
    /// State that the segments alone no longer have.
    pub(crate) reached: Reached,
}

impl Manifest {
    const FORMAT: u32 = 5;

    pub(super) fn new(consistency: Consistency) -> Manifest {
        let reached = Reached { last: 0, settled: None, compacted: 0, floor: 0, unsure: 0 };
        let (format, segments) = (Manifest::FORMAT, BTreeMap::new());
        Manifest { format, number: 0, consistency, segments, reached }
    }

    /// Advances `reached`; its limits never go back.
    pub(super) fn reach(&mut self, reached: Reached) {
        let compacted = reached.compacted.max(self.reached.compacted);
        let floor = reached.floor.max(self.reached.floor);
        let unsure = reached.unsure.max(self.reached.unsure);
        self.reached = Reached { compacted, floor, unsure, ..reached };
    }
}

/// The parameters of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Made {
    /// The seed of its checksums.
    pub(crate) salt: u32,
    /// Bytes that were reserved for its records.
    pub(crate) bytes: usize,
}

/// How far a log had come when the last segment was taken out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Reached {
    pub(crate) last: Sequence,
    /// The place up to which the log was on the disk.
    pub(crate) settled: Option<Location>,
    /// Versions before this commit may have been dropped.
    pub(crate) compacted: u64,
    /// The largest version of a forgotten key, where versions count the writes of each key.
    pub(crate) floor: u64,
    /// A key may have been there before this commit, although no record says so.
    pub(crate) unsure: u64,
}

pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Manifest, DirectoryError> {
    let damaged = |what: &str| DirectoryError::Damaged(path.to_owned(), what.into());
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("not valid UTF-8"))?;
    let (json, checksum) = text.trim_end().rsplit_once('\n').unwrap_or((text, ""));
    if u32::from_str_radix(checksum, 16) != Ok(crc32c::crc32c(json.as_bytes())) {
        return Err(damaged("wrong checksum"));
    }
    let unknown = |error: serde_json::Error| damaged(&error.to_string());
    let Format { format } = serde_json::from_str(json).map_err(unknown)?;
    if format != Manifest::FORMAT {
        let known = Manifest::FORMAT;
        let what = format!("format {format} is unknown; this program reads format {known}");
        return Err(DirectoryError::Other(path.to_owned(), what));
    }
    serde_json::from_str(json).map_err(unknown)
}

/// The field that a manifest of any format has.
#[derive(serde::Deserialize)]
struct Format {
    format: u32,
}
