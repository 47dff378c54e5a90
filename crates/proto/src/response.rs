//! Responses, borrowed from the bytes they were decoded from.

use memchr::memchr;

use crate::meta_flags::MetaFlags;
use crate::number::{parse_digits, parse_u64};
use crate::token::Tokens;

/// The meaning of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status<'a> {
    /// `STORED`
    Stored,
    /// `NOT_STORED`: the condition of an `add`, `replace`, `append` or `prepend` did not hold.
    NotStored,
    /// `EXISTS`: the cas token is outdated.
    Exists,
    /// `NOT_FOUND`
    NotFound,
    /// `DELETED`
    Deleted,
    /// `TOUCHED`
    Touched,
    /// `OK`
    Ok,
    /// `RESET`: statistics were set to zero.
    Reset,
    /// The new value of a counter.
    Number(u64),
    /// The end of a retrieval, `END`, after any number of values.
    Values,
    /// The end of statistics, `END`, after any number of lines.
    Stats,
    /// `VERSION`, with the rest of the line.
    Version(&'a [u8]),
    /// `VA`: a value follows.
    MetaValue,
    /// `HD`: done, or a hit without its value.
    MetaDone,
    /// `EN`: a miss.
    MetaMiss,
    /// `NF`: not found.
    MetaNotFound,
    /// `NS`: not stored.
    MetaNotStored,
    /// `EX`: the cas token is outdated.
    MetaExists,
    /// `MN`: all requests before it are answered.
    MetaNoop,
    /// `ME`: an item's metadata.
    MetaDebug,
    /// `ERROR`: the server does not know the request. The whole line, without its end.
    Error(&'a [u8]),
    /// `CLIENT_ERROR`: the request was wrong. The whole line, without its end.
    ClientError(&'a [u8]),
    /// `SERVER_ERROR`: the server failed. The whole line, without its end.
    ServerError(&'a [u8]),
    /// Any other line, without its end.
    Other(&'a [u8]),
}

impl<'a> Status<'a> {
    /// Whether the response ends with an error line.
    pub fn is_error(&self) -> bool {
        matches!(self, Status::Error(_) | Status::ClientError(_) | Status::ServerError(_))
    }

    /// The status of a single line that answers a classic command.
    pub(crate) fn of_line(line: &'a [u8]) -> Status<'a> {
        match line {
            b"STORED" => Status::Stored,
            b"NOT_STORED" => Status::NotStored,
            b"EXISTS" => Status::Exists,
            b"NOT_FOUND" => Status::NotFound,
            b"DELETED" => Status::Deleted,
            b"TOUCHED" => Status::Touched,
            b"OK" => Status::Ok,
            b"RESET" => Status::Reset,
            _ => {
                if let Some(number) = parse_digits(line).or_else(|| number_of_twenty(line)) {
                    return Status::Number(number);
                }
                if let Some(version) = line.strip_prefix(b"VERSION ") {
                    return Status::Version(version);
                }
                Status::of_error(line).unwrap_or(Status::Other(line))
            }
        }
    }

    /// The status of an error line; `None` for other lines.
    pub(crate) fn of_error(line: &'a [u8]) -> Option<Status<'a>> {
        if line.starts_with(b"ERROR") {
            Some(Status::Error(line))
        } else if line.starts_with(b"CLIENT_ERROR") {
            Some(Status::ClientError(line))
        } else if line.starts_with(b"SERVER_ERROR") {
            Some(Status::ServerError(line))
        } else {
            None
        }
    }

    pub(crate) fn of_meta(code: &[u8]) -> Option<Status<'a>> {
        Some(match code {
            b"VA" => Status::MetaValue,
            b"HD" => Status::MetaDone,
            b"EN" => Status::MetaMiss,
            b"NF" => Status::MetaNotFound,
            b"NS" => Status::MetaNotStored,
            b"EX" => Status::MetaExists,
            b"MN" => Status::MetaNoop,
            b"ME" => Status::MetaDebug,
            _ => return None,
        })
    }
}

/// A counter of twenty digits, from 10^19 on.
fn number_of_twenty(line: &[u8]) -> Option<u64> {
    if line.len() == 20 && line[0].is_ascii_digit() { parse_u64(line) } else { None }
}

/// One whole response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response<'a> {
    /// The meaning of the response.
    pub status: Status<'a>,
    /// The number of values. A retrieval counts its hits, also those before an error line; a meta response with a value
    /// counts 1.
    pub hits: usize,
    /// The length of these values together.
    pub value_bytes: usize,
    /// The bytes of the response.
    pub raw: &'a [u8],
}

impl<'a> Response<'a> {
    /// The values of a retrieval, in their order; none for other responses.
    pub fn values(&self) -> Values<'a> {
        let meta = matches!(self.status, Status::MetaValue);
        Values { rest: self.raw, left: if meta { 0 } else { self.hits } }
    }

    /// The flags of a meta response, in their order; none for other responses and for `ME`.
    pub fn meta_flags(&self) -> MetaFlags<'a> {
        let leading_words = match self.status {
            Status::MetaValue => 2,
            Status::MetaDone
            | Status::MetaMiss
            | Status::MetaNotFound
            | Status::MetaNotStored
            | Status::MetaExists => 1,
            _ => return MetaFlags::new(b""),
        };
        let mut words = Tokens::new(first_line(self.raw));
        words.by_ref().take(leading_words).for_each(drop);
        MetaFlags::new(words.rest())
    }

    /// The value of a meta response with a value (`VA`).
    pub fn meta_value(&self) -> Option<&'a [u8]> {
        if self.status != Status::MetaValue {
            return None;
        }
        let end = self.raw.len() - 2;
        Some(&self.raw[end - self.value_bytes..end])
    }
}

/// One value of a retrieval's response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The client's number that is stored with the value.
    pub flags: u32,
    /// The cas token, if the request was `gets` or `gats`.
    pub cas: Option<u64>,
    /// The value.
    pub value: &'a [u8],
    /// The bytes from `VALUE` to the line end after the value.
    pub raw: &'a [u8],
}

/// Iterator over a retrieval's values.
#[derive(Debug, Clone)]
pub struct Values<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Iterator for Values<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        let line_end = memchr(b'\n', self.rest)?;
        let header = ValueHeader::parse(first_line(self.rest))?;
        let start = line_end + 1;
        let end = start + header.value_bytes;
        let (raw, rest) = self.rest.split_at_checked(end + 2)?;
        self.rest = rest;
        let ValueHeader { key, flags, cas, .. } = header;
        Some(Value { key, flags, cas, value: &raw[start..end], raw })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Values<'_> {}

/// The line before a value.
#[derive(Clone, Copy)]
pub(crate) struct ValueHeader<'a> {
    pub(crate) key: &'a [u8],
    flags: u32,
    pub(crate) value_bytes: usize,
    pub(crate) cas: Option<u64>,
}

impl<'a> ValueHeader<'a> {
    /// Parses `VALUE key flags bytes [cas]` without its line end.
    #[inline]
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        let mut words = Tokens::new(line.strip_prefix(b"VALUE ")?);
        let key = words.next()?;
        let flags = u32::try_from(parse_digits(words.next()?)?).ok()?;
        let value_bytes = usize::try_from(parse_digits(words.next()?)?).ok()?;
        let cas = match words.next() {
            Some(word) => Some(parse_u64(word)?),
            None => None,
        };
        words.next().is_none().then_some(ValueHeader { key, flags, value_bytes, cas })
    }
}

fn first_line(bytes: &[u8]) -> &[u8] {
    let line = memchr(b'\n', bytes).map_or(bytes, |end| &bytes[..end]);
    line.strip_suffix(b"\r").unwrap_or(line)
}
