//! Cas tokens that hold on every server: pure, no sockets.
//!
//! Each server numbers its items by itself, so an item has another token on each. The client is
//! given one that stands for all of them, see `docs/decisions/0001-cas-over-replicas.md`.

use knee_proto::{Expect, Request, Response, Status, Store, encode};

use crate::gather::parse;
use crate::opaque::Opaque;

/// The token that stands for the servers' own, in the order of the command line.
///
/// It depends on nothing else, so that every thread and every middleware in front of the same
/// servers gives and understands the same tokens, before and after a restart. Two different sets of
/// tokens have the same one with probability 2^-64 (the mixing is that of splitmix64, Steele, Lea
/// and Flood 2014).
pub(crate) fn token(servers: impl Iterator<Item = u64>) -> u64 {
    fold(0x6b6e_6565, servers)
}

/// A token that no `cas` accepts, for values that are not the same on all servers.
pub(crate) fn void_token(servers: impl Iterator<Item = u64>) -> u64 {
    fold(0x766f_6964, servers)
}

fn fold(seed: u64, servers: impl Iterator<Item = u64>) -> u64 {
    servers.fold(seed, |hash, token| {
        let mut mixed = (hash ^ token).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

/// What the servers' present tokens say about the one that the client holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It holds; these are the servers' own.
    Holds(Vec<u64>),
    /// The item has changed, or is not the same on all servers.
    Changed,
    /// No server has the item.
    Gone,
    /// A server did not tell; its words.
    Unknown(Vec<u8>),
}

/// Compares the client's token with the answers to [`ask`], one per server.
pub(crate) fn standing<'a>(held: u64, answers: impl Iterator<Item = &'a [u8]>) -> Standing {
    let mut tokens = Vec::new();
    let (mut present, mut missing) = (false, false);
    for frame in answers {
        let answer = parse(frame, Expect::Meta);
        match answer.map(|response| (response.status, meta_token(&response))) {
            Some((Status::MetaDone, Some(token))) => {
                present = true;
                tokens.push(token);
            }
            Some((Status::MetaMiss, _)) => missing = true,
            _ => return Standing::Unknown(frame.to_vec()),
        }
    }
    match (present, missing) {
        (false, _) => Standing::Gone,
        (true, false) if token(tokens.iter().copied()) == held => Standing::Holds(tokens),
        _ => Standing::Changed,
    }
}

/// The token in a meta answer's flag `c`.
pub(crate) fn meta_token(response: &Response<'_>) -> Option<u64> {
    let flag = response.meta_flags().find(|flag| flag.letter == b'c')?;
    std::str::from_utf8(flag.argument).ok()?.parse().ok()
}

/// The token a conditional request holds, its key, and whether that is in base64.
pub(crate) fn condition<'a>(request: &Request<'a>) -> Option<(u64, &'a [u8], bool)> {
    match request {
        Request::Store(store) => Some((store.cas, store.key, false)),
        Request::MetaSet(meta) | Request::MetaDelete(meta) | Request::MetaArith(meta) => {
            Some((meta.options.cas, meta.key, meta.has(b'b')))
        }
        _ => None,
    }
}

/// Appends the question for an item's present token, with `number` as its opaque.
pub(crate) fn ask(key: &[u8], base64: bool, number: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(b"mg ");
    out.extend_from_slice(key);
    out.extend_from_slice(if base64 { b" c b" } else { b" c" });
    encode::meta_flag_number(b'O', number.into(), out);
    encode::line_end(out);
}

/// Appends a conditional request with the server's own token in place of the client's. `raw` is
/// what `request` was decoded from.
pub(crate) fn with_token(request: &Request<'_>, raw: &[u8], token: u64, out: &mut Vec<u8>) {
    match request {
        Request::Store(store) => encode::store(&Store { cas: token, ..*store }, out),
        _ => replace_flag(raw, b'C', token, out),
    }
}

/// What a conditional request is answered with when its token no longer holds, or the item is gone.
pub(crate) fn refusal(request: &Request<'_>, opaque: &Opaque, gone: bool, out: &mut Vec<u8>) {
    let flags = match request {
        Request::MetaSet(meta) | Request::MetaDelete(meta) | Request::MetaArith(meta) => {
            out.extend_from_slice(if gone { encode::META_NOT_FOUND } else { encode::META_EXISTS });
            meta.flags()
        }
        _ => return out.extend_from_slice(if gone { encode::NOT_FOUND } else { encode::EXISTS }),
    };
    // As memcached, which repeats these two whatever became of the request.
    for flag in flags {
        match flag.letter {
            b'O' => {
                if let Some(client) = opaque.client() {
                    encode::meta_flag(b'O', client, out);
                }
            }
            b'k' => {
                if let Some((_, key, _)) = condition(request) {
                    encode::meta_flag(b'k', key, out);
                }
            }
            b'b' => encode::meta_flag(b'b', b"", out),
            _ => {}
        }
    }
    encode::line_end(out);
}

/// Appends `frame` with the number behind the flag `letter` replaced. A meta line's flags begin
/// behind its first two words; those of `ms` and `VA` behind a length, which no letter begins.
pub(crate) fn replace_flag(frame: &[u8], letter: u8, number: u64, out: &mut Vec<u8>) {
    let line_end = frame.iter().position(|&byte| byte == b'\n').unwrap_or(frame.len());
    let (line, behind) = frame.split_at(line_end);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // An answer has its code alone before the flags, a request its verb and key.
    let words_before = if letter.is_ascii_uppercase() { 2 } else { 1 };
    let words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    for (index, word) in words.enumerate() {
        if index > 0 {
            out.push(b' ');
        }
        if index >= words_before && word[0] == letter {
            out.push(letter);
            encode::number(number, out);
        } else {
            out.extend_from_slice(word);
        }
    }
    out.push(b'\r');
    out.extend_from_slice(behind);
}

#[cfg(test)]
mod tests {
    use super::*;
    use knee_proto::{Decoded, Limits, RequestDecoder};

    fn standing_of(held: u64, answers: &[&str]) -> Standing {
        standing(held, answers.iter().map(|answer| answer.as_bytes()))
    }

    #[test]
    fn a_token_holds_as_long_as_every_servers_own_does() {
        let held = token([4, 9].into_iter());
        assert_eq!(standing_of(held, &["HD c4\r\n", "HD c9\r\n"]), Standing::Holds(vec![4, 9]));
        // Written meanwhile on one server.
        assert_eq!(standing_of(held, &["HD c4\r\n", "HD c10\r\n"]), Standing::Changed);
        // The order of the servers is part of it.
        assert_eq!(standing_of(held, &["HD c9\r\n", "HD c4\r\n"]), Standing::Changed);
        // Evicted on one server.
        assert_eq!(standing_of(held, &["HD c4\r\n", "EN\r\n"]), Standing::Changed);
        assert_eq!(standing_of(held, &["EN\r\n", "EN\r\n"]), Standing::Gone);
        assert_eq!(
            standing_of(held, &["HD c4\r\n", "ERROR\r\n"]),
            Standing::Unknown(b"ERROR\r\n".to_vec())
        );
    }

    #[test]
    fn a_void_token_never_holds() {
        assert_ne!(void_token([4, 9].into_iter()), token([4, 9].into_iter()));
    }

    #[test]
    fn each_server_gets_its_own_token() {
        // (request, the same with token 99)
        let rows = [
            ("cas k 1 2 3 7\r\nabc\r\n", "cas k 1 2 3 99\r\nabc\r\n"),
            ("ms C1 3 T0 C7 c\r\nabc\r\n", "ms C1 3 T0 C99 c\r\nabc\r\n"),
            ("md k C7 q\r\n", "md k C99 q\r\n"),
        ];
        for (line, expected) in rows {
            let mut decoder = RequestDecoder::new(Limits::default());
            let Decoded::Complete { item, .. } = decoder.decode(line.as_bytes()) else {
                panic!("{line:?} is no request");
            };
            let mut out = Vec::new();
            with_token(&item, line.as_bytes(), 99, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }

    #[test]
    fn answers_get_the_common_token() {
        // (answer, the same with token 99)
        let rows = [
            ("HD c7 Oq\r\n", "HD c99 Oq\r\n"),
            ("VA 3 f0 c7\r\nc 1\r\n", "VA 3 f0 c99\r\nc 1\r\n"),
        ];
        for (frame, expected) in rows {
            let mut out = Vec::new();
            replace_flag(frame.as_bytes(), b'c', 99, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }

    #[test]
    fn refusals_are_in_the_words_of_the_request() {
        // (request, answer when changed, answer when gone)
        let rows = [
            ("cas k 0 0 1 7\r\nx\r\n", "EXISTS\r\n", "NOT_FOUND\r\n"),
            ("ms k 1 C7 Oab k\r\nx\r\n", "EX Oab kk\r\n", "NF Oab kk\r\n"),
        ];
        for (line, changed, gone) in rows {
            let mut decoder = RequestDecoder::new(Limits::default());
            let Decoded::Complete { item, .. } = decoder.decode(line.as_bytes()) else {
                panic!("{line:?} is no request");
            };
            for (is_gone, expected) in [(false, changed), (true, gone)] {
                let mut out = Vec::new();
                let opaque = Opaque::new(1, Some(b"ab"));
                refusal(&item, &opaque, is_gone, &mut out);
                assert_eq!(String::from_utf8_lossy(&out), expected);
            }
        }
    }
}
