//! The keys of a segment's records, in a file beside it: a repair learns from them which records are lost.
//!
//! Blocks of 512 bytes, all numbers little-endian:
//!
//! ```text
//!  0  u32  checksum (CRC-32C) of the rest of the block, seeded with the segment's salt
//!  4  u32  where the records of the block begin, in units of eight bytes
//!  8  u32  where they end
//! 12  u64  settled: the place up to which the log was on the disk; 0 where unknown
//! 20  u16  bytes of entries
//! 22  u8   1 if the segment ends with the block
//! 23       entries, one for each record of a key and each clear record; zeros
//! ```
//!
//! An entry is a number for the key (u32; 0 for a clear record), and by how much its commit's sequence exceeds that
//! of the entry before in the block (u8). The value 255 stands for any other case: sequence (u64) and part (u32) follow.
//!
//! Making a segment reserves the space of this file. A commit waits for it only where it seals the segment. A failure to
//! write it only costs a repair its precision.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::place::{ALIGN, Location};
use crate::record::{self, Brief, HEAD_BYTES, Kind, Record, Sequence, u16_at, u32_at, u64_at};

const BLOCK_BYTES: usize = 512;
const BLOCK_HEAD_BYTES: usize = 23;
/// A step that stands for a sequence and a part.
const FAR: u8 = 255;
const FAR_BYTES: usize = 12;
const ENTRY_BYTES_MAX: usize = 5 + FAR_BYTES;
/// Least number of entries in a full block.
const ENTRIES_MIN: usize = (BLOCK_BYTES - BLOCK_HEAD_BYTES) / ENTRY_BYTES_MAX;

/// Largest number of bytes of the file for a segment of `bytes`.
pub(super) fn file_bytes_max(bytes: usize) -> usize {
    (1 + bytes / (ENTRIES_MIN * HEAD_BYTES)) * BLOCK_BYTES
}

/// A record of a key, or a clear record, as another file knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Entry {
    /// See [`key_sum`]; 0 is a clear record.
    pub(crate) key_sum: u32,
    pub(crate) sequence: Sequence,
    pub(crate) part: u32,
}

impl Entry {
    /// The entry of a record; seals and requests have none.
    #[inline]
    pub(crate) fn of(record: &Record<'_>) -> Option<Entry> {
        let key_sum = match record.kind {
            Kind::Clear => 0,
            kind if kind.is_of_a_key() => key_sum(record.key),
            _ => return None,
        };
        Some(Entry { key_sum, sequence: record.sequence, part: record.part })
    }
}

/// The number that stands for a key: 0 for none. A CRC would take three times as long for short keys.
#[inline]
pub(crate) fn key_sum(key: &[u8]) -> u32 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |sum: u64, word: u64| (sum.rotate_left(23) ^ word).wrapping_mul(ODD);
    let words = key.chunks_exact(8);
    let rest = words.remainder().iter().fold(0, |rest, &byte| rest << 8 | u64::from(byte));
    let sum = words.fold(key.len() as u64, |sum, word| mix(sum, u64_at(word, 0)));
    let sum = mix(sum, rest);
    ((sum ^ sum >> 32).wrapping_mul(ODD) >> 32).max(1) as u32
}

/// The keys of a growing segment.
#[derive(Debug)]
pub(super) struct Keys {
    file: Arc<File>,
    salt: u32,
    is_broken: bool,
    full: usize,
    begin: usize,
    end: usize,
    last: Sequence,
    block: [u8; BLOCK_BYTES],
    /// Bytes of `block` in use.
    used: usize,
    is_sealed: bool,
    settled: u64,
    /// The end and `settled` as of the last write.
    written: (usize, u64),
}

impl Keys {
    /// Overwrites a file from its beginning.
    pub(super) fn new(file: File, salt: u32) -> Keys {
        Keys {
            file: Arc::new(file),
            salt,
            is_broken: false,
            full: 0,
            begin: 0,
            end: 0,
            last: 0,
            block: [0; BLOCK_BYTES],
            used: BLOCK_HEAD_BYTES,
            is_sealed: false,
            settled: 0,
            written: (0, 0),
        }
    }

    /// Adds whole records, which follow those before.
    pub(super) fn add(&mut self, records: &[u8]) {
        let mut at = 0;
        while at + HEAD_BYTES <= records.len() && !self.is_broken {
            let Brief { kind, sequence, part, key, bytes } = record::brief(&records[at..]);
            let is_clear = kind == Kind::Clear as u8;
            // Seals and requests have no key.
            if is_clear || !key.is_empty() {
                let key_sum = if is_clear { 0 } else { key_sum(key) };
                self.enter(Entry { key_sum, sequence, part });
            }
            self.end += bytes;
            at += bytes;
            if kind == Kind::Seal as u8 {
                self.is_sealed = true;
                self.write();
                // The rest of the reserved space is not needed.
                let _ = self.file.set_len(((self.full + 1) * BLOCK_BYTES) as u64);
            }
        }
    }

    fn enter(&mut self, Entry { key_sum, sequence, part }: Entry) {
        if self.used + ENTRY_BYTES_MAX > BLOCK_BYTES {
            self.write();
            self.full += 1;
            (self.begin, self.last) = (self.end, 0);
            self.block[BLOCK_HEAD_BYTES..].fill(0);
            self.used = BLOCK_HEAD_BYTES;
        }
        let entry = &mut self.block[self.used..self.used + ENTRY_BYTES_MAX];
        entry[..4].copy_from_slice(&key_sum.to_le_bytes());
        self.used += 5;
        match sequence.checked_sub(self.last) {
            Some(step @ 0..255) if part == 0 => entry[4] = step as u8,
            _ => {
                entry[4] = FAR;
                entry[5..13].copy_from_slice(&sequence.to_le_bytes());
                entry[13..17].copy_from_slice(&part.to_le_bytes());
                self.used += FAR_BYTES;
            }
        }
        self.last = sequence;
    }

    /// Writes the block that is not full. The log is on the disk up to `settled`.
    pub(super) fn write_out(&mut self, settled: u64) {
        self.settled = self.settled.max(settled);
        if self.written != (self.end, self.settled) && self.end > 0 {
            self.write();
        }
    }

    /// The complete file, once its segment is sealed.
    pub(super) fn sealed(&self) -> Option<Arc<File>> {
        self.is_sealed.then(|| Arc::clone(&self.file))
    }

    fn write(&mut self) {
        self.written = (self.end, self.settled);
        self.is_broken |= self.try_write().is_err();
    }

    fn try_write(&mut self) -> io::Result<()> {
        let block = &mut self.block;
        block[4..8].copy_from_slice(&((self.begin / ALIGN) as u32).to_le_bytes());
        block[8..12].copy_from_slice(&((self.end / ALIGN) as u32).to_le_bytes());
        block[12..20].copy_from_slice(&self.settled.to_le_bytes());
        block[20..22].copy_from_slice(&((self.used - BLOCK_HEAD_BYTES) as u16).to_le_bytes());
        block[22] = u8::from(self.is_sealed);
        let checksum = crc32c::crc32c_append(self.salt, &block[4..]);
        block[..4].copy_from_slice(&checksum.to_le_bytes());
        self.file.write_all_at(block, (self.full * BLOCK_BYTES) as u64)
    }
}

/// What the blocks of a segment say, without the damaged ones.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) entries: Vec<Entry>,
    /// The place up to which the log was on the disk.
    pub(crate) settled: Option<Location>,
    /// The stretches that the entries cover, in order.
    covered: Vec<(usize, usize)>,
    end: Option<usize>,
}

impl Known {
    /// Reads the file of a segment; a missing or unreadable one says nothing.
    pub(super) fn read(path: &Path, salt: u32) -> Known {
        let bytes = fs::read(path).unwrap_or_default();
        let mut known = Known::default();
        for block in bytes.chunks_exact(BLOCK_BYTES) {
            if crc32c::crc32c_append(salt, &block[4..]) == u32_at(block, 0) {
                known.take(block);
            }
        }
        known
    }

    fn take(&mut self, block: &[u8]) {
        let (begin, end) = (u32_at(block, 4) as usize * ALIGN, u32_at(block, 8) as usize * ALIGN);
        match self.covered.last_mut() {
            Some(last) if last.1 == begin => last.1 = end,
            _ => self.covered.push((begin, end)),
        }
        self.settled = self.settled.max(Location::from_bits(u64_at(block, 12)));
        self.end = (block[22] == 1).then_some(end).or(self.end);
        let (mut at, end) = (BLOCK_HEAD_BYTES, BLOCK_HEAD_BYTES + usize::from(u16_at(block, 20)));
        let mut last = 0;
        while at < end {
            let (key_sum, step) = (u32_at(block, at), block[at + 4]);
            at += 5;
            let mut part = 0;
            if step == FAR {
                (last, part) = (u64_at(block, at), u32_at(block, at + 8));
                at += FAR_BYTES;
            } else {
                last += Sequence::from(step);
            }
            self.entries.push(Entry { key_sum, sequence: last, part });
        }
    }

    /// Whether the entries have all records that began in a stretch of the segment.
    pub(crate) fn covers(&self, from: usize, to: usize) -> bool {
        let to = self.end.map_or(to, |end| to.min(end));
        from >= to || self.covered.iter().any(|&(begin, end)| begin <= from && to <= end)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::record::OnDisk;

    #[test]
    fn entries_are_read_as_they_were_added() {
        let path = std::env::temp_dir().join(format!("knee-keys-{}", std::process::id()));
        let mut keys = Keys::new(File::create(&path).unwrap(), 7);
        let (mut expected, mut places) = (Vec::new(), vec![0]);
        for number in 0..500_u64 {
            let key = number.to_le_bytes();
            // Steps of any size, also back, and parts.
            let sequence = [number, 1 << 40, number * 300, number][number as usize % 4] + 1;
            let part = u32::from(number % 7 == 6);
            let record = Record { part, key: &key, ..Record::of_no_key(Kind::Put, sequence) };
            let mut bytes = vec![0; record.bytes()];
            record.encode(1, &mut bytes);
            keys.add(&bytes);
            expected.extend(Entry::of(&record));
            places.push(places[number as usize] + bytes.len());
        }
        let seal = Record::seal(9, OnDisk::default());
        let mut bytes = vec![0; seal.bytes()];
        seal.encode(1, &mut bytes);
        keys.add(&bytes);
        keys.write_out(Location::new(3, 80).to_bits());
        let known = Known::read(&path, 7);
        assert_eq!((&known.entries, known.settled), (&expected, Some(Location::new(3, 80))));
        assert!(known.covers(0, usize::MAX) && known.covers(places[100], places[200]));
        assert!(Known::read(&path, 8).entries.is_empty());
        // Without one block, the others remain.
        let mut bytes = fs::read(&path).unwrap();
        assert!(bytes.len() <= file_bytes_max(places[500]));
        bytes[2 * BLOCK_BYTES + 99] ^= 1;
        fs::write(&path, bytes).unwrap();
        let known = Known::read(&path, 7);
        let missing = expected.len() - known.entries.len();
        assert!((10..110).contains(&missing), "{missing}");
        assert!(known.covers(0, places[50]) && known.covers(places[400], usize::MAX));
        assert!(!known.covers(0, places[400]));
        fs::remove_file(path).unwrap();
    }
}
