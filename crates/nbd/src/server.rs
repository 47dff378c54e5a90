//! The server's side of the handshake: fixed newstyle, one export without a name.

use super::wire::*;
use super::{BLOCK_BYTES, DATA_BYTES_MAX, Export, Malformed};

/// The outcome of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The message is incomplete.
    Incomplete,
    /// The message had this length; another one follows.
    Next(usize),
    /// The message had this length; requests follow.
    Transmit(usize),
    /// The client leaves, or named another export by an option that has no error. The connection ends.
    Leave,
}

/// The state of a handshake.
#[derive(Debug, Default)]
pub struct Negotiation {
    /// The client's flags, once they came.
    flags: Option<u16>,
}

impl Negotiation {
    /// Begins with the greeting.
    pub fn begin(out: &mut Vec<u8>) -> Negotiation {
        out.extend_from_slice(&GREETING.to_be_bytes());
        out.extend_from_slice(&HAVE_OPTION.to_be_bytes());
        out.extend_from_slice(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
        Negotiation::default()
    }

    /// Takes the message at the front of `input`, and appends the answer to `out`.
    ///
    /// # Errors
    /// If no message begins there.
    pub fn take(
        &mut self,
        input: &[u8],
        export: &Export,
        out: &mut Vec<u8>,
    ) -> Result<Step, Malformed> {
        let mut fields = Fields(input);
        let Some(flags) = self.flags else {
            let Some(flags) = fields.u32() else { return Ok(Step::Incomplete) };
            if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
                return Err(Malformed("the client asks for unknown flags"));
            }
            self.flags = Some(flags as u16);
            return Ok(Step::Next(4));
        };
        if fields.u64().is_some_and(|magic| magic != HAVE_OPTION) {
            return Err(Malformed("an option has a wrong magic number"));
        }
        let (Some(option), Some(length)) = (fields.u32(), fields.u32()) else {
            return Ok(Step::Incomplete);
        };
        if length > OPTION_BYTES_MAX {
            return Err(Malformed("an option is too long"));
        }
        let Some(data) = fields.bytes(length as usize) else { return Ok(Step::Incomplete) };
        let consumed = input.len() - fields.0.len();
        match option {
            OPTION_EXPORT_NAME if data.is_empty() => {
                out.extend_from_slice(&export.bytes.to_be_bytes());
                out.extend_from_slice(&export.flags().to_be_bytes());
                if flags & NO_ZEROES == 0 {
                    out.extend_from_slice(&[0; 124]);
                }
                return Ok(Step::Transmit(consumed));
            }
            OPTION_EXPORT_NAME => return Ok(Step::Leave),
            OPTION_ABORT => {
                answer(option, ANSWER_ACK, &[], out);
                return Ok(Step::Leave);
            }
            OPTION_LIST if data.is_empty() => {
                answer(option, ANSWER_SERVER, &0_u32.to_be_bytes(), out);
                answer(option, ANSWER_ACK, &[], out);
            }
            OPTION_INFO | OPTION_GO => match wishes(data) {
                None => answer(option, ANSWER_INVALID, b"the option is malformed", out),
                Some((name, _)) if !name.is_empty() => {
                    answer(option, ANSWER_UNKNOWN, b"the only export has an empty name", out);
                }
                Some((_, wants_block_size)) => {
                    answer(option, ANSWER_INFO, &export_info(export), out);
                    if wants_block_size {
                        answer(option, ANSWER_INFO, &block_size_info(), out);
                    }
                    answer(option, ANSWER_ACK, &[], out);
                    if option == OPTION_GO {
                        return Ok(Step::Transmit(consumed));
                    }
                }
            },
            OPTION_LIST => answer(option, ANSWER_INVALID, b"the option has data", out),
            _ => answer(option, ANSWER_UNSUPPORTED, &[], out),
        }
        Ok(Step::Next(consumed))
    }
}

/// The name of the wanted export, and whether the client wants to know the sizes of blocks.
fn wishes(data: &[u8]) -> Option<(&[u8], bool)> {
    let mut fields = Fields(data);
    let length = fields.u32()?;
    let name = fields.bytes(length as usize)?;
    let count = fields.u16()?;
    let mut wants_block_size = false;
    for _ in 0..count {
        wants_block_size |= fields.u16()? == INFO_BLOCK_SIZE;
    }
    fields.0.is_empty().then_some((name, wants_block_size))
}

fn export_info(export: &Export) -> [u8; 12] {
    let mut info = [0; 12];
    info[..2].copy_from_slice(&INFO_EXPORT.to_be_bytes());
    info[2..10].copy_from_slice(&export.bytes.to_be_bytes());
    info[10..].copy_from_slice(&export.flags().to_be_bytes());
    info
}

/// The smallest, the preferred and the largest request.
fn block_size_info() -> [u8; 14] {
    let mut info = [0; 14];
    info[..2].copy_from_slice(&INFO_BLOCK_SIZE.to_be_bytes());
    info[2..6].copy_from_slice(&1_u32.to_be_bytes());
    info[6..10].copy_from_slice(&(BLOCK_BYTES as u32).to_be_bytes());
    info[10..].copy_from_slice(&DATA_BYTES_MAX.to_be_bytes());
    info
}

fn answer(option: u32, kind: u32, data: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&OPTION_REPLY.to_be_bytes());
    for number in [option, kind, data.len() as u32] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    out.extend_from_slice(data);
}
