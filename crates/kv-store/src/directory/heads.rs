//! The heads of the segments' files, all numbers little-endian:
//!
//! ```text
//!  0  u64  "kneelog1"
//!  8  u32  number of the segment
//! 12  u32  salt: seed of the records' checksums
//! 16  u32  bytes reserved for records
//! 20  u32  consistency: 1 is linearizable, 2 sequential
//! 24  u32  checksum (CRC-32C) of the bytes before; then zeros up to 4096
//! ```

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::manifest::{Made, Manifest};
use crate::place::{SEGMENT_BYTES_MAX, SegmentId};
use crate::segment::FILE_HEAD_BYTES;
use crate::types::Consistency;

const MAGIC: &[u8; 8] = b"kneelog1";

pub(super) fn file_head(
    id: SegmentId,
    Made { salt, bytes }: Made,
    consistency: Consistency,
) -> [u8; FILE_HEAD_BYTES as usize] {
    let mut head = [0; FILE_HEAD_BYTES as usize];
    head[..8].copy_from_slice(MAGIC);
    head[8..12].copy_from_slice(&id.to_le_bytes());
    head[12..16].copy_from_slice(&salt.to_le_bytes());
    head[16..20].copy_from_slice(&(bytes as u32).to_le_bytes());
    head[20..24].copy_from_slice(&consistency.number().to_le_bytes());
    let checksum = crc32c::crc32c(&head[..24]);
    head[24..28].copy_from_slice(&checksum.to_le_bytes());
    head
}

pub(super) fn segment_number(path: &Path, suffix: &str) -> Option<SegmentId> {
    path.file_name()?.to_str()?.strip_suffix(suffix)?.parse().ok()
}

/// What the heads of the segments' files say, whole or not.
pub(super) fn segment_heads(
    directory: &Path,
) -> io::Result<Vec<(SegmentId, Made, Option<Consistency>)>> {
    let mut heads = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let Some(id) = segment_number(&path, ".log") else { continue };
        let file = File::open(&path)?;
        let length = file.metadata()?.len().saturating_sub(FILE_HEAD_BYTES) as usize;
        let mut head = [0; FILE_HEAD_BYTES as usize];
        // A head that cannot be read is damage, which the next reader reports.
        let _ = file.read_exact_at(&mut head, 0);
        let number =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let made = Made { salt: number(12), bytes: number(16) as usize };
        let is_of = |consistency: &Consistency| file_head(id, made, *consistency) == head;
        heads.push(match Consistency::ALL.into_iter().find(is_of) {
            Some(consistency) => (id, made, Some(consistency)),
            None => (id, Made { bytes: length.min(SEGMENT_BYTES_MAX), ..made }, None),
        });
    }
    Ok(heads)
}

/// A manifest of all segments. Their heads know the consistency, unless all are damaged.
pub(super) fn rebuilt(
    heads: &[(SegmentId, Made, Option<Consistency>)],
    consistency: Consistency,
) -> Manifest {
    let known = heads.iter().find_map(|(_, _, consistency)| *consistency);
    let segments = heads.iter().map(|(id, made, _)| (*id, *made)).collect();
    Manifest { segments, ..Manifest::new(known.unwrap_or(consistency)) }
}
