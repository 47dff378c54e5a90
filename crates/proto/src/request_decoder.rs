//! Bytes to requests.

use memchr::memchr2;

use crate::decoded::Decoded;
use crate::error::{ErrorKind, ProtocolError};
use crate::limits::Limits;
use crate::meta::{Meta, MetaOptions};
use crate::number::{parse_i32, parse_i64, parse_u32, parse_u64};
use crate::request::{ArithVerb, Get, GetVerb, Request, StaleKey, Store, StoreVerb};
use crate::token::Tokens;

/// Decodes the requests of one connection.
///
/// Call [`decode`](RequestDecoder::decode) with all received bytes that are not consumed yet. The decoder notes its
/// progress, so it scans input once, even if the input arrives in small pieces.
#[derive(Debug, Clone)]
pub struct RequestDecoder {
    limits: Limits,
    /// Number of leading bytes known to contain neither line end nor NUL.
    scanned: usize,
    /// Length of the request at the front; 0 until its command line is read.
    wanted: usize,
    /// A refused request, and how many bytes of its value are still to be dropped.
    refused: Option<(ProtocolError, usize)>,
    /// See [`RequestDecoder::take_stale_key`].
    stale_key: Option<StaleKey>,
}

enum Line<'a> {
    Request(Request<'a>),
    /// A storage request without its value, and the value's length.
    Value(Request<'a>, usize),
    Error(ProtocolError),
    /// An error, and the length of the value after the line, which is dropped.
    ErrorWithValue(ProtocolError, usize),
    /// An error because the value, of `bytes` bytes, is too long. The value is dropped.
    TooLarge {
        error: ProtocolError,
        bytes: usize,
        stale_key: Option<StaleKey>,
    },
}

impl RequestDecoder {
    /// A decoder at the beginning of a connection.
    pub fn new(limits: Limits) -> Self {
        RequestDecoder { limits, scanned: 0, wanted: 0, refused: None, stale_key: None }
    }

    /// Decodes the request at the front of `input`.
    ///
    /// `input` must begin with the first unconsumed byte, and contain all unconsumed bytes of the last call. After a
    /// fatal error ([`ProtocolError::is_fatal`]), the connection must be closed.
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Decoded<Request<'a>, ProtocolError> {
        if let Some((error, bytes)) = self.refused {
            return self.throw_away(input, 0, bytes, error);
        }
        if input.len() < self.wanted {
            return Decoded::Incomplete { consumed: 0, wanted: self.wanted };
        }
        let Some(end) = memchr2(b'\n', 0, &input[self.scanned..]).map(|at| at + self.scanned)
        else {
            return self.no_line_end(input, input.len());
        };
        if end > self.limits.line_bytes_max && end > self.line_bytes_max(input) {
            return self.fatal(input);
        }
        if input[end] == 0 {
            let kind = if input[0] == BINARY { ErrorKind::Binary } else { ErrorKind::Nul };
            return self.invalid(input.len(), ProtocolError::new(kind));
        }
        let line = match input[..end] {
            // As in memcached, an empty line keeps its "\r". With or without it, an empty line is no command.
            [ref line @ .., b'\r'] if end > 1 => line,
            ref line => line,
        };
        match self.parse_line(line) {
            Line::Request(item) => self.complete(end + 1, item),
            Line::Value(request, value_bytes) => {
                if input.len() < end + 1 + value_bytes + 2 {
                    (self.scanned, self.wanted) = (end, end + 1 + value_bytes + 2);
                    return Decoded::Incomplete { consumed: 0, wanted: self.wanted };
                }
                self.value(input, end + 1, request, value_bytes)
            }
            Line::Error(error) => self.invalid(end + 1, error),
            Line::ErrorWithValue(error, bytes) => self.throw_away(input, end + 1, bytes + 2, error),
            Line::TooLarge { error, bytes, stale_key } => {
                self.stale_key = stale_key;
                self.throw_away(input, end + 1, bytes + 2, error)
            }
        }
    }

    /// The key of a `set` or `ms` that was refused with [`ErrorKind::TooLarge`]. memcached then deletes the key's old
    /// value, which the client wanted to replace.
    pub fn take_stale_key(&mut self) -> Option<StaleKey> {
        self.stale_key.take()
    }

    fn complete<'a>(
        &mut self,
        consumed: usize,
        item: Request<'a>,
    ) -> Decoded<Request<'a>, ProtocolError> {
        (self.scanned, self.wanted) = (0, 0);
        Decoded::Complete { consumed, item }
    }

    fn invalid<'a>(
        &mut self,
        consumed: usize,
        error: ProtocolError,
    ) -> Decoded<Request<'a>, ProtocolError> {
        (self.scanned, self.wanted, self.refused) = (0, 0, None);
        Decoded::Invalid { consumed, error }
    }

    /// Handles a line that has not ended yet: waits for more input unless the line is too long.
    #[cold]
    fn no_line_end<'a>(
        &mut self,
        input: &'a [u8],
        scanned: usize,
    ) -> Decoded<Request<'a>, ProtocolError> {
        if input.len() > self.limits.line_bytes_max && input.len() > self.line_bytes_max(input) {
            return self.fatal(input);
        }
        if input.first() == Some(&BINARY) {
            return self.invalid(input.len(), ProtocolError::new(ErrorKind::Binary));
        }
        self.scanned = scanned;
        Decoded::Incomplete { consumed: 0, wanted: input.len() + 1 }
    }

    #[cold]
    fn fatal<'a>(&mut self, input: &'a [u8]) -> Decoded<Request<'a>, ProtocolError> {
        let retrieval = self.line_bytes_max(input) > self.limits.line_bytes_max;
        let kind = match input[0] {
            BINARY => ErrorKind::Binary,
            _ if retrieval => ErrorKind::RetrievalTooLong,
            _ => ErrorKind::LineTooLong,
        };
        self.invalid(input.len(), ProtocolError::new(kind))
    }

    /// The limit of the line at the front. As in memcached, only `get` and `gets` may be longer than other lines.
    #[cold]
    fn line_bytes_max(&self, line: &[u8]) -> usize {
        let blanks = line.iter().take_while(|&&byte| byte == b' ').count();
        let verb = &line[blanks..];
        let retrieval = [&b"get "[..], b"gets "];
        // In a long line, memcached accepts at most 100 blanks before the verb.
        if blanks <= 100 && retrieval.iter().any(|name| verb.starts_with(name)) {
            self.limits.retrieval_line_bytes_max.max(self.limits.line_bytes_max)
        } else {
            self.limits.line_bytes_max
        }
    }

    /// Drops a refused request's value: `bytes` bytes from `start` on. As in memcached, the error follows only after
    /// the last byte.
    #[cold]
    fn throw_away<'a>(
        &mut self,
        input: &'a [u8],
        start: usize,
        bytes: usize,
        error: ProtocolError,
    ) -> Decoded<Request<'a>, ProtocolError> {
        let here = input.len() - start;
        if here >= bytes {
            return self.invalid(start + bytes, error);
        }
        (self.scanned, self.wanted) = (0, 0);
        self.refused = Some((error, bytes - here));
        Decoded::Incomplete { consumed: input.len(), wanted: 1 }
    }

    /// Completes a storage request with its value, which begins at `start`.
    fn value<'a>(
        &mut self,
        input: &'a [u8],
        start: usize,
        mut request: Request<'a>,
        value_bytes: usize,
    ) -> Decoded<Request<'a>, ProtocolError> {
        let end = start + value_bytes;
        let mut noreply = false;
        match &mut request {
            Request::Store(store) => (store.value, noreply) = (&input[start..end], store.noreply),
            Request::MetaSet(meta) => meta.value = &input[start..end],
            _ => {}
        }
        if &input[end..end + 2] == b"\r\n" {
            self.complete(end + 2, request)
        } else {
            self.invalid(end + 2, ProtocolError { kind: ErrorKind::BadDataChunk, noreply })
        }
    }

    fn parse_line<'a>(&self, line: &'a [u8]) -> Line<'a> {
        let mut words = Tokens::new(line);
        let Some(verb) = words.next() else { return unknown() };
        match verb {
            b"get" | b"bget" => self.get(GetVerb::Get, words),
            b"set" => self.store(StoreVerb::Set, words),
            b"gets" => self.get(GetVerb::Gets, words),
            b"gat" => self.get(GetVerb::Gat, words),
            b"gats" => self.get(GetVerb::Gats, words),
            b"mg" => self.meta(words, MetaError::Named, Request::MetaGet),
            b"ms" => self.meta_set(words),
            b"md" => self.meta(words, MetaError::Vague, Request::MetaDelete),
            b"ma" => self.meta(words, MetaError::Vague, Request::MetaArith),
            b"me" => self.meta_debug(words),
            b"mn" => Line::Request(Request::MetaNoop),
            b"add" => self.store(StoreVerb::Add, words),
            b"replace" => self.store(StoreVerb::Replace, words),
            b"append" => self.store(StoreVerb::Append, words),
            b"prepend" => self.store(StoreVerb::Prepend, words),
            b"cas" => self.store(StoreVerb::Cas, words),
            b"incr" => self.arith(ArithVerb::Incr, words),
            b"decr" => self.arith(ArithVerb::Decr, words),
            b"delete" => self.delete(words),
            b"touch" => self.touch(words),
            b"flush_all" => flush_all(words),
            b"stats" => Line::Request(Request::Stats { args: trim(words.rest()) }),
            b"version" => Line::Request(Request::Version),
            b"verbosity" => level(words, ErrorKind::BadLine, |level, noreply| Request::Verbosity {
                level,
                noreply,
            }),
            b"cache_memlimit" => level(words, ErrorKind::Unknown, |megabytes, noreply| {
                Request::CacheMemlimit { megabytes, noreply }
            }),
            b"shutdown" => Line::Request(Request::Shutdown { mode: trim(words.rest()) }),
            b"quit" => Line::Request(Request::Quit),
            _ if line[0] == BINARY => error(ErrorKind::Binary),
            _ if is_http(verb, line) => error(ErrorKind::Http),
            _ => unknown(),
        }
    }

    #[inline]
    fn get<'a>(&self, verb: GetVerb, mut words: Tokens<'a>) -> Line<'a> {
        let mut exptime = 0;
        if verb.with_exptime() {
            let Some(word) = words.next() else { return unknown() };
            let Some(seconds) = parse_i32(word) else { return error(ErrorKind::InvalidExptime) };
            exptime = i64::from(seconds);
        }
        let keys = words.rest();
        let (mut key_count, mut key_bytes) = (0, 0);
        for key in words {
            if key.len() > self.limits.key_bytes_max {
                return error(ErrorKind::BadLine);
            }
            key_count += 1;
            key_bytes += key.len();
        }
        if key_count == 0 && !verb.with_exptime() {
            return unknown();
        }
        let spaced_once = keys.len() == key_bytes + key_count;
        Line::Request(Request::Get(Get { verb, exptime, key_count, keys, spaced_once }))
    }

    #[inline]
    fn store<'a>(&self, verb: StoreVerb, words: Tokens<'a>) -> Line<'a> {
        let (words, count) = collect::<7>(words);
        let fixed = if verb == StoreVerb::Cas { 5 } else { 4 };
        if count != fixed && count != fixed + 1 {
            return unknown();
        }
        let noreply = words[count - 1] == b"noreply";
        let fail = |kind| ProtocolError { kind, noreply };
        let bad_line = || Line::Error(fail(ErrorKind::BadLine));
        let key = words[0];
        if key.len() > self.limits.key_bytes_max {
            return bad_line();
        }
        let (Some(flags), Some(exptime)) = (parse_u32(words[1]), parse_i32(words[2])) else {
            return bad_line();
        };
        let value_bytes = match value_length(words[3]) {
            Ok(bytes) => bytes,
            Err(kind) => return Line::Error(fail(kind)),
        };
        let mut cas = 0;
        if verb == StoreVerb::Cas {
            let Some(token) = parse_u64(words[4]) else { return bad_line() };
            cas = token;
        }
        if value_bytes > self.limits.value_bytes_max {
            let stale_key = (verb == StoreVerb::Set).then(|| StaleKey::new(key, false));
            return Line::TooLarge {
                error: fail(ErrorKind::TooLarge),
                bytes: value_bytes,
                stale_key,
            };
        }
        let exptime = i64::from(exptime);
        let store = Store { verb, key, flags, exptime, cas, value: b"", noreply };
        Line::Value(Request::Store(store), value_bytes)
    }

    fn arith<'a>(&self, verb: ArithVerb, words: Tokens<'a>) -> Line<'a> {
        let (words, count) = collect::<4>(words);
        if count != 2 && count != 3 {
            return unknown();
        }
        let noreply = words[count - 1] == b"noreply";
        if words[0].len() > self.limits.key_bytes_max {
            return Line::Error(ProtocolError { kind: ErrorKind::BadLine, noreply });
        }
        match parse_u64(words[1]) {
            Some(delta) => Line::Request(Request::Arith { verb, key: words[0], delta, noreply }),
            None => Line::Error(ProtocolError { kind: ErrorKind::InvalidDelta, noreply }),
        }
    }

    fn delete<'a>(&self, words: Tokens<'a>) -> Line<'a> {
        let (words, count) = collect::<4>(words);
        // Earlier versions of memcached had a hold time here, and 1.6.18 still accepts 0.
        let held = words[1] == b"0";
        let noreply = count > 1 && words[count.min(4) - 1] == b"noreply";
        let valid = match count {
            1 => true,
            2 => held || noreply,
            3 => held && noreply,
            _ => return unknown(),
        };
        let kind = if !valid { ErrorKind::DeleteUsage } else { ErrorKind::BadLine };
        if !valid || words[0].len() > self.limits.key_bytes_max {
            return Line::Error(ProtocolError { kind, noreply });
        }
        Line::Request(Request::Delete { key: words[0], noreply })
    }

    fn touch<'a>(&self, words: Tokens<'a>) -> Line<'a> {
        let (words, count) = collect::<4>(words);
        if count != 2 && count != 3 {
            return unknown();
        }
        let noreply = words[count - 1] == b"noreply";
        if words[0].len() > self.limits.key_bytes_max {
            return Line::Error(ProtocolError { kind: ErrorKind::BadLine, noreply });
        }
        match parse_i32(words[1]) {
            Some(exptime) => {
                let exptime = i64::from(exptime);
                Line::Request(Request::Touch { key: words[0], exptime, noreply })
            }
            None => Line::Error(ProtocolError { kind: ErrorKind::InvalidExptime, noreply }),
        }
    }

    /// `mg`, `md` and `ma`, which answer differently to wrong flags.
    fn meta<'a>(
        &self,
        mut words: Tokens<'a>,
        errors: MetaError,
        request: fn(Meta<'a>) -> Request<'a>,
    ) -> Line<'a> {
        let Some(key) = words.next() else { return unknown() };
        if key.len() > self.limits.key_bytes_max {
            return error(ErrorKind::BadLine);
        }
        let flags = words.rest();
        if words.count() > META_WORDS_MAX - 2 {
            return error(match errors {
                MetaError::Named => ErrorKind::MetaGetTooManyFlags,
                MetaError::Vague => ErrorKind::MetaTooManyFlags,
            });
        }
        let options = match MetaOptions::parse(flags, key) {
            Ok(options) => options,
            Err(kind) => {
                return error(match errors {
                    MetaError::Named => kind,
                    MetaError::Vague => ErrorKind::MetaInvalidOrDuplicateFlag,
                });
            }
        };
        let meta = Meta { key, value: b"", options, flags };
        let request = request(meta);
        if matches!(request, Request::MetaArith(_))
            && !matches!(options.mode, 0 | b'I' | b'+' | b'D' | b'-')
        {
            return error(ErrorKind::MetaArithMode);
        }
        if opaque_too_long(&meta) {
            return error(ErrorKind::MetaOpaqueTooLong);
        }
        Line::Request(request)
    }

    fn meta_set<'a>(&self, mut words: Tokens<'a>) -> Line<'a> {
        let Some(key) = words.next() else { return unknown() };
        let Some(length) = words.next() else { return error(ErrorKind::BadLine) };
        if key.len() > self.limits.key_bytes_max {
            return error(ErrorKind::BadLine);
        }
        let flags = words.rest();
        if words.count() > META_WORDS_MAX - 3 {
            return error(ErrorKind::MetaTooManyFlags);
        }
        let value_bytes = match value_length(length) {
            Ok(bytes) => bytes,
            Err(kind) => return error(kind),
        };
        let refuse = |kind| Line::ErrorWithValue(ProtocolError::new(kind), value_bytes);
        let options = match MetaOptions::parse(flags, key) {
            Ok(options) => options,
            Err(kind) => return refuse(kind),
        };
        let meta = Meta { key, value: b"", options, flags };
        if !matches!(options.mode, 0 | b'E' | b'A' | b'P' | b'R' | b'S') {
            return refuse(ErrorKind::MetaSetMode);
        }
        if opaque_too_long(&meta) {
            return refuse(ErrorKind::MetaOpaqueTooLong);
        }
        if value_bytes > self.limits.value_bytes_max {
            let stale_key = Some(StaleKey::new(key, meta.has(b'b')));
            let error = ProtocolError::new(ErrorKind::TooLarge);
            return Line::TooLarge { error, bytes: value_bytes, stale_key };
        }
        Line::Value(Request::MetaSet(meta), value_bytes)
    }

    /// `me` honours `b` directly after the key, and ignores everything else.
    fn meta_debug<'a>(&self, mut words: Tokens<'a>) -> Line<'a> {
        let Some(key) = words.next() else { return error(ErrorKind::BadLine) };
        if key.len() > self.limits.key_bytes_max {
            return error(ErrorKind::BadLine);
        }
        let mut options = MetaOptions::NONE;
        let mut flags: &[u8] = b"";
        if let Some(word @ b"b") = words.next() {
            if !crate::base64::decode(key, |_| ()) {
                return error(ErrorKind::BadLine);
            }
            options.mark(b'b');
            flags = word;
        }
        Line::Request(Request::MetaDebug(Meta { key, value: b"", options, flags }))
    }
}

/// How a meta command reports wrong flags.
#[derive(Clone, Copy)]
enum MetaError {
    /// With an answer for each kind of error.
    Named,
    /// With the same answer for all errors.
    Vague,
}

/// The first byte of a request of the binary protocol. No verb begins with it.
const BINARY: u8 = 0x80;

/// The most words of a meta command, with the command itself.
const META_WORDS_MAX: usize = 19;

/// Length of the longest opaque, without its letter `O`.
const OPAQUE_BYTES_MAX: usize = 31;

fn opaque_too_long(meta: &Meta<'_>) -> bool {
    meta.opaque().is_some_and(|opaque| opaque.len() > OPAQUE_BYTES_MAX)
}

/// Whether an unknown command is the first line of an HTTP request, or its `Host` header. The server
/// closes such a connection: otherwise a web page could make a browser write into a store, by commands in the body of a
/// request.
#[cold]
fn is_http(verb: &[u8], line: &[u8]) -> bool {
    verb.get(..5).is_some_and(|name| name.eq_ignore_ascii_case(b"host:"))
        || Tokens::new(line).last().is_some_and(|word| word.starts_with(b"HTTP/"))
}

fn unknown<'a>() -> Line<'a> {
    error(ErrorKind::Unknown)
}

fn error<'a>(kind: ErrorKind) -> Line<'a> {
    Line::Error(ProtocolError::new(kind))
}

/// The length of a value. memcached keeps value length plus line end in an `int`.
fn value_length(word: &[u8]) -> Result<usize, ErrorKind> {
    match parse_i64(word) {
        Some(bytes) if bytes > i64::from(i32::MAX) - 2 => Err(ErrorKind::LengthTooLarge),
        Some(bytes) => usize::try_from(bytes).map_err(|_| ErrorKind::BadLine),
        None => Err(ErrorKind::BadLine),
    }
}

/// The first `N` words, and their number. A line may have more words than `N`.
#[inline]
fn collect<'a, const N: usize>(words: Tokens<'a>) -> ([&'a [u8]; N], usize) {
    let mut collected = [&b""[..]; N];
    let mut count = 0;
    for word in words.take(N) {
        collected[count] = word;
        count += 1;
    }
    (collected, count)
}

fn flush_all<'a>(words: Tokens<'a>) -> Line<'a> {
    let (words, count) = collect::<3>(words);
    if count > 2 {
        return unknown();
    }
    let noreply = count > 0 && words[count - 1] == b"noreply";
    if count == usize::from(noreply) {
        return Line::Request(Request::FlushAll { delay: 0, noreply });
    }
    match parse_i32(words[0]) {
        Some(delay) => Line::Request(Request::FlushAll { delay: i64::from(delay), noreply }),
        None => Line::Error(ProtocolError { kind: ErrorKind::InvalidExptime, noreply }),
    }
}

/// `verbosity` or `cache_memlimit`.
fn level<'a>(
    words: Tokens<'a>,
    wrong: ErrorKind,
    request: impl FnOnce(u32, bool) -> Request<'a>,
) -> Line<'a> {
    let (words, count) = collect::<3>(words);
    if count != 1 && count != 2 {
        return unknown();
    }
    let noreply = words[count - 1] == b"noreply";
    match parse_u32(words[0]) {
        Some(level) => Line::Request(request(level, noreply)),
        None => Line::Error(ProtocolError { kind: wrong, noreply }),
    }
}

fn trim(words: &[u8]) -> &[u8] {
    let Some(start) = words.iter().position(|&byte| byte != b' ') else { return b"" };
    let end = words.iter().rposition(|&byte| byte != b' ').map_or(start, |last| last + 1);
    &words[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder() -> RequestDecoder {
        RequestDecoder::new(Limits { value_bytes_max: 100, ..Limits::default() })
    }

    #[test]
    fn whole_value_is_wanted_after_the_command_line() {
        let mut decoder = decoder();
        let input = b"set a 1 2 3\r\nabc\r\n";
        for seen in 0..12 {
            let wanted = Decoded::Incomplete { consumed: 0, wanted: seen + 1 };
            assert_eq!(decoder.decode(&input[..seen]), wanted);
        }
        for seen in 13..input.len() {
            let wanted = Decoded::Incomplete { consumed: 0, wanted: input.len() };
            assert_eq!(decoder.decode(&input[..seen]), wanted);
        }
        let Decoded::Complete { consumed, item: Request::Store(store) } = decoder.decode(input)
        else {
            panic!("no store")
        };
        assert_eq!((consumed, store.value), (input.len(), &b"abc"[..]));
    }

    #[test]
    fn too_large_value_is_dropped_before_its_error() {
        let mut decoder = decoder();
        let input = [b"set a 0 0 101\r\n", &[b'x'; 101][..], b"\r\nget b\r\n"].concat();
        let value_end = input.len() - 7;
        for (from, to) in [(0, 40), (40, 40), (40, value_end - 1)] {
            let outcome = decoder.decode(&input[from..to]);
            assert_eq!(outcome, Decoded::Incomplete { consumed: to - from, wanted: 1 });
        }
        let error = ProtocolError::new(ErrorKind::TooLarge);
        let outcome = decoder.decode(&input[value_end - 1..]);
        assert_eq!(outcome, Decoded::Invalid { consumed: 1, error });
        assert_eq!(decoder.take_stale_key().map(|key| key.bytes()), Some(b"a".to_vec()));
        let outcome = decoder.decode(&input[value_end..]);
        assert!(matches!(outcome, Decoded::Complete { consumed: 7, item: Request::Get(_) }));
        assert_eq!(decoder.take_stale_key(), None);
    }

    #[test]
    fn http_request_closes_the_connection() {
        let methods =
            ["GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"];
        let lines = methods.map(|method| format!("{method} / HTTP/1.1\r\n"));
        for line in lines.iter().map(String::as_str).chain(["Host: a\r\n", "host:a\r\n"]) {
            let input = [line.as_bytes(), b"set a 0 0 1\r\nx\r\n"].concat();
            match decoder().decode(&input) {
                Decoded::Invalid { error, .. } => {
                    assert_eq!((error.kind, error.is_fatal()), (ErrorKind::Http, true), "{line}");
                    assert_eq!(error.answer(), b"", "{line}");
                }
                other => panic!("{line}: {other:?}"),
            }
        }
        // A memcached command stays valid with such a key.
        let get = decoder().decode(b"get HTTP/1.1\r\n");
        assert!(matches!(get, Decoded::Complete { .. }), "{get:?}");
    }

    #[test]
    fn binary_request_closes_the_connection() {
        // The first header byte suffices. An opcode of 10 looks like a line end.
        let long = [b'\x80'; 3000];
        for input in [&b"\x80"[..], b"\x80\x0b\0\0", b"\x80\x0a\0\0", &long] {
            match decoder().decode(input) {
                Decoded::Invalid { error, .. } => {
                    assert_eq!((error.kind, error.is_fatal()), (ErrorKind::Binary, true));
                    assert_eq!(error.answer(), b"");
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(decoder().decode(b"get \x80\r\n"), Decoded::Complete { .. }));
    }

    #[test]
    fn line_with_nul_closes_the_connection() {
        for line in ["get a\0b\r\n", "mg a\0", "quit\0\r\n", "set k\0 0 0 9\r\nflush_all\r\n"] {
            match decoder().decode(line.as_bytes()) {
                Decoded::Invalid { consumed, error } => {
                    assert_eq!((consumed, error.kind), (line.len(), ErrorKind::Nul), "{line:?}");
                    assert!(error.is_fatal() && !error.answer().is_empty());
                }
                other => panic!("{line:?}: {other:?}"),
            }
        }
        // A value may have any byte.
        assert!(matches!(decoder().decode(b"set k 0 0 1\r\n\0\r\n"), Decoded::Complete { .. }));
    }

    #[test]
    fn value_length_beyond_32_bits_closes_the_connection() {
        for (line, is_fatal) in [
            ("set k 0 0 4294967296\r\n", true),
            ("ms k 4294967297\r\n", true),
            ("set k 0 0 -4294967295\r\n", false),
        ] {
            match decoder().decode(line.as_bytes()) {
                Decoded::Invalid { error, .. } => assert_eq!(error.is_fatal(), is_fatal, "{line}"),
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn too_long_line_is_fatal_and_gets_may_be_longer() {
        let line_bytes_max = Limits::default().line_bytes_max;
        let fatal = |line: &[u8]| matches!(decoder().decode(line), Decoded::Invalid { error, .. } if error.is_fatal());
        let blanks = |bytes| [&b"set"[..], &vec![b' '; bytes - 3]].concat();
        assert!(!fatal(&blanks(line_bytes_max)));
        assert!(fatal(&blanks(line_bytes_max + 1)));
        assert!(!fatal(&[&blanks(line_bytes_max)[..], b"\r\n"].concat()[1..]));
        assert!(fatal(&[&blanks(line_bytes_max + 1)[..], b"\r\n"].concat()));
        for verb in ["get", "gets", "gat 0"] {
            let mut line = verb.as_bytes().to_vec();
            while line.len() <= line_bytes_max {
                line.extend_from_slice(b" key");
            }
            assert_eq!(fatal(&line), verb == "gat 0", "{verb}");
            line.resize(Limits::default().retrieval_line_bytes_max + 1, b' ');
            assert!(fatal(&line), "{verb}");
        }
    }
}
