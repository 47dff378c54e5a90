//! Requests to bytes.

use super::{number, signed_number};
use crate::meta::{Meta, MetaVerb};
use crate::request::{ArithVerb, Get, GetVerb, Request, Store, StoreVerb};

/// Appends any request, in canonical form: a decoded request gives an equivalent line without ignored words. Use
/// [`Request::answered`] to drop `noreply` or `q`.
pub fn request(request: &Request<'_>, out: &mut Vec<u8>) {
    any(request, None, out);
}

/// Like [`request`], but a meta command whose answer repeats opaques gets this opaque instead of its own.
pub fn request_with_opaque(request: &Request<'_>, opaque: u64, out: &mut Vec<u8>) {
    any(request, Some(opaque), out);
}

fn any(request: &Request<'_>, opaque: Option<u64>, out: &mut Vec<u8>) {
    match *request {
        Request::Get(ref get) => match get.spaced_keys() {
            // The keys are in canonical form already.
            Some(keys) => retrieval(get, [keys], out),
            None => retrieval(get, get.keys(), out),
        },
        Request::Store(ref request) => store(request, out),
        Request::Delete { key, noreply } => {
            out.extend_from_slice(b"delete ");
            out.extend_from_slice(key);
            end(noreply, out);
        }
        Request::Arith { verb, key, delta, noreply } => {
            out.extend_from_slice(match verb {
                ArithVerb::Incr => b"incr ",
                ArithVerb::Decr => b"decr ",
            });
            out.extend_from_slice(key);
            out.push(b' ');
            number(delta, out);
            end(noreply, out);
        }
        Request::Touch { key, exptime, noreply } => {
            out.extend_from_slice(b"touch ");
            out.extend_from_slice(key);
            out.push(b' ');
            signed_number(exptime, out);
            end(noreply, out);
        }
        Request::FlushAll { delay, noreply } => {
            out.extend_from_slice(b"flush_all");
            if delay != 0 {
                out.push(b' ');
                signed_number(delay, out);
            }
            end(noreply, out);
        }
        Request::Stats { args } => with_rest(b"stats", args, out),
        Request::Version => version(out),
        Request::Verbosity { level, noreply } => {
            out.extend_from_slice(b"verbosity ");
            number(u64::from(level), out);
            end(noreply, out);
        }
        Request::CacheMemlimit { megabytes, noreply } => {
            out.extend_from_slice(b"cache_memlimit ");
            number(u64::from(megabytes), out);
            end(noreply, out);
        }
        Request::Shutdown { mode } => with_rest(b"shutdown", mode, out),
        Request::Quit => out.extend_from_slice(b"quit\r\n"),
        Request::MetaGet(ref request) => flagged(MetaVerb::Get, request, opaque, out),
        Request::MetaSet(ref request) => flagged(MetaVerb::Set, request, opaque, out),
        Request::MetaDelete(ref request) => flagged(MetaVerb::Delete, request, opaque, out),
        Request::MetaArith(ref request) => flagged(MetaVerb::Arith, request, opaque, out),
        Request::MetaDebug(ref request) => flagged(MetaVerb::Debug, request, None, out),
        Request::MetaNoop => out.extend_from_slice(b"mn\r\n"),
    }
}

#[inline]
fn retrieval<'k>(request: &Get<'_>, keys: impl IntoIterator<Item = &'k [u8]>, out: &mut Vec<u8>) {
    if request.verb.with_exptime() {
        gat(request.verb, request.exptime, keys, out);
    } else {
        get(request.verb, keys, out);
    }
}

/// Appends `get` or `gets` of any number of keys, at least one.
#[inline]
pub fn get<'k>(verb: GetVerb, keys: impl IntoIterator<Item = &'k [u8]>, out: &mut Vec<u8>) {
    debug_assert!(!verb.with_exptime());
    out.extend_from_slice(if verb.with_cas() { b"gets" } else { b"get" });
    words(keys, out);
    out.extend_from_slice(b"\r\n");
}

/// Appends `gat` or `gats` of any number of keys.
pub fn gat<'k>(
    verb: GetVerb,
    exptime: i64,
    keys: impl IntoIterator<Item = &'k [u8]>,
    out: &mut Vec<u8>,
) {
    debug_assert!(verb.with_exptime());
    out.extend_from_slice(if verb.with_cas() { b"gats " } else { b"gat " });
    signed_number(exptime, out);
    words(keys, out);
    out.extend_from_slice(b"\r\n");
}

fn words<'k>(words: impl IntoIterator<Item = &'k [u8]>, out: &mut Vec<u8>) {
    for word in words {
        out.push(b' ');
        out.extend_from_slice(word);
    }
}

/// Appends a storage request with its value.
#[inline]
pub fn store(request: &Store<'_>, out: &mut Vec<u8>) {
    out.reserve(request.key.len() + request.value.len() + 80);
    out.extend_from_slice(match request.verb {
        StoreVerb::Set => b"set ",
        StoreVerb::Add => b"add ",
        StoreVerb::Replace => b"replace ",
        StoreVerb::Append => b"append ",
        StoreVerb::Prepend => b"prepend ",
        StoreVerb::Cas => b"cas ",
    });
    out.extend_from_slice(request.key);
    out.push(b' ');
    number(u64::from(request.flags), out);
    out.push(b' ');
    signed_number(request.exptime, out);
    out.push(b' ');
    number(request.value.len() as u64, out);
    if request.verb == StoreVerb::Cas {
        out.push(b' ');
        number(request.cas, out);
    }
    end(request.noreply, out);
    out.extend_from_slice(request.value);
    out.extend_from_slice(b"\r\n");
}

/// Appends `version`.
pub fn version(out: &mut Vec<u8>) {
    out.extend_from_slice(b"version\r\n");
}

/// Appends a meta command with its flags and, for `ms`, its value.
fn flagged(verb: MetaVerb, request: &Meta<'_>, opaque: Option<u64>, out: &mut Vec<u8>) {
    out.extend_from_slice(match verb {
        MetaVerb::Get => b"mg ",
        MetaVerb::Set => b"ms ",
        MetaVerb::Delete => b"md ",
        MetaVerb::Arith => b"ma ",
        MetaVerb::Debug => b"me ",
    });
    out.extend_from_slice(request.key);
    if verb == MetaVerb::Set {
        out.push(b' ');
        number(request.value.len() as u64, out);
    }
    for flag in request.flags() {
        match opaque {
            Some(opaque) if flag.letter == b'O' => super::meta_flag_number(b'O', opaque, out),
            _ => super::meta_flag(flag.letter, flag.argument, out),
        }
    }
    if let Some(opaque) = opaque
        && !request.has(b'O')
    {
        super::meta_flag_number(b'O', opaque, out);
    }
    out.extend_from_slice(b"\r\n");
    if verb == MetaVerb::Set {
        out.extend_from_slice(request.value);
        out.extend_from_slice(b"\r\n");
    }
}

#[inline]
fn end(noreply: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if noreply { b" noreply\r\n" } else { b"\r\n" });
}

fn with_rest(verb: &[u8], words: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(verb);
    if !words.is_empty() {
        out.push(b' ');
        out.extend_from_slice(words);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decoded, Limits, RequestDecoder};

    #[test]
    fn canonical_retrieval_has_single_spaces() {
        let rows = [
            ("get a bc\r\n", "get a bc\r\n"),
            ("get  a bc\r\n", "get a bc\r\n"),
            ("gets a  bc\r\n", "gets a bc\r\n"),
            ("get a bc \n", "get a bc\r\n"),
            ("gat  7  a  \r\n", "gat 7 a\r\n"),
            ("gats 7 a bc\r\n", "gats 7 a bc\r\n"),
        ];
        for (line, canonical) in rows {
            let mut decoder = RequestDecoder::new(Limits::default());
            let Decoded::Complete { item, .. } = decoder.decode(line.as_bytes()) else {
                panic!("{line:?} is no request")
            };
            let mut out = Vec::new();
            request(&item, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), canonical, "{line:?}");
        }
    }
}
