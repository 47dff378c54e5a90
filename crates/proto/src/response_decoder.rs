//! Bytes to responses.

use memchr::memchr;

use crate::decoded::Decoded;
use crate::number::parse_digits;
use crate::response::{Response, Status, ValueHeader};
use crate::token::Tokens;

/// The form of a response. It depends on the request, see [`Request::expect`](crate::Request::expect); the response
/// itself does not show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// `VALUE …` blocks, then `END`.
    Retrieval,
    /// One line.
    Line,
    /// One line that begins with a two-letter code. After `VA`, a value follows the line.
    Meta,
    /// Lines of statistics, then `END`; or a single other line.
    Stats,
}

/// The request of a retrieval. Its response may have no other values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<'k> {
    /// The keys in order, separated by spaces.
    pub keys: &'k [u8],
    /// Whether each value comes with a cas token.
    pub with_cas: bool,
}

impl Asked<'_> {
    /// Whether `value` belongs to a requested key at or after place `from`. If so, `from` moves to the end of that key.
    #[inline]
    fn admits(&self, from: &mut usize, value: &ValueHeader<'_>) -> bool {
        let rest = &self.keys[*from..];
        // The value usually belongs to the next key, so the fast path splits no words.
        let next = rest.strip_prefix(b" ").unwrap_or(rest).strip_prefix(value.key);
        let behind = match next {
            Some(behind @ ([] | [b' ', ..])) => Some(behind),
            _ => behind_key(rest, value.key),
        };
        let Some(behind) = behind else { return false };
        *from = self.keys.len() - behind.len();
        value.cas.is_some() == self.with_cas
    }
}

/// The part of `keys` after the first word that equals `key`.
fn behind_key<'k>(keys: &'k [u8], key: &[u8]) -> Option<&'k [u8]> {
    let mut words = Tokens::new(keys);
    words.by_ref().any(|word| word == key).then(|| words.rest())
}

/// A response that cannot be decoded. Its connection cannot be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseError {
    /// A line that is not an answer to such a request.
    UnexpectedLine,
    /// A value whose header is malformed.
    BadValueHeader,
    /// A value without a line end after its length.
    BadValueEnd,
    /// A value that was not requested, values in another order, or a missing or needless cas token.
    UnexpectedValue,
    /// The response is longer than the limit.
    TooLong,
}

impl std::fmt::Display for ResponseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ResponseError::UnexpectedLine => {
                "the server sent a line that does not answer the request"
            }
            ResponseError::BadValueHeader => "the server sent a malformed value header",
            ResponseError::BadValueEnd => "the server sent a value with a wrong length",
            ResponseError::UnexpectedValue => "the server sent a value that was not asked for",
            ResponseError::TooLong => "the server's response exceeds the limit",
        })
    }
}

impl std::error::Error for ResponseError {}

/// Decodes the responses of one connection.
///
/// As for [`RequestDecoder`](crate::RequestDecoder), its input is all received bytes that are not consumed yet. The
/// decoder notes its progress, so it scans a response once, even if the response arrives in many pieces.
#[derive(Debug, Clone, Copy)]
pub struct ResponseDecoder {
    response_bytes_max: usize,
    progress: Progress,
}

/// How far the response at the front has been scanned.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    line_start: usize,
    /// The place from which to look for the end of the line.
    scanned: usize,
    /// The length of input from which on a call can make progress.
    wanted: usize,
    hits: usize,
    value_bytes: usize,
    /// The place in [`Asked::keys`] after the key of the last value.
    keys_seen: usize,
}

/// The meaning of a line within its response.
enum Step<'a> {
    /// The response ends with this line.
    End(Status<'a>),
    /// The response ends with this line and a value of this length.
    EndWithValue(Status<'a>, usize),
    /// The response continues after this line.
    More,
    /// The response continues after this line and a value.
    Value(ValueHeader<'a>),
}

impl ResponseDecoder {
    /// A decoder at the beginning of a connection, for responses of at most `response_bytes_max`
    /// bytes.
    pub fn new(response_bytes_max: usize) -> Self {
        ResponseDecoder { response_bytes_max, progress: Progress::default() }
    }

    /// Decodes the response at the front of `input`, to a request that expects `expect`.
    ///
    /// `input` must begin with the first byte that is not consumed yet. `expect` must stay the same until the response
    /// is complete. After an error, the connection must be closed.
    pub fn decode<'a>(
        &mut self,
        input: &'a [u8],
        expect: Expect,
    ) -> Decoded<Response<'a>, ResponseError> {
        self.decode_asked(input, expect, None)
    }

    /// As [`decode`](ResponseDecoder::decode). The response to a retrieval may only have values of the keys in `asked`,
    /// in their order.
    pub fn decode_asked<'a>(
        &mut self,
        input: &'a [u8],
        expect: Expect,
        asked: Option<Asked<'_>>,
    ) -> Decoded<Response<'a>, ResponseError> {
        if input.len() < self.progress.wanted {
            return Decoded::Incomplete { consumed: 0, wanted: self.progress.wanted };
        }
        match self.walk(input, expect, asked) {
            Ok(Some((end, status))) => {
                let Progress { hits, value_bytes, .. } = std::mem::take(&mut self.progress);
                let raw = &input[..end];
                let item = Response { status, hits, value_bytes, raw };
                Decoded::Complete { consumed: end, item }
            }
            Ok(None) => Decoded::Incomplete { consumed: 0, wanted: self.progress.wanted },
            Err(error) => {
                self.progress = Progress::default();
                Decoded::Invalid { consumed: input.len(), error }
            }
        }
    }

    /// Scans on, line by line. Returns the response's end and status if the response is complete.
    fn walk<'a>(
        &mut self,
        input: &'a [u8],
        expect: Expect,
        asked: Option<Asked<'_>>,
    ) -> Result<Option<(usize, Status<'a>)>, ResponseError> {
        loop {
            let progress = &mut self.progress;
            let Some(line_end) =
                memchr(b'\n', &input[progress.scanned..]).map(|at| at + progress.scanned)
            else {
                progress.scanned = input.len();
                return self.wait_for(input.len() + 1);
            };
            let line = &input[progress.line_start..line_end];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let first = progress.line_start == 0;
            let after_line = line_end + 1;
            if after_line > self.response_bytes_max {
                return Err(ResponseError::TooLong);
            }
            let after = match step(line, first, expect)? {
                Step::More => after_line,
                Step::End(status) => return Ok(Some((after_line, status))),
                Step::EndWithValue(status, bytes) => {
                    let after = self.value_end(input, line_end, bytes)?;
                    return Ok(after.map(|after| (after, status)));
                }
                Step::Value(header) => {
                    let bytes = header.value_bytes;
                    let Some(after) = self.value_end(input, line_end, bytes)? else {
                        return Ok(None);
                    };
                    // The check comes after the whole value: otherwise the next call would repeat it.
                    if let Some(asked) = asked
                        && !asked.admits(&mut self.progress.keys_seen, &header)
                    {
                        return Err(ResponseError::UnexpectedValue);
                    }
                    after
                }
            };
            self.progress.line_start = after;
            self.progress.scanned = after;
        }
    }

    /// The end of the value after a line, with its line end; `None` while the value is incomplete.
    #[inline]
    fn value_end(
        &mut self,
        input: &[u8],
        line_end: usize,
        bytes: usize,
    ) -> Result<Option<usize>, ResponseError> {
        // The length comes from the server and may be any number.
        let end = (line_end + 1).saturating_add(bytes).saturating_add(2);
        if end > self.response_bytes_max {
            return Err(ResponseError::TooLong);
        }
        if input.len() < end {
            self.progress.scanned = line_end;
            return self.wait_for(end);
        }
        if &input[end - 2..end] != b"\r\n" {
            return Err(ResponseError::BadValueEnd);
        }
        self.progress.hits += 1;
        self.progress.value_bytes += bytes;
        Ok(Some(end))
    }

    fn wait_for<T>(&mut self, wanted: usize) -> Result<Option<T>, ResponseError> {
        if wanted > self.response_bytes_max {
            return Err(ResponseError::TooLong);
        }
        self.progress.wanted = wanted;
        Ok(None)
    }
}

/// The meaning of a line within its response. `first`: the line is the response's first.
#[inline]
fn step(line: &[u8], first: bool, expect: Expect) -> Result<Step<'_>, ResponseError> {
    match expect {
        Expect::Retrieval => {
            if line.starts_with(b"VALUE ") {
                let header = ValueHeader::parse(line).ok_or(ResponseError::BadValueHeader)?;
                return Ok(Step::Value(header));
            }
            if line == b"END" {
                return Ok(Step::End(Status::Values));
            }
            Status::of_error(line).map(Step::End).ok_or(ResponseError::UnexpectedLine)
        }
        Expect::Line => Ok(Step::End(Status::of_line(line))),
        Expect::Meta => {
            let mut words = Tokens::new(line);
            let code = words.next().unwrap_or_default();
            let Some(status) = Status::of_meta(code) else {
                return Status::of_error(line).map(Step::End).ok_or(ResponseError::UnexpectedLine);
            };
            if !matches!(status, Status::MetaValue) {
                return Ok(Step::End(status));
            }
            let bytes = words.next().and_then(parse_digits).map(usize::try_from);
            let Some(Ok(bytes)) = bytes else { return Err(ResponseError::BadValueHeader) };
            Ok(Step::EndWithValue(status, bytes))
        }
        Expect::Stats => {
            if line == b"END" {
                return Ok(Step::End(Status::Stats));
            }
            let listed = [&b"STAT "[..], b"ITEM ", b"PREFIX "];
            let is_listed = listed.iter().any(|name| line.starts_with(name));
            if first && !is_listed {
                return Ok(Step::End(Status::of_line(line)));
            }
            match Status::of_error(line) {
                Some(status) => Ok(Step::End(status)),
                None if is_listed => Ok(Step::More),
                None => Err(ResponseError::UnexpectedLine),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(input: &[u8], expect: Expect) -> Decoded<Response<'_>, ResponseError> {
        ResponseDecoder::new(64).decode(input, expect)
    }

    #[test]
    fn lines_decode_to_their_statuses() {
        let rows: [(Expect, &[u8], Status<'_>); 16] = [
            (Expect::Line, b"STORED\r\n", Status::Stored),
            (Expect::Line, b"NOT_STORED\n", Status::NotStored),
            (Expect::Line, b"18446744073709551615\r\n", Status::Number(u64::MAX)),
            (Expect::Line, b"VERSION 1.6.18\r\n", Status::Version(b"1.6.18")),
            (Expect::Line, b"BUSY reassigning\r\n", Status::Other(b"BUSY reassigning")),
            (Expect::Line, b"ERROR\r\n", Status::Error(b"ERROR")),
            (Expect::Retrieval, b"END\r\n", Status::Values),
            (Expect::Retrieval, b"SERVER_ERROR x\r\n", Status::ServerError(b"SERVER_ERROR x")),
            (Expect::Meta, b"HD O1 ka\r\n", Status::MetaDone),
            (Expect::Meta, b"VA 2 O1\r\n\n\n\r\n", Status::MetaValue),
            (Expect::Meta, b"EN\r\n", Status::MetaMiss),
            (Expect::Meta, b"ME a size=1\r\n", Status::MetaDebug),
            (Expect::Meta, b"CLIENT_ERROR x\r\n", Status::ClientError(b"CLIENT_ERROR x")),
            (Expect::Stats, b"STAT a b\r\nSTAT OK c\r\nEND\r\n", Status::Stats),
            (Expect::Stats, b"RESET\r\n", Status::Reset),
            (Expect::Stats, b"ERROR\r\n", Status::Error(b"ERROR")),
        ];
        for (expect, input, status) in rows {
            match decode(input, expect) {
                Decoded::Complete { consumed, item } => {
                    assert_eq!((consumed, item.status), (input.len(), status));
                }
                other => panic!("{}: {other:?}", input.escape_ascii()),
            }
        }
    }

    #[test]
    fn error_line_ends_a_retrieval_that_has_begun() {
        let input = b"VALUE a 0 1\r\nx\r\nSERVER_ERROR out of memory\r\nEND\r\n";
        let Decoded::Complete { consumed, item } = decode(input, Expect::Retrieval) else {
            panic!("incomplete")
        };
        assert_eq!(consumed, input.len() - 5);
        assert!(item.status.is_error());
        assert_eq!(item.values().map(|value| value.value).collect::<Vec<_>>(), [b"x"]);
    }

    #[test]
    fn unrequested_or_unordered_values_are_errors() {
        // (keys, whether cas tokens are expected, keys of the answer, the token after each, whether the answer is
        // valid)
        let rows = [
            ("a b", false, "a b", "", true),
            ("a b", false, "b", "", true),
            ("a c b a", false, "a b a", "", true),
            ("a b", false, "", "", true),
            ("a b", false, "b a", "", false),
            // One key is a prefix of another.
            ("ab a", false, "a", "", true),
            ("ab a", false, "ab a", "", true),
            ("a ab", false, "ab", "", true),
            ("ab", false, "a", "", false),
            ("a", false, "ab", "", false),
            ("a", false, "b", "", false),
            ("a", false, "a a", "", false),
            ("a", true, "a", "", false),
            ("a", true, "a", " 7", true),
        ];
        for (keys, with_cas, answer, token, fits) in rows {
            let values: Vec<String> = (answer.split_terminator(' '))
                .map(|key| format!("VALUE {key} 0 1{token}\r\nx\r\n"))
                .collect();
            let input = format!("{}END\r\n", values.concat());
            let mut decoder = ResponseDecoder::new(100);
            // The input grows by one byte from call to call.
            let outcome = (1..=input.len())
                .map(|seen| {
                    let asked = Some(Asked { keys: keys.as_bytes(), with_cas });
                    decoder.decode_asked(&input.as_bytes()[..seen], Expect::Retrieval, asked)
                })
                .find(|outcome| !matches!(outcome, Decoded::Incomplete { .. }));
            let complete = matches!(outcome, Some(Decoded::Complete { .. }));
            assert_eq!(complete, fits, "{answer:?} for {keys:?}");
        }
    }

    #[test]
    fn undecodable_responses_are_errors() {
        let rows: [(Expect, &[u8], ResponseError); 11] = [
            (Expect::Retrieval, b"STORED\r\n", ResponseError::UnexpectedLine),
            (Expect::Meta, b"STORED\r\n", ResponseError::UnexpectedLine),
            (Expect::Stats, b"STAT a b\r\nVALUE v 0 1\r\n", ResponseError::UnexpectedLine),
            (Expect::Stats, b"STAT a b\r\nRESET\r\n", ResponseError::UnexpectedLine),
            (Expect::Retrieval, b"VALUE a 0\r\n", ResponseError::BadValueHeader),
            (Expect::Retrieval, b"VALUE a 0 -1\r\n", ResponseError::BadValueHeader),
            (Expect::Retrieval, b"VALUE a 0 1 2 3\r\n", ResponseError::BadValueHeader),
            (Expect::Meta, b"VA\r\n", ResponseError::BadValueHeader),
            (Expect::Retrieval, b"VALUE a 0 1\r\nxxx", ResponseError::BadValueEnd),
            // The decoder refuses it before it arrives, because it would need too large a buffer.
            (Expect::Retrieval, b"VALUE a 0 9999999999999999999\r\n", ResponseError::TooLong),
            (Expect::Line, &[b'x'; 64], ResponseError::TooLong),
        ];
        for (expect, input, error) in rows {
            let outcome = decode(input, expect);
            let expected = Decoded::Invalid { consumed: input.len(), error };
            assert_eq!(outcome, expected, "{}", input.escape_ascii());
        }
    }
}
