//! Meta commands: their flags, memcached's checks of the flags, and the answers that `q` suppresses.

use crate::base64;
use crate::error::ErrorKind;
use crate::meta_flags::{MetaFlag, MetaFlags};
use crate::number::{parse_i32, parse_u32, parse_u64};
use crate::response::Status;

/// A meta command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaVerb {
    /// `mg`
    Get,
    /// `ms`
    Set,
    /// `md`
    Delete,
    /// `ma`
    Arith,
    /// `me`
    Debug,
}

/// Whether memcached 1.6.18 suppresses an answer because the request has `q`.
///
/// | command | suppressed | always sent |
/// |---|---|---|
/// | `mg` | `EN` | `VA`, `HD` |
/// | `ms` | `HD` | `NS`, `EX`, `NF` |
/// | `md` | `HD` | `NF`, `EX` |
/// | `ma` | `HD`, `VA` | `NF`, `EX`, `NS` |
/// | `me` | none: it has no `q` | `ME`, `EN` |
///
/// Error lines and `MN` are always sent. The answer does not show one exception: an `ma` that *created* its item (flag
/// `N`) answers even with `q`.
pub fn quiet_suppresses(verb: MetaVerb, status: Status<'_>) -> bool {
    match verb {
        MetaVerb::Get => status == Status::MetaMiss,
        MetaVerb::Set | MetaVerb::Delete => status == Status::MetaDone,
        MetaVerb::Arith => matches!(status, Status::MetaDone | Status::MetaValue),
        MetaVerb::Debug => false,
    }
}

/// A request of a meta command with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta<'a> {
    /// The key as sent: base64 if the flag `b` is present, see [`Meta::key_bytes`].
    pub key: &'a [u8],
    /// The value of an `ms`, without its line end; empty for other commands.
    pub value: &'a [u8],
    /// The parsed flags.
    pub options: MetaOptions,
    pub(crate) flags: &'a [u8],
}

impl<'a> Meta<'a> {
    /// The flags in their order. Answers return `O`, `k`, `c` and other flags in the same order.
    pub fn flags(&self) -> impl Iterator<Item = MetaFlag<'a>> + Clone + use<'a> {
        let options = self.options;
        MetaFlags::new(self.flags).filter(move |flag| options.has(flag.letter))
    }

    /// Whether a flag is present.
    pub fn has(&self, letter: u8) -> bool {
        self.options.has(letter)
    }

    /// Whether the flag `q` is present, which suppresses some answers, see [`quiet_suppresses`].
    pub fn quiet(&self) -> bool {
        self.has(b'q')
    }

    /// The argument of the flag `O`, which the answer repeats.
    pub fn opaque(&self) -> Option<&'a [u8]> {
        self.has(b'O')
            .then(|| self.flags().find(|flag| flag.letter == b'O'))?
            .map(|flag| flag.argument)
    }

    /// The key in plain bytes. If the flag `b` is present, the key is decoded into `scratch`.
    pub fn key_bytes<'b>(&self, scratch: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        if !self.has(b'b') {
            return self.key;
        }
        scratch.clear();
        base64::decode(self.key, |byte| scratch.push(byte));
        scratch
    }
}

/// The numbers in a meta command's flags. The number of an absent flag is 0, except for `D`; see [`MetaOptions::has`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaOptions {
    /// Bit n is set if the flag with the ASCII code of `A` plus n is present.
    present: u64,
    /// `T`: new expiry time, as [`Store::exptime`](crate::Store::exptime).
    pub exptime: i64,
    /// `N`: expiry time of an item created on a miss.
    pub vivify_exptime: i64,
    /// `R`: the remaining time, in seconds, below which the client is asked to store the item anew.
    pub recache_exptime: i64,
    /// `F`: client flags.
    pub client_flags: u32,
    /// `C`: the expected cas token.
    pub cas: u64,
    /// `M`: the mode's letter, 0 when absent.
    pub mode: u8,
    /// `J`: initial value of an item that `ma` creates.
    pub initial: u64,
    /// `D`: delta of `ma`, 1 when absent.
    pub delta: u64,
}

impl MetaOptions {
    pub(crate) const NONE: MetaOptions = MetaOptions {
        present: 0,
        exptime: 0,
        vivify_exptime: 0,
        recache_exptime: 0,
        client_flags: 0,
        cas: 0,
        mode: 0,
        initial: 0,
        delta: 1,
    };

    /// Whether a flag is present.
    pub fn has(&self, letter: u8) -> bool {
        letter.is_ascii_alphabetic() && self.present & bit(letter) != 0
    }

    /// The number of flags.
    pub fn count(&self) -> usize {
        self.present.count_ones() as usize
    }

    /// Removes the flag `q`.
    pub(crate) fn answered(mut self) -> Self {
        self.present &= !bit(b'q');
        self
    }

    pub(crate) fn mark(&mut self, letter: u8) {
        self.present |= bit(letter);
    }

    /// Reads and checks flags in memcached's order. An unknown or repeated flag is an error at once. Of other errors,
    /// the last one counts.
    pub(crate) fn parse(flags: &[u8], key: &[u8]) -> Result<MetaOptions, ErrorKind> {
        let mut options = MetaOptions::NONE;
        let mut fault = None;
        for MetaFlag { letter, argument } in MetaFlags::new(flags) {
            if letter >= 127 || options.has(letter) {
                return Err(ErrorKind::MetaDuplicateFlag);
            }
            let read = match letter {
                b'b' => base64::decode(key, |_| ()).then_some(()).ok_or(ErrorKind::MetaKeyEncoding),
                b'N' => read_exptime(argument, &mut options.vivify_exptime),
                b'T' => read_exptime(argument, &mut options.exptime),
                b'R' => read_exptime(argument, &mut options.recache_exptime),
                b'F' => match parse_u32(argument) {
                    Some(flags) => {
                        options.client_flags = flags;
                        Ok(())
                    }
                    // memcached sets no error here, so an earlier error stays.
                    None => Err(fault.unwrap_or(ErrorKind::BadLine)),
                },
                b'C' => read_u64(argument, &mut options.cas, ErrorKind::MetaBadToken),
                b'J' => read_u64(argument, &mut options.initial, ErrorKind::MetaInitial),
                b'D' => read_u64(argument, &mut options.delta, ErrorKind::MetaDelta),
                b'M' => match argument {
                    [mode] => {
                        options.mode = *mode;
                        Ok(())
                    }
                    _ => Err(ErrorKind::MetaModeLength),
                },
                b'O' | b'P' | b'L' | b'I' | b'k' | b's' | b't' | b'c' | b'f' | b'v' | b'h'
                | b'l' | b'u' | b'q' => Ok(()),
                _ => return Err(ErrorKind::MetaInvalidFlag),
            };
            options.mark(letter);
            fault = read.err().or(fault);
        }
        fault.map_or(Ok(options), Err)
    }
}

/// The bit of a flag, which must be a letter.
fn bit(letter: u8) -> u64 {
    1 << (letter - b'A')
}

fn read_exptime(argument: &[u8], exptime: &mut i64) -> Result<(), ErrorKind> {
    *exptime = i64::from(parse_i32(argument).ok_or(ErrorKind::MetaBadToken)?);
    Ok(())
}

fn read_u64(argument: &[u8], number: &mut u64, fault: ErrorKind) -> Result<(), ErrorKind> {
    *number = parse_u64(argument).ok_or(fault)?;
    Ok(())
}
