//! The client's side of the handshake: `GO` for the export without a name.

use super::export::{is_read_only, missing};
use super::wire::*;

/// What a server offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The size of the export.
    pub bytes: u64,
    flags: u16,
}

impl Offer {
    /// The first thing that a space needs and the server does not offer.
    pub fn missing(&self) -> Option<&'static str> {
        missing(self.flags)
    }

    /// Whether the server refuses changes.
    pub fn is_read_only(&self) -> bool {
        is_read_only(self.flags)
    }
}

/// The outcome of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialed {
    /// The message is incomplete.
    Incomplete,
    /// The message had this length; another one follows.
    Next(usize),
    /// The message had this length; requests may follow.
    Done(usize, Offer),
}

/// The state of a handshake.
#[derive(Debug, Default)]
pub struct Dial {
    greeted: bool,
    offer: Option<Offer>,
}

impl Dial {
    /// Takes the message at the front of `input`, and appends the answer to `out`.
    ///
    /// # Errors
    /// Why the server cannot be used.
    pub fn take(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Dialed, &'static str> {
        let mut fields = Fields(input);
        if !self.greeted {
            if fields.u64().is_some_and(|magic| magic != GREETING) {
                return Err("it is no NBD server");
            }
            let (Some(style), Some(flags)) = (fields.u64(), fields.u16()) else {
                return Ok(Dialed::Incomplete);
            };
            if style != HAVE_OPTION || flags & FIXED_NEWSTYLE == 0 {
                return Err("it speaks an old form of NBD");
            }
            self.greeted = true;
            begin(flags & (FIXED_NEWSTYLE | NO_ZEROES), out);
            return Ok(Dialed::Next(input.len() - fields.0.len()));
        }
        if fields.u64().is_some_and(|magic| magic != OPTION_REPLY) {
            return Err("an answer has a wrong magic number");
        }
        let (Some(option), Some(kind), Some(length)) = (fields.u32(), fields.u32(), fields.u32())
        else {
            return Ok(Dialed::Incomplete);
        };
        if option != OPTION_GO || length > OPTION_BYTES_MAX {
            return Err("an answer fits no option");
        }
        let Some(data) = fields.bytes(length as usize) else { return Ok(Dialed::Incomplete) };
        let consumed = input.len() - fields.0.len();
        match (kind, self.offer) {
            (ANSWER_INFO, _) => {
                let mut info = Fields(data);
                if info.u16() == Some(INFO_EXPORT) {
                    let (Some(bytes), Some(flags)) = (info.u64(), info.u16()) else {
                        return Err("its export has no size");
                    };
                    self.offer = Some(Offer { bytes, flags });
                }
                Ok(Dialed::Next(consumed))
            }
            (ANSWER_ACK, Some(offer)) => Ok(Dialed::Done(consumed, offer)),
            (ANSWER_UNKNOWN, _) => Err("it has no export with an empty name"),
            (ANSWER_UNSUPPORTED, _) => Err("it does not know NBD_OPT_GO"),
            _ => Err("it refuses NBD_OPT_GO"),
        }
    }
}

fn begin(flags: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(&u32::from(flags).to_be_bytes());
    out.extend_from_slice(&HAVE_OPTION.to_be_bytes());
    // The empty name, and no further information.
    for number in [OPTION_GO, 6, 0] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    out.extend_from_slice(&0_u16.to_be_bytes());
}
