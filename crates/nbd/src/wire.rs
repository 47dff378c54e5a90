//! Numbers of the wire, and the constants of the handshake.

pub(super) const GREETING: u64 = 0x4e42_444d_4147_4943;
pub(super) const HAVE_OPTION: u64 = 0x4948_4156_454f_5054;
pub(super) const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;

/// Flags of the greeting, and of the client's answer to it.
pub(super) const FIXED_NEWSTYLE: u16 = 1 << 0;
pub(super) const NO_ZEROES: u16 = 1 << 1;

pub(super) const OPTION_EXPORT_NAME: u32 = 1;
pub(super) const OPTION_ABORT: u32 = 2;
pub(super) const OPTION_LIST: u32 = 3;
pub(super) const OPTION_INFO: u32 = 6;
pub(super) const OPTION_GO: u32 = 7;

pub(super) const ANSWER_ACK: u32 = 1;
pub(super) const ANSWER_SERVER: u32 = 2;
pub(super) const ANSWER_INFO: u32 = 3;
pub(super) const ANSWER_ERROR: u32 = 1 << 31;
pub(super) const ANSWER_UNSUPPORTED: u32 = ANSWER_ERROR | 1;
pub(super) const ANSWER_INVALID: u32 = ANSWER_ERROR | 3;
pub(super) const ANSWER_UNKNOWN: u32 = ANSWER_ERROR | 6;

pub(super) const INFO_EXPORT: u16 = 0;
pub(super) const INFO_BLOCK_SIZE: u16 = 3;

/// The longest data of an option, or of an answer to one. An export's name has at most 4096 bytes.
pub(super) const OPTION_BYTES_MAX: u32 = 8 << 10;

/// Takes big-endian numbers from the front; `None` at the end of the input.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}
