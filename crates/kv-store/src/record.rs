//! A record of the log: one version of one key, as bytes.
//!
//! ```text
//! 0  u32  checksum (CRC-32C) of all following bytes, seeded with the segment's salt
//!  4  u32  length of the value
//!  8  u64  sequence: the place of its commit in the order of all commits
//! 16  u64  version, as clients see it
//! 24  u32  flags
//! 28  u32  second of the epoch at which it expires; 0 is never
//! 32  u32  part: number of the record among those of one key in one commit
//! 36  u16  length of the key
//! 38  u8   kind
//! 39  u8   bits
//! 40  u8   marks
//! 41  u24  settled: a place in a segment, in units of eight bytes,
//! 44  u32           and the segment; 0 where unknown
//! 48       [u64 client, u64 number], if the request had an id
//!          [u64 whole, u64 sequence, u32 part, u32 depth], if it is an append
//!          key, value, zeros up to the next multiple of eight
//! ```
//!
//! All numbers are little-endian. A record lies within one segment.

use knee_kv_cache::engine::{Expiry, Version};

use super::place::{ALIGN, Location};

/// Bytes in front of key and value.
pub(crate) const HEAD_BYTES: usize = 48;
const REQUEST_BYTES: usize = 16;
const GROWTH_BYTES: usize = 24;

const BIT_REQUEST: u8 = 1;
const BIT_MORE: u8 = 2;
const BIT_MOVED: u8 = 4;
const BIT_FIRST: u8 = 8;
const BIT_LAZY: u8 = 16;
const BITS_KNOWN: u8 = BIT_REQUEST | BIT_MORE | BIT_MOVED | BIT_FIRST | BIT_LAZY;

/// The number of a commit in the order of all commits of a store, from 1.
pub(crate) type Sequence = u64;

/// The id of a request; a repeated request has the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId {
    /// Chosen at random by the client, once.
    pub client: u64,
    /// The client's count of its requests.
    pub number: u64,
}

/// The value after an append, so that readers need not read the earlier records first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Growth {
    /// Bytes of the whole value.
    pub(crate) whole: u64,
    /// The record that the append extends: its sequence and its part.
    pub(crate) from: (Sequence, u32),
    /// Number of earlier records of the value.
    pub(crate) depth: u32,
}

/// The state of the disk when a record was appended. From it a recovery knows which records must be there, and which a
/// crash may have lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct OnDisk {
    /// The place up to which the log was on the disk.
    pub(crate) settled: Option<Location>,
    /// Whether the store ran without durability.
    pub(crate) lazy: bool,
}

/// The action of a record on its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Sets the value of the key.
    Put = 1,
    Append = 2,
    Delete = 3,
    /// Ends the segment.
    Seal = 4,
    /// Belongs to no key: a request with an id that changed nothing.
    Request = 5,
    /// Belongs to no key: deletes all keys (a clear record).
    Clear = 6,
    /// Stands for a lost record: the key's state from here to its next record is unknown.
    Lost = 7,
}

impl Kind {
    fn from_bits(bits: u8) -> Option<Kind> {
        use Kind::{Append, Clear, Delete, Lost, Put, Request, Seal};
        [Put, Append, Delete, Seal, Request, Clear, Lost]
            .into_iter()
            .find(|&kind| kind as u8 == bits)
    }

    pub(crate) fn is_of_a_key(self) -> bool {
        matches!(self, Kind::Put | Kind::Append | Kind::Delete | Kind::Lost)
    }

    /// Whether clients find no key after the record.
    pub(crate) fn is_absence(self) -> bool {
        matches!(self, Kind::Delete | Kind::Lost)
    }
}

/// One version of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) kind: Kind,
    pub(crate) sequence: Sequence,
    pub(crate) part: u32,
    pub(crate) version: Version,
    pub(crate) flags: u32,
    pub(crate) expiry: Expiry,
    pub(crate) marks: u8,
    /// Whether a further record of its commit follows. Without that record the commit is incomplete.
    pub(crate) more: bool,
    /// Whether its commit begins with it.
    pub(crate) first: bool,
    /// Whether the record was moved here from another segment. If so, its commit is complete.
    pub(crate) moved: bool,
    pub(crate) on_disk: OnDisk,
    pub(crate) request: Option<RequestId>,
    /// Present exactly for an append.
    pub(crate) growth: Option<Growth>,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// Why bytes are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// The bytes end before the record.
    Short,
    /// The checksum does not match.
    Checksum,
    /// The checksum matches, but a field is out of its range.
    Malformed,
}

impl Record<'_> {
    /// The seal of a segment, after the commit with this sequence.
    pub(crate) fn seal(sequence: Sequence, on_disk: OnDisk) -> Record<'static> {
        Record { on_disk, ..Record::of_no_key(Kind::Seal, sequence) }
    }

    /// Stands for the lost records of a key in the commit `sequence`: it comes after the readable ones.
    pub(crate) fn lost(key: &[u8], sequence: Sequence, version: Version) -> Record<'_> {
        Record { key, version, part: u32::MAX, ..Record::of_no_key(Kind::Lost, sequence) }
    }

    pub(crate) fn of_no_key(kind: Kind, sequence: Sequence) -> Record<'static> {
        Record {
            kind,
            sequence,
            part: 0,
            version: 0,
            flags: 0,
            expiry: Expiry::NEVER,
            marks: 0,
            more: false,
            first: false,
            moved: false,
            on_disk: OnDisk::default(),
            request: None,
            growth: None,
            key: &[],
            value: &[],
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        record_bytes(self.kind, self.key.len(), self.value.len(), self.request.is_some())
    }

    /// Length of the value up to and including this record, in bytes.
    pub(crate) fn whole(&self) -> usize {
        self.growth.map_or(self.value.len(), |growth| growth.whole as usize)
    }

    /// Number of earlier records of the value.
    pub(crate) fn depth(&self) -> usize {
        self.growth.map_or(0, |growth| growth.depth as usize)
    }

    /// Writes the record to `out`, which has exactly its length.
    pub(crate) fn encode(&self, salt: u32, out: &mut [u8]) {
        debug_assert_eq!(out.len(), self.bytes());
        debug_assert_eq!(self.growth.is_some(), self.kind == Kind::Append);
        let bits = [
            (self.request.is_some(), BIT_REQUEST),
            (self.more, BIT_MORE),
            (self.moved, BIT_MOVED),
            (self.first, BIT_FIRST),
            (self.on_disk.lazy, BIT_LAZY),
        ];
        out[4..8].copy_from_slice(&(self.value.len() as u32).to_le_bytes());
        out[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        out[16..24].copy_from_slice(&self.version.to_le_bytes());
        out[24..28].copy_from_slice(&self.flags.to_le_bytes());
        out[28..32].copy_from_slice(&self.expiry.to_bits().to_le_bytes());
        out[32..36].copy_from_slice(&self.part.to_le_bytes());
        out[36..38].copy_from_slice(&(self.key.len() as u16).to_le_bytes());
        out[38] = self.kind as u8;
        out[39] = bits.iter().filter(|(is, _)| *is).map(|(_, bit)| bit).sum();
        let settled = self.on_disk.settled.map_or(0, Location::to_bits);
        out[40..48].copy_from_slice(&(u64::from(self.marks) | settled << 8).to_le_bytes());
        let mut at = HEAD_BYTES;
        if let Some(RequestId { client, number }) = self.request {
            out[at..at + 8].copy_from_slice(&client.to_le_bytes());
            out[at + 8..at + 16].copy_from_slice(&number.to_le_bytes());
            at += REQUEST_BYTES;
        }
        if let Some(Growth { whole, from: (sequence, part), depth }) = self.growth {
            out[at..at + 8].copy_from_slice(&whole.to_le_bytes());
            out[at + 8..at + 16].copy_from_slice(&sequence.to_le_bytes());
            out[at + 16..at + 20].copy_from_slice(&part.to_le_bytes());
            out[at + 20..at + 24].copy_from_slice(&depth.to_le_bytes());
            at += GROWTH_BYTES;
        }
        for piece in [self.key, self.value] {
            out[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        out[at..].fill(0);
        let checksum = checksum(salt, &out[4..]);
        out[..4].copy_from_slice(&checksum.to_le_bytes());
    }
}

pub(crate) fn record_bytes(kind: Kind, key: usize, value: usize, has_request: bool) -> usize {
    (key_offset(kind as u8, has_request) + key + value).next_multiple_of(ALIGN)
}

#[inline]
fn key_offset(kind: u8, has_request: bool) -> usize {
    let request = if has_request { REQUEST_BYTES } else { 0 };
    let growth = if kind == Kind::Append as u8 { GROWTH_BYTES } else { 0 };
    HEAD_BYTES + request + growth
}

/// Reads the record that [`Record::encode`] wrote to the front of `bytes`, without a check. Damaged bytes give a
/// wrong record. Its key or value is empty if a damaged length exceeds `bytes`.
///
/// # Panics
/// If `bytes` is shorter than [`HEAD_BYTES`].
#[inline]
pub(crate) fn trusted(bytes: &[u8]) -> Record<'_> {
    let key_bytes = usize::from(u16_at(bytes, 36));
    let value_bytes = u32_at(bytes, 4) as usize;
    let bits = bytes[39];
    let at = key_offset(bytes[38], bits & BIT_REQUEST != 0);
    let request = (bits & BIT_REQUEST != 0).then(|| {
        let ids = bytes.get(HEAD_BYTES..HEAD_BYTES + REQUEST_BYTES).unwrap_or(&[0; REQUEST_BYTES]);
        RequestId { client: u64_at(ids, 0), number: u64_at(ids, 8) }
    });
    let growth = (bytes[38] == Kind::Append as u8).then(|| {
        let growth = bytes.get(at - GROWTH_BYTES..at).unwrap_or(&[0; GROWTH_BYTES]);
        Growth {
            whole: u64_at(growth, 0),
            from: (u64_at(growth, 8), u32_at(growth, 16)),
            depth: u32_at(growth, 20),
        }
    });
    Record {
        kind: match bytes[38] {
            1 => Kind::Put,
            2 => Kind::Append,
            3 => Kind::Delete,
            5 => Kind::Request,
            6 => Kind::Clear,
            7 => Kind::Lost,
            _ => Kind::Seal,
        },
        sequence: u64_at(bytes, 8),
        version: u64_at(bytes, 16),
        flags: u32_at(bytes, 24),
        expiry: Expiry::from_bits(u32_at(bytes, 28)),
        part: u32_at(bytes, 32),
        marks: bytes[40],
        more: bits & BIT_MORE != 0,
        first: bits & BIT_FIRST != 0,
        moved: bits & BIT_MOVED != 0,
        on_disk: OnDisk {
            settled: Location::from_bits(u64_at(bytes, 40) >> 8),
            lazy: bits & BIT_LAZY != 0,
        },
        request,
        growth,
        key: bytes.get(at..at + key_bytes).unwrap_or_default(),
        value: bytes.get(at + key_bytes..at + key_bytes + value_bytes).unwrap_or_default(),
    }
}

/// The key of the record at the front of `bytes`; `None` if its length is out of range.
#[inline]
pub(crate) fn key(bytes: &[u8]) -> Option<&[u8]> {
    let bits = *bytes.get(39)?;
    let at = key_offset(bytes[38], bits & BIT_REQUEST != 0);
    bytes.get(at..at + usize::from(u16_at(bytes, 36)))
}

/// What the front of `bytes` says about its record, unchecked: few fields, which are read fast.
#[inline]
pub(crate) fn brief(bytes: &[u8]) -> Brief<'_> {
    let [kind, bits] = [bytes[38], bytes[39]];
    let at = key_offset(kind, bits & BIT_REQUEST != 0);
    let key_end = at + usize::from(u16_at(bytes, 36));
    Brief {
        kind,
        sequence: u64_at(bytes, 8),
        part: u32_at(bytes, 32),
        key: bytes.get(at..key_end).unwrap_or_default(),
        bytes: (key_end + u32_at(bytes, 4) as usize).next_multiple_of(ALIGN),
    }
}

/// Some fields of a record.
pub(crate) struct Brief<'a> {
    pub(crate) kind: u8,
    pub(crate) sequence: Sequence,
    pub(crate) part: u32,
    pub(crate) key: &'a [u8],
    pub(crate) bytes: usize,
}

/// Whether a record may begin there. The bytes after the end of a log are nearly all zeros, and no record has the
/// sequence 0.
#[inline]
pub(crate) fn may_begin(bytes: &[u8]) -> bool {
    bytes.len() >= HEAD_BYTES && u64_at(bytes, 8) != 0
}

/// Reads and checks the record at the front of any `bytes`.
pub(crate) fn decode(bytes: &[u8], salt: u32) -> Result<Record<'_>, Unreadable> {
    if bytes.len() < HEAD_BYTES {
        return Err(Unreadable::Short);
    }
    let at = key_offset(bytes[38], bytes[39] & BIT_REQUEST != 0);
    let body = usize::from(u16_at(bytes, 36)) + u32_at(bytes, 4) as usize;
    let length = (at + body).next_multiple_of(ALIGN);
    if bytes.len() < length {
        return Err(Unreadable::Short);
    }
    if checksum(salt, &bytes[4..length]) != u32_at(bytes, 0) {
        return Err(Unreadable::Checksum);
    }
    if Kind::from_bits(bytes[38]).is_none() || bytes[39] & !BITS_KNOWN != 0 {
        return Err(Unreadable::Malformed);
    }
    Ok(trusted(&bytes[..length]))
}

fn checksum(salt: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(salt, bytes)
}

#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

#[inline]
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Drawn = (Kind, u64, u32, u32, [bool; 4], Option<u32>, Option<u64>, Vec<u8>, Vec<u8>);

    fn any_record() -> impl Strategy<Value = Drawn> {
        let kind = prop_oneof![Just(Kind::Put), Just(Kind::Append), Just(Kind::Delete)];
        let bytes = |most| proptest::collection::vec(any::<u8>(), 0..most);
        (
            kind,
            any::<u64>(),
            any::<u32>(),
            any::<u32>(),
            any::<[bool; 4]>(),
            proptest::option::of(1..u32::MAX),
            any::<Option<u64>>(),
            bytes(40),
            bytes(200),
        )
    }

    proptest! {
        #[test]
        fn encoded_record_is_decoded(
            (kind, sequence, part, flags, [more, first, moved, lazy], settled, request, key, value) in any_record(),
            salt: u32,
            behind in proptest::collection::vec(any::<u8>(), 0..20),
            place: proptest::sample::Index,
            bit in 0..8_u8,
        ) {
            let record = Record {
                kind, sequence, part, version: !sequence, flags,
                expiry: Expiry::from_bits(part ^ flags), marks: part as u8, more, first, moved,
                on_disk: OnDisk {
                    settled: settled.map(|id| Location::new(id, (flags >> 8) as usize * ALIGN)),
                    lazy,
                },
                request: request.map(|number| RequestId { client: !number, number }),
                growth: (kind == Kind::Append).then_some(Growth { whole: sequence / 2, from: (!sequence, part), depth: 7 }),
                key: &key, value: &value,
            };
            let mut bytes = vec![0xAA; record.bytes()];
            record.encode(salt, &mut bytes);
            prop_assert_eq!(bytes.len() % ALIGN, 0);
            prop_assert_eq!(trusted(&bytes), record);
            let length = bytes.len();
            bytes.extend(behind);
            prop_assert_eq!(decode(&bytes, salt), Ok(record));
            prop_assert_eq!(decode(&bytes, salt ^ 1), Err(Unreadable::Checksum));
            prop_assert_eq!(decode(&bytes[..length - 1], salt), Err(Unreadable::Short));
            // The checksum detects any flipped bit.
            bytes.truncate(length);
            bytes[place.index(length)] ^= 1 << bit;
            prop_assert!(decode(&bytes, salt).is_err());
        }

        #[test]
        fn random_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), salt: u32) {
            prop_assert!(decode(&bytes, salt).is_err());
        }
    }
}
