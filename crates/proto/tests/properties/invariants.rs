//! Invariants of both decoders for any input, cut into any pieces.
//!
//! The fuzz targets (`fuzz/`) include this file and call it with the fuzzer's input; `main.rs` calls it with
//! proptest's.

use knee_proto::{Decoded, Expect, Limits, Meta, Request, RequestDecoder, ResponseDecoder, encode};

/// A decoded item or an error, in a form that can be compared between runs.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    /// An item's bytes, and the item in debug format.
    Complete(Vec<u8>, String),
    /// An error, and its stale key, in debug format.
    Invalid(String),
}

/// Decodes requests from `input`, which arrives in `pieces` of these lengths and one last piece, and checks every step.
/// `eager` calls the decoder after every piece, even if it wanted more input.
pub(crate) fn requests(
    input: &[u8],
    pieces: &[usize],
    eager: bool,
    limits: Limits,
) -> Vec<Outcome> {
    let mut decoder = RequestDecoder::new(limits);
    let mut outcomes = Vec::new();
    arrive(input, pieces, eager, |buffer| match decoder.decode(buffer) {
        Decoded::Incomplete { consumed, wanted } => {
            assert!(wanted > buffer.len() - consumed);
            Step::Wait { consumed, wanted }
        }
        Decoded::Complete { consumed, item } => {
            let raw = &buffer[..consumed];
            check_request(raw, &item, limits);
            outcomes.push(Outcome::Complete(raw.to_vec(), format!("{item:?}")));
            Step::Go(consumed)
        }
        Decoded::Invalid { consumed, error } => {
            let stale_key = decoder.take_stale_key();
            outcomes.push(Outcome::Invalid(format!("{error:?} {stale_key:?}")));
            if error.is_fatal() { Step::Stop } else { Step::Go(consumed) }
        }
    });
    outcomes
}

/// As [`requests`], for responses of the form `expect`.
pub(crate) fn responses(
    input: &[u8],
    pieces: &[usize],
    eager: bool,
    expect: Expect,
) -> Vec<Outcome> {
    const RESPONSE_BYTES_MAX: usize = 4096;
    let mut decoder = ResponseDecoder::new(RESPONSE_BYTES_MAX);
    let mut outcomes = Vec::new();
    arrive(input, pieces, eager, |buffer| match decoder.decode(buffer, expect) {
        Decoded::Incomplete { consumed, wanted } => {
            assert_eq!(consumed, 0, "bytes of an incomplete response are kept");
            assert!(wanted > buffer.len() && wanted <= RESPONSE_BYTES_MAX);
            Step::Wait { consumed, wanted }
        }
        Decoded::Complete { consumed, item } => {
            assert!(consumed <= RESPONSE_BYTES_MAX);
            assert_eq!(item.raw, &buffer[..consumed]);
            let values: Vec<_> = item.values().collect();
            let value_bytes: usize = values.iter().map(|value| value.value.len()).sum();
            match item.meta_value() {
                Some(value) => assert_eq!((item.hits, item.value_bytes), (1, value.len())),
                None => assert_eq!((item.hits, item.value_bytes), (values.len(), value_bytes)),
            }
            for value in values {
                within(item.raw, value.raw);
                within(value.raw, value.key);
                within(value.raw, value.value);
            }
            item.meta_flags().for_each(|flag| within(item.raw, flag.argument));
            outcomes.push(Outcome::Complete(item.raw.to_vec(), format!("{item:?}")));
            Step::Go(consumed)
        }
        Decoded::Invalid { error, .. } => {
            outcomes.push(Outcome::Invalid(format!("{error:?}")));
            Step::Stop
        }
    });
    outcomes
}

enum Step {
    Wait { consumed: usize, wanted: usize },
    Go(usize),
    Stop,
}

/// Appends `input` to a connection's buffer piece by piece, and calls `decode` with the buffer.
fn arrive(input: &[u8], pieces: &[usize], eager: bool, mut decode: impl FnMut(&[u8]) -> Step) {
    let mut buffer = Vec::new();
    let mut rest = input;
    let mut least = 1;
    for piece in pieces.iter().copied().chain([usize::MAX]) {
        let (now, later) = rest.split_at(piece.min(rest.len()));
        rest = later;
        buffer.extend_from_slice(now);
        while eager || buffer.len() >= least {
            match decode(&buffer) {
                Step::Wait { consumed, wanted } => {
                    assert!(consumed <= buffer.len());
                    buffer.drain(..consumed);
                    least = wanted;
                    break;
                }
                Step::Go(consumed) => {
                    assert!(0 < consumed && consumed <= buffer.len());
                    buffer.drain(..consumed);
                    least = 1;
                }
                Step::Stop => return,
            }
        }
    }
}

fn check_request(raw: &[u8], request: &Request<'_>, limits: Limits) {
    let check_key = |key: &[u8]| {
        within(raw, key);
        assert!(!key.is_empty() && key.len() <= limits.key_bytes_max && !key.contains(&b' '));
    };
    match request {
        Request::Get(get) => {
            assert_eq!(get.keys().count(), get.key_count);
            get.keys().for_each(check_key);
        }
        Request::Store(store) => {
            check_key(store.key);
            check_value(raw, store.value, limits);
        }
        Request::Delete { key, .. } | Request::Arith { key, .. } | Request::Touch { key, .. } => {
            check_key(key)
        }
        Request::Stats { args: words } | Request::Shutdown { mode: words } => {
            assert!(words.is_empty() || raw.windows(words.len()).any(|at| at == *words));
        }
        Request::MetaSet(meta) => {
            check_key(meta.key);
            check_value(raw, meta.value, limits);
        }
        Request::MetaGet(meta)
        | Request::MetaDelete(meta)
        | Request::MetaArith(meta)
        | Request::MetaDebug(meta) => {
            check_key(meta.key);
            meta.flags().for_each(|flag| within(raw, flag.argument));
            assert!(meta.value.is_empty());
        }
        _ => {}
    }
    check_round_trip(request, limits);
    assert!(!request.answered().is_quiet());
    check_round_trip(&request.answered(), limits);
}

fn check_value(raw: &[u8], value: &[u8], limits: Limits) {
    within(raw, value);
    assert!(value.len() <= limits.value_bytes_max);
    assert!(raw.ends_with(&[value, b"\r\n"].concat()));
}

/// Checks that encoding a request and decoding it again gives the same request.
fn check_round_trip(request: &Request<'_>, limits: Limits) {
    let mut bytes = Vec::new();
    encode::request(request, &mut bytes);
    // The decoder cuts 2^31 to a negative number of 32 bits, so an encoded line may be one byte longer.
    let limits = Limits {
        line_bytes_max: limits.line_bytes_max + 1,
        retrieval_line_bytes_max: limits.retrieval_line_bytes_max + 1,
        ..limits
    };
    match RequestDecoder::new(limits).decode(&bytes) {
        Decoded::Complete { consumed, item } => {
            assert_eq!(consumed, bytes.len());
            assert_eq!(meaning(&item), meaning(request));
        }
        other => panic!("{request:?} became {other:?}"),
    }
}

/// A request in debug format, without the blanks between its words.
fn meaning(request: &Request<'_>) -> String {
    let meta = |name: &str, meta: &Meta<'_>| {
        let flags: Vec<_> = meta.flags().collect();
        format!("{name} {:?} {:?} {:?} {flags:?}", meta.key, meta.value, meta.options)
    };
    match request {
        Request::Get(get) => {
            format!("{:?} {} {:?}", get.verb, get.exptime, get.keys().collect::<Vec<_>>())
        }
        Request::MetaGet(request) => meta("mg", request),
        Request::MetaSet(request) => meta("ms", request),
        Request::MetaDelete(request) => meta("md", request),
        Request::MetaArith(request) => meta("ma", request),
        Request::MetaDebug(request) => meta("me", request),
        other => format!("{other:?}"),
    }
}

/// Checks that `inner` points into `outer`. Empty slices may point anywhere.
fn within(outer: &[u8], inner: &[u8]) {
    assert!(inner.is_empty() || outer.as_ptr_range().start <= inner.as_ptr());
    assert!(inner.is_empty() || inner.as_ptr_range().end <= outer.as_ptr_range().end);
}
