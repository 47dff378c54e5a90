//! Cas tokens that hold on every server: pure, no sockets.
//!
//! Each server numbers its items independently, so an item has different tokens on the servers. The client gets a
//! common token, which stands for all of them, see `docs/decisions/0001-cas-over-replicas.md`.

use knee_proto::{Expect, MetaVerb, Request, Response, Status, encode};

use crate::form::Form;
use crate::frame::parse;
use crate::opaque::Opaque;

/// The common token for the servers' own tokens, in the order of the command line. `absent` is the bit set of the servers
/// that are out: a token holds while the same servers are in.
///
/// It depends only on the servers' tokens. So all middlewares in front of the same servers have the same tokens, in all
/// threads and after a restart. Tokens are below 2^63, because some clients read them as signed integers. Different sets
/// of tokens have the same common token with probability 2^-63 (mixing function of splitmix64: Steele, Lea and Flood
/// 2014).
pub(crate) fn token(absent: u64, servers: impl Iterator<Item = u64>) -> u64 {
    fold(0x6b6e_6565 ^ absent.wrapping_mul(0x9e37_79b9_7f4a_7c15), servers)
}

/// A token that no `cas` accepts, for values that are not the same on all servers.
pub(crate) fn void_token(servers: impl Iterator<Item = u64>) -> u64 {
    fold(0x766f_6964, servers)
}

fn fold(seed: u64, servers: impl Iterator<Item = u64>) -> u64 {
    let hash = servers.fold(seed, |hash, token| {
        let mut mixed = (hash ^ token).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    });
    hash >> 1
}

/// The state of the client's token, according to the servers' present tokens.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The token holds; these are the servers' own tokens.
    Holds(Vec<u64>),
    /// The item has changed, or is not the same on all servers.
    Changed,
    /// No server has the item.
    Gone,
    /// A server sent no token; its answer.
    Unknown(Vec<u8>),
}

/// Compares the client's token with the answers to [`Condition::ask`], one of each server but the absent ones.
pub(crate) fn standing<'a>(
    held: u64,
    absent: u64,
    answers: impl Iterator<Item = &'a [u8]>,
) -> Standing {
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
        (true, false) if token(absent, tokens.iter().copied()) == held => Standing::Holds(tokens),
        _ => Standing::Changed,
    }
}

/// The token in a meta answer's flag `c`.
pub(crate) fn meta_token(response: &Response<'_>) -> Option<u64> {
    let flag = response.meta_flags().find(|flag| flag.letter == b'c')?;
    std::str::from_utf8(flag.argument).ok()?.parse().ok()
}

/// The places of a conditional request's parts in its canonical form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Condition {
    /// The token that the client holds.
    pub(crate) held: u64,
    key: Place,
    token: Place,
    base64: bool,
}

/// A range of bytes of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Place {
    start: u32,
    end: u32,
}

impl Place {
    fn of(self, request: &[u8]) -> &[u8] {
        &request[self.start as usize..self.end as usize]
    }
}

impl Condition {
    /// The condition of a request with this canonical form; `None` for requests without a token.
    pub(crate) fn new(request: &Request<'_>, canonical: &[u8]) -> Option<Condition> {
        let (held, base64) = match request {
            Request::Store(store) => (store.cas, false),
            Request::MetaSet(meta) | Request::MetaDelete(meta) | Request::MetaArith(meta) => {
                (meta.options.cas, meta.has(b'b'))
            }
            _ => return None,
        };
        let classic = matches!(request, Request::Store(_));
        let mut words = words(canonical).skip(1);
        let key = words.next()?;
        let token = if classic {
            words.nth(3)?
        } else {
            let flag = words.find(|word| canonical[word.start as usize] == b'C')?;
            Place { start: flag.start + 1, end: flag.end }
        };
        Some(Condition { held, key, token, base64 })
    }

    /// Appends a request for the item's present token, with `number` as its opaque.
    pub(crate) fn ask(&self, request: &[u8], number: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(b"mg ");
        out.extend_from_slice(self.key.of(request));
        out.extend_from_slice(if self.base64 { b" c b" } else { b" c" });
        encode::meta_flag_number(b'O', number.into(), out);
        encode::line_end(out);
    }

    /// Appends the request with the server's own token in place of the client's.
    pub(crate) fn with_token(&self, request: &[u8], token: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&request[..self.token.start as usize]);
        encode::number(token, out);
        out.extend_from_slice(&request[self.token.end as usize..]);
    }

    /// Appends the refusal of a request: its token no longer holds, or its item is missing.
    pub(crate) fn refuse(
        &self,
        form: Form,
        request: &[u8],
        opaque: &Opaque,
        gone: bool,
        out: &mut Vec<u8>,
    ) {
        if form == Form::Cas {
            return out.extend_from_slice(if gone { encode::NOT_FOUND } else { encode::EXISTS });
        }
        out.extend_from_slice(if gone { encode::META_NOT_FOUND } else { encode::META_EXISTS });
        // Like memcached, repeat these flags after success and failure.
        for word in words(request).filter(|word| word.start > self.key.start) {
            match request[word.start as usize] {
                b'O' => {
                    if let Some(client) = opaque.client() {
                        encode::meta_flag(b'O', client, out);
                    }
                }
                b'k' => encode::meta_flag(b'k', self.key.of(request), out),
                b'b' => encode::meta_flag(b'b', b"", out),
                b's' if form == Form::Meta(MetaVerb::Set) => {
                    let length = words(request).nth(2).unwrap_or_default();
                    encode::meta_flag(b's', length.of(request), out);
                }
                _ => {}
            }
        }
        encode::line_end(out);
    }
}

/// The words of a canonical command line.
fn words(request: &[u8]) -> impl Iterator<Item = Place> {
    let end = request.iter().position(|&byte| byte == b'\r').unwrap_or(request.len());
    let mut start = 0;
    std::iter::from_fn(move || {
        let word = request.get(start..end).filter(|rest| !rest.is_empty())?;
        let length = word.iter().position(|&byte| byte == b' ').unwrap_or(word.len());
        let place = Place { start: start as u32, end: (start + length) as u32 };
        start += length + 1;
        Some(place)
    })
}

/// Appends an answer with the token in its flag `c` replaced. The length after `VA` does not begin with a letter, so it
/// is not mistaken for a flag.
pub(crate) fn replace_token(frame: &[u8], token: u64, out: &mut Vec<u8>) {
    let line_end = frame.iter().position(|&byte| byte == b'\n').unwrap_or(frame.len());
    let (line, behind) = frame.split_at(line_end);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    for (index, word) in words.enumerate() {
        if index > 0 {
            out.push(b' ');
        }
        if index > 0 && word[0] == b'c' {
            out.push(b'c');
            encode::number(token, out);
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
        standing(held, 0, answers.iter().map(|answer| answer.as_bytes()))
    }

    #[test]
    fn token_holds_while_each_servers_token_holds() {
        let held = token(0, [4, 9].into_iter());
        assert_eq!(standing_of(held, &["HD c4\r\n", "HD c9\r\n"]), Standing::Holds(vec![4, 9]));
        // The item was written on one server.
        assert_eq!(standing_of(held, &["HD c4\r\n", "HD c10\r\n"]), Standing::Changed);
        // The order of the servers matters.
        assert_eq!(standing_of(held, &["HD c9\r\n", "HD c4\r\n"]), Standing::Changed);
        // The item was evicted on one server.
        assert_eq!(standing_of(held, &["HD c4\r\n", "EN\r\n"]), Standing::Changed);
        assert_eq!(standing_of(held, &["EN\r\n", "EN\r\n"]), Standing::Gone);
        assert_eq!(
            standing_of(held, &["HD c4\r\n", "ERROR\r\n"]),
            Standing::Unknown(b"ERROR\r\n".to_vec())
        );
    }

    #[test]
    fn token_holds_while_the_same_servers_are_in() {
        let held = token(0b10, [4, 9].into_iter());
        assert_ne!(held, token(0b01, [4, 9].into_iter()));
        let answers = [&b"HD c4\r\n"[..], b"HD c9\r\n"];
        assert_eq!(standing(held, 0b10, answers.into_iter()), Standing::Holds(vec![4, 9]));
        assert_eq!(standing(held, 0, answers.into_iter()), Standing::Changed);
    }

    #[test]
    fn void_token_never_holds() {
        assert_ne!(void_token([4, 9].into_iter()), token(0, [4, 9].into_iter()));
    }

    fn canonical(line: &str) -> (Condition, Vec<u8>) {
        let mut decoder = RequestDecoder::new(Limits::default());
        let Decoded::Complete { item, .. } = decoder.decode(line.as_bytes()) else {
            panic!("{line:?} is no request");
        };
        let mut canonical = Vec::new();
        encode::request(&item.answered(), &mut canonical);
        (Condition::new(&item, &canonical).expect("a token"), canonical)
    }

    #[test]
    fn server_gets_its_own_token() {
        // (request, the question for the token, the request with token 99)
        let rows = [
            ("cas k 1 2 3 7\r\nabc\r\n", "mg k c O5\r\n", "cas k 1 2 3 99\r\nabc\r\n"),
            ("ms C1 3 T0 C7 c\r\nC 4\r\n", "mg C1 c O5\r\n", "ms C1 3 T0 C99 c\r\nC 4\r\n"),
            ("md  azE= b q C7\r\n", "mg azE= c b O5\r\n", "md azE= b C99\r\n"),
        ];
        for (line, question, expected) in rows {
            let (condition, canonical) = canonical(line);
            assert_eq!(condition.held, 7);
            let mut out = Vec::new();
            condition.ask(&canonical, 5, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), question);
            out.clear();
            condition.with_token(&canonical, 99, &mut out);
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
            replace_token(frame.as_bytes(), 99, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }

    #[test]
    fn refusal_has_the_form_of_the_request() {
        // (request, answer when changed, answer when gone)
        let rows = [
            ("cas k 0 0 1 7\r\nx\r\n", Form::Cas, "EXISTS\r\n", "NOT_FOUND\r\n"),
            (
                "ms k 1 C7 Oab k\r\nx\r\n",
                Form::Meta(MetaVerb::Set),
                "EX Oab kk\r\n",
                "NF Oab kk\r\n",
            ),
            (
                "ms k 12 s C7 Oab\r\nxxxxxxxxxxxx\r\n",
                Form::Meta(MetaVerb::Set),
                "EX s12 Oab\r\n",
                "NF s12 Oab\r\n",
            ),
            ("md k s C7 Oab\r\n", Form::Meta(MetaVerb::Delete), "EX Oab\r\n", "NF Oab\r\n"),
        ];
        for (line, form, changed, gone) in rows {
            let (condition, canonical) = canonical(line);
            let opaque = Opaque::new(1, Some(b"ab"));
            for (is_gone, expected) in [(false, changed), (true, gone)] {
                let mut out = Vec::new();
                condition.refuse(form, &canonical, &opaque, is_gone, &mut out);
                assert_eq!(String::from_utf8_lossy(&out), expected);
            }
        }
    }
}
