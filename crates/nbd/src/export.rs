//! The export of a server: its size, and the requests that it refuses.

use super::{
    Command, DATA_BYTES_MAX, EINVAL, ENOSPC, EPERM, Errno, FLAG_FUA, FLAG_NO_HOLE, Request,
};

const HAS_FLAGS: u16 = 1 << 0;
const READ_ONLY: u16 = 1 << 1;
const SEND_FLUSH: u16 = 1 << 2;
const SEND_FUA: u16 = 1 << 3;
const SEND_TRIM: u16 = 1 << 5;
const SEND_WRITE_ZEROES: u16 = 1 << 6;
const CAN_MULTI_CONN: u16 = 1 << 8;

/// What a server of a space needs from a storage machine.
const NEEDED: [(u16, &str); 5] = [
    (SEND_FLUSH, "flush"),
    (SEND_FUA, "FUA"),
    (SEND_TRIM, "trim"),
    (SEND_WRITE_ZEROES, "write zeroes"),
    (CAN_MULTI_CONN, "several connections"),
];

/// The one export of a server, without a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Export {
    /// The size.
    pub bytes: u64,
    /// Whether changes are refused.
    pub read_only: bool,
}

impl Export {
    /// The transmission flags.
    pub(super) fn flags(&self) -> u16 {
        let offered = NEEDED.iter().fold(HAS_FLAGS, |flags, (flag, _)| flags | flag);
        if self.read_only { offered | READ_ONLY } else { offered }
    }

    /// Why the export refuses a request.
    pub fn refusal(&self, request: &Request) -> Option<Errno> {
        let Request { flags, command, offset, length, .. } = *request;
        let known = match command {
            Command::WriteZeroes => FLAG_FUA | FLAG_NO_HOLE,
            _ => FLAG_FUA,
        };
        let end = offset.checked_add(length.into());
        match command {
            _ if flags & !known != 0 => Some(EINVAL),
            Command::Flush => None,
            Command::Disconnect | Command::Other(_) => Some(EINVAL),
            _ if command.changes() && self.read_only => Some(EPERM),
            Command::Read if length > DATA_BYTES_MAX => Some(EINVAL),
            _ if length == 0 => Some(EINVAL),
            _ if end.is_some_and(|end| end <= self.bytes) => None,
            Command::Write | Command::WriteZeroes => Some(ENOSPC),
            _ => Some(EINVAL),
        }
    }
}

/// The first thing that a server with these flags does not offer.
pub(super) fn missing(flags: u16) -> Option<&'static str> {
    NEEDED.iter().find(|(flag, _)| flags & flag == 0).map(|(_, name)| *name)
}

pub(super) fn is_read_only(flags: u16) -> bool {
    flags & READ_ONLY != 0
}
