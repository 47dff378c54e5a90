//! Properties of the codec for generated requests, responses and noise.

mod invariants;

use knee_proto::{
    ArithVerb, Decoded, Expect, GetVerb, Limits, Request, RequestDecoder, ResponseDecoder, Status,
    Store, StoreVerb, encode,
};
use proptest::prelude::*;
use proptest::sample::select;

/// Limits small enough for generated input to reach.
const TIGHT: Limits = Limits {
    key_bytes_max: 8,
    value_bytes_max: 16,
    line_bytes_max: 60,
    retrieval_line_bytes_max: 90,
};

fn key() -> impl Strategy<Value = Vec<u8>> {
    // Separators are replaced by bytes that are allowed in keys.
    let byte =
        any::<u8>().prop_map(|byte| if b"\0\n\r ".contains(&byte) { byte | 0x80 } else { byte });
    proptest::collection::vec(byte, 1..=250)
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..200)
}

/// Bytes similar to the protocol, so that the decoder gets beyond the first word.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        select(vec![
            "get",
            "gets",
            "gat",
            "gats",
            "set",
            "add",
            "replace",
            "append",
            "prepend",
            "cas",
            "incr",
            "decr",
            "delete",
            "touch",
            "flush_all",
            "stats",
            "version",
            "verbosity",
            "cache_memlimit",
            "shutdown",
            "quit",
            "mg",
            "ms",
            "md",
            "ma",
            "me",
            "mn",
            "VALUE",
            "END",
            "STORED",
            "ERROR",
            "CLIENT_ERROR",
            "VA",
            "HD",
            "EN",
            "STAT",
            "a",
            "b",
            "Zm9v",
            "0",
            "1",
            "2",
            "17",
            "-1",
            "99999999999",
            "noreply",
            "q",
            "v",
            "k",
            "O1",
            "T0",
            "MX",
        ])
        .prop_map(|word| word.as_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 0..12),
    ];
    let end = select(vec!["\r\n", "\n", " ", "", "\r", "\r\n\r\n"]);
    let line = (proptest::collection::vec(word, 1..7), end)
        .prop_map(|(words, end)| [words.join(&b' '), end.as_bytes().to_vec()].concat());
    proptest::collection::vec(line, 0..8).prop_map(|lines| lines.concat())
}

fn pieces() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(0usize..20, 0..40)
}

/// Decodes `bytes`, which must be exactly one request.
fn decode_one(bytes: &[u8]) -> Request<'_> {
    let limits = Limits { line_bytes_max: 1 << 20, ..Limits::default() };
    match RequestDecoder::new(limits).decode(bytes) {
        Decoded::Complete { consumed, item } if consumed == bytes.len() => item,
        other => panic!("{}: {other:?}", bytes.escape_ascii()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn requests_in_pieces_decode_as_the_whole(
        input in noise(), pieces in pieces(), eager: bool, tight: bool,
    ) {
        let limits = if tight { TIGHT } else { Limits::default() };
        let whole = invariants::requests(&input, &[], eager, limits);
        prop_assert_eq!(invariants::requests(&input, &pieces, eager, limits), whole);
    }

    #[test]
    fn responses_in_pieces_decode_as_the_whole(
        input in noise(), pieces in pieces(), eager: bool,
    ) {
        for expect in [Expect::Retrieval, Expect::Line, Expect::Meta, Expect::Stats] {
            let whole = invariants::responses(&input, &[], eager, expect);
            let split = invariants::responses(&input, &pieces, eager, expect);
            prop_assert_eq!(split, whole);
        }
    }

    #[test]
    fn retrievals_survive_encoding(
        keys in proptest::collection::vec(key(), 1..30), with_cas: bool, exptime: Option<i32>,
    ) {
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut bytes = Vec::new();
        let verb = match (exptime, with_cas) {
            (None, false) => GetVerb::Get,
            (None, true) => GetVerb::Gets,
            (Some(_), false) => GetVerb::Gat,
            (Some(_), true) => GetVerb::Gats,
        };
        let exptime = exptime.map(i64::from);
        match exptime {
            Some(exptime) => encode::gat(verb, exptime, keys.iter().copied(), &mut bytes),
            None => encode::get(verb, keys.iter().copied(), &mut bytes),
        }
        let Request::Get(get) = decode_one(&bytes) else { panic!("not a retrieval") };
        prop_assert_eq!((get.verb, get.exptime), (verb, exptime.unwrap_or(0)));
        prop_assert_eq!(get.keys().collect::<Vec<_>>(), keys);
    }

    #[test]
    fn stores_survive_encoding(
        verb in select(vec![
            StoreVerb::Set, StoreVerb::Add, StoreVerb::Replace, StoreVerb::Append,
            StoreVerb::Prepend, StoreVerb::Cas,
        ]),
        key in key(), value in value(), flags: u32, exptime: i32, cas: u64, noreply: bool,
    ) {
        let cas = if verb == StoreVerb::Cas { cas } else { 0 };
        let exptime = i64::from(exptime);
        let store = Store { verb, key: &key, flags, exptime, cas, value: &value, noreply };
        let mut bytes = Vec::new();
        encode::store(&store, &mut bytes);
        prop_assert_eq!(decode_one(&bytes), Request::Store(store));
    }

    #[test]
    fn other_requests_survive_encoding(
        key in key(), number: u64, level: u32, exptime: i32, noreply: bool,
    ) {
        let exptime = i64::from(exptime);
        let key = &key[..];
        for request in [
            Request::Delete { key, noreply },
            Request::Arith { verb: ArithVerb::Incr, key, delta: number, noreply },
            Request::Arith { verb: ArithVerb::Decr, key, delta: number, noreply },
            Request::Touch { key, exptime, noreply },
            Request::FlushAll { delay: exptime, noreply },
            Request::Stats { args: b"" },
            Request::Stats { args: b"cachedump 1 2" },
            Request::Version,
            Request::Verbosity { level, noreply },
            Request::CacheMemlimit { megabytes: level, noreply },
            Request::Shutdown { mode: b"" },
            Request::Shutdown { mode: b"graceful" },
            Request::Quit,
            Request::MetaNoop,
        ] {
            let mut bytes = Vec::new();
            encode::request(&request, &mut bytes);
            prop_assert_eq!(decode_one(&bytes), request);
        }
    }

    #[test]
    fn retrieved_values_survive_encoding(
        items in proptest::collection::vec((key(), any::<u32>(), value()), 0..12),
        cas: Option<u64>, pieces in pieces(),
    ) {
        let mut bytes = Vec::new();
        for (key, flags, value) in &items {
            encode::value(key, *flags, value, cas, &mut bytes);
        }
        bytes.extend_from_slice(encode::END);
        let mut decoder = ResponseDecoder::new(1 << 20);
        let mut arrived = 0;
        for piece in pieces {
            if arrived + piece >= bytes.len() {
                break;
            }
            arrived += piece;
            let outcome = decoder.decode(&bytes[..arrived], Expect::Retrieval);
            let is_incomplete = matches!(outcome, Decoded::Incomplete { consumed: 0, .. });
            prop_assert!(is_incomplete);
        }
        let Decoded::Complete { consumed, item } = decoder.decode(&bytes, Expect::Retrieval) else {
            panic!("{}", bytes.escape_ascii())
        };
        prop_assert_eq!((consumed, item.status), (bytes.len(), Status::Values));
        let values: Vec<_> = item
            .values()
            .map(|value| (value.key.to_vec(), value.flags, value.value.to_vec(), value.cas))
            .collect();
        let expected: Vec<_> = items
            .into_iter()
            .map(|(key, flags, value)| (key, flags, value, cas))
            .collect();
        prop_assert_eq!(values, expected);
    }

    #[test]
    fn meta_values_survive_encoding(value in value(), key in key(), binary: bool, cas: u64) {
        let mut bytes = Vec::new();
        encode::meta_value_header(value.len(), &mut bytes);
        encode::meta_flag_number(b'c', cas, &mut bytes);
        encode::meta_key(&key, binary, &mut bytes);
        encode::line_end(&mut bytes);
        bytes.extend_from_slice(&value);
        encode::line_end(&mut bytes);
        let mut decoder = ResponseDecoder::new(1 << 20);
        let Decoded::Complete { consumed, item } = decoder.decode(&bytes, Expect::Meta) else {
            panic!("{}", bytes.escape_ascii())
        };
        prop_assert_eq!(consumed, bytes.len());
        prop_assert_eq!(item.status, Status::MetaValue);
        prop_assert_eq!(item.meta_value(), Some(&value[..]));
        let letters: Vec<u8> = item.meta_flags().map(|flag| flag.letter).collect();
        prop_assert_eq!(letters, if binary { b"ckb".to_vec() } else { b"ck".to_vec() });
        if !binary {
            prop_assert_eq!(item.meta_flags().nth(1).map(|flag| flag.argument), Some(&key[..]));
        }
    }

    #[test]
    fn numbers_are_written_as_by_the_standard_library(unsigned: u64, signed: i64) {
        let mut bytes = Vec::new();
        encode::number(unsigned, &mut bytes);
        bytes.push(b' ');
        encode::signed_number(signed, &mut bytes);
        prop_assert_eq!(String::from_utf8_lossy(&bytes), format!("{unsigned} {signed}"));
    }
}
