//! The NBD protocol without I/O: requests and simple replies.
//!
//! Source: <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>. Both sides of a connection use it.

mod client;
mod export;
mod server;
mod wire;

pub use client::{Dial, Dialed, Offer};
pub use export::Export;
pub use server::{Negotiation, Step};

use wire::Fields;

/// The length of a request's header.
pub const REQUEST_BYTES: usize = 28;
/// The length of a simple reply's header.
pub const REPLY_BYTES: usize = 16;
/// The longest data of a request or a reply. Clients that do not ask for the limit assume this one.
pub const DATA_BYTES_MAX: u32 = 32 << 20;
/// The preferred unit of requests. A write of an aligned block takes effect at once.
pub const BLOCK_BYTES: u64 = 4096;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

/// The change must be durable before its reply.
pub const FLAG_FUA: u16 = 1 << 0;
/// The zeroes must keep their space.
pub const FLAG_NO_HOLE: u16 = 1 << 1;

/// The number of an error in a reply.
pub type Errno = u32;
/// The export is read-only.
pub const EPERM: Errno = 1;
/// A machine did not answer, or answered with an error.
pub const EIO: Errno = 5;
/// The request is malformed.
pub const EINVAL: Errno = 22;
/// The write is beyond the end.
pub const ENOSPC: Errno = 28;

/// The type of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Returns data.
    Read,
    /// Replaces data.
    Write,
    /// Ends the connection after all replies. It has no reply of its own.
    Disconnect,
    /// Makes all replied changes durable.
    Flush,
    /// Gives space back; the data becomes zeroes.
    Trim,
    /// Replaces data with zeroes.
    WriteZeroes,
    /// A type that the server does not offer.
    Other(u16),
}

impl Command {
    fn from_code(code: u16) -> Command {
        match code {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            6 => Command::WriteZeroes,
            other => Command::Other(other),
        }
    }

    fn code(self) -> u16 {
        match self {
            Command::Read => 0,
            Command::Write => 1,
            Command::Disconnect => 2,
            Command::Flush => 3,
            Command::Trim => 4,
            Command::WriteZeroes => 6,
            Command::Other(code) => code,
        }
    }

    /// Whether the request may change data.
    pub fn changes(self) -> bool {
        matches!(self, Command::Write | Command::Trim | Command::WriteZeroes)
    }
}

/// The header of a request. The data of a write follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// [`FLAG_FUA`] and others.
    pub flags: u16,
    /// The type.
    pub command: Command,
    /// Any number; the reply repeats it.
    pub cookie: u64,
    /// The address of the first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u32,
}

/// The peer sent bytes that are no message of the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl Request {
    /// Decodes the header at the front of `input`; `None` if it is incomplete.
    ///
    /// # Errors
    /// If no header begins there.
    pub fn decode(input: &[u8]) -> Result<Option<Request>, Malformed> {
        let mut fields = Fields(input);
        if fields.u32().is_some_and(|magic| magic != REQUEST_MAGIC) {
            return Err(Malformed("a request has a wrong magic number"));
        }
        let mut header = || {
            Some(Request {
                flags: fields.u16()?,
                command: Command::from_code(fields.u16()?),
                cookie: fields.u64()?,
                offset: fields.u64()?,
                length: fields.u32()?,
            })
        };
        match header() {
            Some(request) if request.data_bytes() > DATA_BYTES_MAX as usize => {
                Err(Malformed("a write has more than 32 MiB"))
            }
            request => Ok(request),
        }
    }

    /// Appends the header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut header = [0; REQUEST_BYTES];
        header[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        header[4..6].copy_from_slice(&self.flags.to_be_bytes());
        header[6..8].copy_from_slice(&self.command.code().to_be_bytes());
        header[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        header[16..24].copy_from_slice(&self.offset.to_be_bytes());
        header[24..].copy_from_slice(&self.length.to_be_bytes());
        out.extend_from_slice(&header);
    }

    /// The length of the data behind the header.
    pub fn data_bytes(&self) -> usize {
        if self.command == Command::Write { self.length as usize } else { 0 }
    }
}

/// The header of a simple reply. The data of a successful read follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// 0 for success.
    pub error: Errno,
    /// The request's number.
    pub cookie: u64,
}

impl Reply {
    /// Decodes the header at the front of `input`; `None` if it is incomplete.
    ///
    /// # Errors
    /// If no header begins there.
    pub fn decode(input: &[u8]) -> Result<Option<Reply>, Malformed> {
        let mut fields = Fields(input);
        if fields.u32().is_some_and(|magic| magic != REPLY_MAGIC) {
            return Err(Malformed("a reply has a wrong magic number"));
        }
        let mut header = || Some(Reply { error: fields.u32()?, cookie: fields.u64()? });
        Ok(header())
    }

    /// Appends the header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut header = [0; REPLY_BYTES];
        header[..4].copy_from_slice(&REPLY_MAGIC.to_be_bytes());
        header[4..8].copy_from_slice(&self.error.to_be_bytes());
        header[8..].copy_from_slice(&self.cookie.to_be_bytes());
        out.extend_from_slice(&header);
    }
}
