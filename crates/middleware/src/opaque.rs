//! Opaque tokens of meta commands, which link an answer to its request.
//!
//! The middleware sends each meta command with a number as its opaque, and the answer must repeat the number. In the
//! reply, the client's own opaque replaces the number; without one, the flag is left out.

use std::ops::Range;

use knee_proto::{Response, Status, encode};

/// Longest opaque of a client, see [`knee_proto::ErrorKind::MetaOpaqueTooLong`].
const BYTES_MAX: usize = 31;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Opaque {
    /// The opaque for servers.
    pub(crate) number: u32,
    /// The client's opaque, if any.
    bytes: [u8; BYTES_MAX],
    length: Option<u8>,
}

impl Opaque {
    /// For a request without an opaque.
    pub(crate) const NONE: Opaque = Opaque { number: 0, bytes: [0; BYTES_MAX], length: None };

    /// For a request with `number` as the opaque for servers. The decoder has checked the client's opaque.
    pub(crate) fn new(number: u32, client: Option<&[u8]>) -> Opaque {
        let mut opaque = Opaque { number, ..Opaque::NONE };
        if let Some(client) = client {
            let length = client.len().min(BYTES_MAX);
            opaque.bytes[..length].copy_from_slice(&client[..length]);
            opaque.length = Some(length as u8);
        }
        opaque
    }

    pub(crate) fn client(&self) -> Option<&[u8]> {
        self.length.map(|length| &self.bytes[..usize::from(length)])
    }
}

/// A server's answer that belongs to its request.
#[derive(Debug, Clone)]
pub(crate) struct Answer<'a> {
    pub(crate) response: Response<'a>,
    /// The place of the flag with the middleware's number, including the space before it.
    flag: Range<usize>,
}

impl<'a> Answer<'a> {
    #[inline]
    pub(crate) fn plain(response: Response<'a>) -> Answer<'a> {
        Answer { flag: response.raw.len()..response.raw.len(), response }
    }

    /// The answer to a meta command with this number; `None` if it answers another command. Error lines have no flags.
    pub(crate) fn numbered(response: Response<'a>, number: u32) -> Option<Answer<'a>> {
        if response.status.is_error() {
            return Some(Answer::plain(response));
        }
        let flag = find_flag(&response, number)?;
        Some(Answer { response, flag })
    }

    /// Appends the answer in the client's form; returns its number of bytes.
    #[inline]
    pub(crate) fn write(&self, opaque: &Opaque, out: &mut Vec<u8>) -> usize {
        let before = out.len();
        let raw = self.response.raw;
        if self.flag.is_empty() {
            out.extend_from_slice(raw);
        } else {
            out.extend_from_slice(&raw[..self.flag.start]);
            if let Some(client) = opaque.client() {
                encode::meta_flag(b'O', client, out);
            }
            out.extend_from_slice(&raw[self.flag.end..]);
        }
        out.len() - before
    }
}

/// The place of ` O` and the number as a whole word of the first line.
fn find_flag(response: &Response<'_>, number: u32) -> Option<Range<usize>> {
    let raw = response.raw;
    let mut end = match response.status {
        Status::MetaValue => raw.len() - response.value_bytes - 2,
        _ => raw.len(),
    };
    while end > 0 && matches!(raw[end - 1], b'\r' | b'\n') {
        end -= 1;
    }
    // Search backwards: the flag comes last, unless the client also sent an opaque. The answer's code has no space
    // before it.
    loop {
        let start = raw[..end].iter().rposition(|&byte| byte == b' ')?;
        if let [b'O', digits @ ..] = &raw[start + 1..end]
            && is_number(digits, number)
        {
            return Some(start..end);
        }
        end = start;
    }
}

/// Whether the digits are the digits of `number`, compared from the last to the first.
fn is_number(mut digits: &[u8], mut number: u32) -> bool {
    while let [before @ .., digit] = digits {
        if *digit != b'0' + (number % 10) as u8 {
            return false;
        }
        (digits, number) = (before, number / 10);
        if number == 0 {
            return digits.is_empty();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::parse;
    use knee_proto::Expect;

    #[test]
    fn reply_has_the_clients_opaque() {
        // (answer, client's opaque, reply)
        let rows: [(&str, Option<&str>, Option<&str>); 13] = [
            ("HD O12\r\n", None, Some("HD\r\n")),
            ("HD O12\r\n", Some("mine"), Some("HD Omine\r\n")),
            ("HD O12\r\n", Some(""), Some("HD O\r\n")),
            ("VA 3 kO12 O12 W\r\nO12\r\n", Some("x"), Some("VA 3 kO12 Ox W\r\nO12\r\n")),
            ("EN O12 kx\r\n", None, Some("EN kx\r\n")),
            ("SERVER_ERROR busy\r\n", Some("x"), Some("SERVER_ERROR busy\r\n")),
            // Refuse another number, a longer number, no number, and a number in the value.
            ("HD O13\r\n", None, None),
            ("HD O123\r\n", None, None),
            ("HD O2\r\n", None, None),
            ("HD O012\r\n", None, None),
            ("HD O\r\n", None, None),
            ("HD\r\n", None, None),
            ("VA 4\r\n O12\r\n", None, None),
        ];
        for (answer, client, reply) in rows {
            let response = parse(answer.as_bytes(), Expect::Meta).expect("an answer");
            let opaque = Opaque::new(12, client.map(str::as_bytes));
            let got = Answer::numbered(response, opaque.number).map(|answer| {
                let mut out = Vec::new();
                assert_eq!(answer.write(&opaque, &mut out), out.len());
                String::from_utf8(out).expect("ASCII")
            });
            assert_eq!(got.as_deref(), reply, "{answer:?}");
        }
    }
}
