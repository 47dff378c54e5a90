//! Compares the answers to bad input with those of memcached 1.6.18.
#![allow(clippy::unwrap_used)]

mod model;
mod peer;

use knee_proto::{Expect, MetaVerb, ResponseDecoder, Status, quiet_suppresses};
use model::Model;
use peer::Memcached;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// An input, and the reason for its test.
type Row = (&'static [u8], &'static str);

const LINES: &[Row] = &[
    (b"\r\n", "an empty line is no command"),
    (b"\n", "a bare line feed is no command"),
    (b" \r\n", "a blank is no command"),
    (b"x\r\n", "too short for a verb"),
    (b"GET a\r\n", "verbs are lower case"),
    (b"getx a\r\n", "a verb must match as a whole"),
    (b"get\ta\r\n", "a tab does not separate words"),
    (b"mx a\r\n", "no such meta command"),
    (b"version\n", "a bare line feed ends a line"),
    (b"  version  \r\n", "blanks around words are ignored"),
    (b"version extra words\r\n", "version ignores further words"),
    (b"quit extra\r\nversion\r\n", "quit ignores further words and further lines"),
];

const RETRIEVALS: &[Row] = &[
    (b"get\r\n", "no key"),
    (b"get \r\n", "no key, but a blank"),
    (b"bget a\r\n", "an old synonym of get"),
    (b"get a\r\r\n", "one carriage return belongs to the line end, the other to the key"),
    (b"set a\tb 0 0 1\r\nx\r\nget a\tb\r\n", "keys may hold control characters"),
    (b"set a 0 0 1\r\nx\r\nget a a  a\r\n", "repeated keys are answered each time"),
    (b"get 250_________________________________________________________________________________\
       __________________________________________________________________________________________\
       _______________________________________________________________________________\r\n",
        "the longest key"),
    (b"get a 251________________________________________________________________________________\
       __________________________________________________________________________________________\
       ________________________________________________________________________________\r\n",
        "one byte too long, after a valid key"),
    (b"gat\r\n", "no expiry time"),
    (b"gat 10\r\n", "no key: an empty retrieval"),
    (b"gats 10 \r\n", "the same with cas tokens"),
    (b"gat a\r\n", "a key instead of the time"),
    (b"gat x a\r\n", "not a time"),
    (b"gats 99999999999999999999 a\r\n", "more than 64 bits"),
    (b"gat 99999999999 a\r\n", "more than 32 bits are cut"),
];

const STORES: &[Row] = &[
    (b"set\r\n", "no words"),
    (b"set a 0 0\r\n1\r\n", "one word too few"),
    (b"set a 0 0 1 noreply extra\r\nx\r\n", "one word too many"),
    (b"set a 0 0 1 extra\r\nx\r\nget a\r\n", "a last word other than noreply is ignored"),
    (b"set  a  0  0  1  \r\nx\r\n", "blanks between words do not matter"),
    (b"set a 0 0 1\nx\r\nget a\n", "a bare line feed ends the line"),
    (b"set a 0 0 1\r\nx\nversion\r\n", "a bare line feed does not end the value"),
    (b"set a 0 0 0\r\n\r\nget a\r\n", "an empty value"),
    (b"set a 0 0 2\r\n\r\n\r\nget a\r\n", "a value that is a line end"),
    (b"set a 0 0 1\r\nab\r\nversion\r\n", "value longer than its length"),
    (b"set a 0 0 3\r\nab\r\nversion\r\nversion\r\n", "value shorter than its length"),
    (b"set a 0 0 1 noreply\r\nab\r\nversion\r\n", "noreply silences a bad value, not the next line"),
    (b"set a 0 0 -1\r\nx\r\nversion\r\n", "negative length: the value becomes a command"),
    (b"set a 0 0 x\r\nversion\r\n", "length not a number"),
    (b"set a 0 0 1x\r\nversion\r\n", "length followed by a letter"),
    (b"set a 0 0 noreply\r\nversion\r\n", "noreply instead of the length silences its own error"),
    (b"set a x 0 7\r\nversion\r\n", "flags not a number, the value becomes a command"),
    (b"set a x 0 7 noreply\r\nversion\r\n", "noreply silences flags that are not a number"),
    (b"set a -1 0 1\r\nx\r\n", "flags negative"),
    (b"set a 4294967295 0 1\r\nx\r\nget a\r\n", "flags of 32 bits"),
    (b"set a 4294967297 0 1\r\nx\r\nget a\r\n", "flags of 33 bits are cut"),
    (b"set a 18446744073709551615 0 1\r\nx\r\nget a\r\n", "flags of 64 bits are cut"),
    (b"set a 18446744073709551616 0 1\r\nx\r\n", "flags of 65 bits are refused"),
    (b"set a -18446744073709551615 0 1\r\nx\r\nget a\r\n", "a negation that wraps to 1"),
    (b"set a +7 0 1\r\nx\r\nget a\r\n", "a plus sign"),
    (b"set a \t7 0 1\r\nx\r\nget a\r\n", "white space before a number"),
    (b"set a 7\tx 0 1\r\nx\r\nget a\r\n", "white space ends a number, the rest is ignored"),
    (b"set a 0 x 1\r\nx\r\n", "expiry time not a number"),
    (b"set a 0 -1 1\r\nx\r\nget a\r\n", "already expired"),
    (b"set a 0 4294967296 1\r\nx\r\nget a\r\n", "2^32 is cut to 0: never"),
    (b"set a 0 -99999999999999999999 1\r\nx\r\n", "expiry time below 64 bits"),
    (b"set a 0 0 2147483645\r\n", "too large, and never arrives"),
    (b"add a 0 0\r\nreplace a\r\nappend\r\nprepend a 0 0 1 1 1\r\n", "word counts of the others"),
    (b"cas a 0 0 1\r\nx\r\n", "cas without its token"),
    (b"cas a 0 0 1 noreply\r\nx\r\n", "noreply instead of the token is a wrong word count"),
    (b"cas a 0 0 1 x\r\nx\r\n", "token not a number"),
    (b"cas a 0 0 1 -1\r\nx\r\n", "token negative"),
    (b"cas a 0 0 1 1 extra\r\nx\r\n", "a last word other than noreply is ignored"),
    (b"cas a 0 0 1 1 noreply\r\nx\r\nversion\r\n", "noreply"),
    (b"cas a 0 0 1 1 noreply extra\r\nx\r\n", "one word too many"),
    (b"set 251__________________________________________________________________________________\
       __________________________________________________________________________________________\
       ________________________________________________________________________________ 0 0 7\r\n\
       version\r\n", "key too long: the value becomes a command"),
];

const OTHERS: &[Row] = &[
    (b"incr a\r\n", "no delta"),
    (b"incr a 1 1 1\r\n", "too many words"),
    (b"incr a 1 extra\r\n", "a last word other than noreply is ignored"),
    (b"incr a x\r\n", "delta not a number"),
    (b"incr a -1\r\n", "delta negative"),
    (b"decr a 18446744073709551616\r\n", "delta of 65 bits"),
    (b"decr a 18446744073709551615\r\n", "delta of 64 bits"),
    (b"incr a noreply\r\nversion\r\n", "noreply instead of the delta silences its own error"),
    (b"incr a 1 noreply\r\nversion\r\n", "noreply"),
    (b"delete\r\n", "no key"),
    (b"delete a 0\r\n", "a hold time of zero is still accepted"),
    (b"delete a 00\r\n", "a hold time of zero must be spelled 0"),
    (b"delete a 1\r\n", "another hold time is refused"),
    (b"delete a 0 noreply\r\nversion\r\n", "zero and noreply"),
    (b"delete a 1 noreply\r\nversion\r\n", "noreply silences the error of a hold time"),
    (b"delete a noreply 0\r\n", "noreply must stand last"),
    (b"delete a 0 0\r\n", "two hold times"),
    (b"delete a 0 noreply 0\r\n", "too many words"),
    (b"delete noreply\r\n", "noreply is a key here"),
    (b"touch a\r\n", "no expiry time"),
    (b"touch a x\r\n", "not a time"),
    (b"touch a noreply\r\nversion\r\n", "noreply instead of the time"),
    (b"touch a 0 extra\r\n", "a last word other than noreply is ignored"),
    (b"touch a 0 0 0\r\n", "too many words"),
    (b"flush_all x\r\n", "not a time"),
    (b"flush_all 0 extra\r\n", "a last word other than noreply is ignored"),
    (b"flush_all 0 0 0\r\n", "too many words"),
    (b"flush_all noreply\r\nversion\r\n", "noreply"),
    (b"flush_all 0 noreply\r\nversion\r\n", "noreply with a time"),
    (b"flush_all x noreply\r\nversion\r\n", "noreply silences a wrong time"),
    (b"flush_all noreply 0\r\n", "noreply is no time"),
    (b"flush_all -1\r\n", "negative is now"),
    (b"verbosity\r\n", "no level"),
    (b"verbosity x\r\n", "not a level"),
    (b"verbosity -1\r\n", "level negative"),
    (b"verbosity 0 extra\r\n", "a last word other than noreply is ignored"),
    (b"verbosity 0 0 0\r\n", "too many words"),
    (b"verbosity noreply\r\nversion\r\n", "noreply instead of the level"),
    (b"cache_memlimit\r\n", "no limit"),
    (b"cache_memlimit x\r\n", "not a limit: the answer is a plain ERROR"),
    (b"cache_memlimit x noreply\r\nversion\r\n", "noreply silences a plain ERROR"),
    (b"cache_memlimit 64 64 64\r\n", "too many words"),
    (b"shutdown\r\nshutdown graceful\r\nshutdown x y\r\n", "not enabled in any mode"),
    (b"incr 251_________________________________________________________________________________\
       __________________________________________________________________________________________\
       ________________________________________________________________________________ 1\r\n",
        "key too long"),
    (b"touch 251________________________________________________________________________________\
       __________________________________________________________________________________________\
       ________________________________________________________________________________ 1\r\n",
        "key too long"),
    (b"delete 251_______________________________________________________________________________\
       __________________________________________________________________________________________\
       ________________________________________________________________________________ noreply\r\n\
       version\r\n", "key too long, silenced"),
];

const METAS: &[Row] = &[
    (b"mg\r\nms\r\nmd\r\nma\r\nme\r\n", "no key; me has another error line"),
    (b"mn extra\r\n", "mn ignores further words"),
    (b"mg a k O123 q\r\nmg a O123 k\r\n", "a miss repeats key and opaque, unless quiet"),
    (b"mg a v v\r\n", "a repeated flag"),
    (b"mg a !\r\n", "an unknown flag"),
    (b"mg a S\r\nmg a E1\r\n", "flags of other versions"),
    (b"mg a \xff\r\n", "not ASCII"),
    (b"mg a ! v v\r\n", "of an unknown and a repeated flag, the first counts"),
    (b"mg a Tx ! \r\n", "an unknown flag takes precedence over a bad number"),
    (b"mg a Tx Mxx Nx\r\n", "of other faults, the last one counts"),
    (b"mg a Mxx Fx\r\nmg a Fx\r\n", "a bad number of F keeps the fault before"),
    (b"mg a T\r\n", "a missing number"),
    (b"mg a T4294967296 R-1\r\n", "numbers are cut to 32 bits"),
    (b"mg a Cx\r\nmg a Jx\r\nmg a Dx\r\nmg a Nx\r\nmg a Rx\r\n", "unused numbers are read, too"),
    (b"mg a C-1\r\nmg a J18446744073709551616\r\nmg a F-1\r\n", "unused numbers must fit"),
    (b"mg a M\r\nmg a Mxx\r\nmg a M!\r\n", "a mode is one character; mg accepts any"),
    (b"mg a s v t c f k h l u q O1 P2 L3 I F4 b\r\n", "most flags; the key is not base64"),
    (b"mg a 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19\r\n", "19 words are read"),
    (b"mg a 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20\r\n", "20 words are too many for mg"),
    (b"md a 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20\r\n", "20 words are too many for md"),
    (b"ma a 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20\r\n", "20 words are too many for ma"),
    (
        b"ms a 7 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20\r\nversion\r\n",
        "20 words are too many for ms: the value becomes a command",
    ),
    (b"mg a O_______________________________\r\n", "the longest opaque"),
    (b"mg a O________________________________\r\n", "one byte too long"),
    (b"md a O________________________________\r\n", "one byte too long"),
    (b"ma a O________________________________\r\n", "one byte too long"),
    (b"ms a 1 O________________________________\r\nx\r\nmn\r\n", "one byte too long, value dropped"),
    (b"mg Zm9v b k\r\n", "a binary key comes back in base64"),
    (b"mg Zm9v k b\r\n", "a binary key comes back with its flag b"),
    (b"mg Zm9v b2\r\n", "the argument of b is ignored"),
    (b"mg Zm9 b\r\nmg ==== b\r\nmg A=== b\r\nmg YWJj= b\r\n", "not base64"),
    (b"mg Zm== b k\r\nmg YW=h b k\r\nmg YWJj!!!! b k\r\nmg YW\tJj b k\r\n", "base64, read leniently"),
    (b"ms a\r\n", "no length"),
    (b"ms a x\r\nmn\r\n", "length not a number"),
    (b"ms a -1\r\nmn\r\n", "length negative"),
    (b"ms a S1\r\nx\r\n", "the length as in earlier versions"),
    (b"ms a 2 !\r\nxx\r\nmn\r\n", "faulty flags: the value is dropped"),
    (b"ms a 2 E5\r\nxx\r\nmg a E5\r\nmd a E5\r\nma a E5\r\n", "a token of the client's choice"),
    (b"ms a 2 T0 T0\r\nxx\r\nmn\r\n", "a repeated flag"),
    (b"ms a 2 Fx q\r\nxx\r\nmn\r\n", "errors are never quiet"),
    (b"ms a 2 MX\r\nxx\r\nms a 2 M\r\nxx\r\nms a 2 Me\r\nxx\r\n", "unknown modes"),
    (b"ms a! 2 b\r\nxx\r\nmn\r\n", "not base64"),
    (b"ms a 2\r\nxxx\r\nmn\r\n", "value longer than its length"),
    (b"ms a 2 q\r\nxxx\r\nmn\r\n", "value longer than its length, quiet"),
    (b"ms a 2 k O1 q\r\nxx\r\nms a 2 k O1\r\nxx\r\n", "done, with and without q"),
    (b"md a !\r\nmd a T T\r\nmd a Cx\r\nmd a b\r\n", "md has one answer to all faults"),
    (b"md a q k\r\nmd a k O1\r\n", "a miss is answered with and without q"),
    (b"ma a !\r\nma a T T\r\nma a Dx\r\nma a Mxx\r\nma a b\r\n", "ma has one answer to most faults"),
    (b"ma a MX\r\nma a Mi\r\n", "ma has another answer to an unknown mode"),
    (b"ma a MX O________________________________\r\n", "ma checks the mode before the opaque"),
    (b"ma a MI\r\nma a M+\r\nma a MD\r\nma a M-\r\nma a q\r\n", "valid modes, no item"),
    (b"me a\r\nme a v b q\r\n", "me ignores flags"),
    (b"me a b\r\nme Zm9v b\r\n", "me reads b as the first flag"),
    (b"mg 251___________________________________________________________________________________\
       __________________________________________________________________________________________\
       ________________________________________________________________________________ v v\r\n",
        "key too long"),
    (b"ms 251___________________________________________________________________________________\
       __________________________________________________________________________________________\
       ________________________________________________________________________________ 2 v\r\n\
       mn\r\n", "key too long: the value becomes a command"),
];

fn compare(server: &Memcached, input: &[u8], why: &str) {
    server.flush();
    let theirs = server.ask(input);
    let ours = Model::new().ask(input);
    assert_eq!(
        ours.escape_ascii().to_string(),
        theirs.escape_ascii().to_string(),
        "{why}: {}",
        input[..input.len().min(200)].escape_ascii()
    );
}

#[test]
fn bad_input_is_answered_as_by_memcached() {
    let server = Memcached::start();
    for table in [LINES, RETRIEVALS, STORES, OTHERS, METAS] {
        for (input, why) in table {
            compare(&server, input, why);
        }
    }
}

#[test]
fn too_large_values_are_answered_as_by_memcached() {
    let server = Memcached::start();
    let value = vec![b'x'; 2_000_000];
    let rows = [
        ("set a 0 0 2000000\r\n", "refused after the value"),
        ("set a 0 0 2000000 noreply\r\n", "refused without an answer"),
        ("ms a 2000000\r\n", "refused after the value"),
        ("ms a 2000000 q\r\n", "answered even with q"),
        ("ms a 2000000 !\r\n", "faulty flags are refused first"),
        ("set a 0 0 1999999\r\n", "the last byte becomes a command"),
    ];
    for (line, why) in rows {
        let input = [b"set a 0 0 3\r\nold\r\n", line.as_bytes(), &value, b"\r\nget a\r\n"].concat();
        compare(&server, &input, why);
    }
}

#[test]
fn endless_line_closes_the_connection_as_in_memcached() {
    let server = Memcached::start();
    for start in ["", "set ", "version ", "gets"] {
        let input = [start.as_bytes(), &[b'x'; 3000]].concat();
        assert_eq!(server.ask_until_closed(&input), b"", "{start}");
        let mut model = Model::new();
        assert_eq!(model.ask(&input), b"", "{start}");
        assert!(model.closed, "{start}");
    }
    // Retrievals may have many keys.
    let many = [&b"get "[..], &b"a ".repeat(5000), b"\r\n"].concat();
    compare(&server, &many, "a long retrieval");
}

/// Compares, for each command and each of its answers, whether `q` suppresses the answer.
#[test]
fn quiet_meta_commands_suppress_the_same_answers_as_in_memcached() {
    let server = Memcached::start();
    let rows: [(MetaVerb, &str, &str, Status<'_>); 14] = [
        (MetaVerb::Get, "mg absent", "\r\n", Status::MetaMiss),
        (MetaVerb::Get, "mg one", "\r\n", Status::MetaDone),
        (MetaVerb::Get, "mg one v", "\r\n", Status::MetaValue),
        (MetaVerb::Set, "ms one 1", "\r\n2\r\n", Status::MetaDone),
        (MetaVerb::Set, "ms one 1 ME", "\r\n2\r\n", Status::MetaNotStored),
        (MetaVerb::Set, "ms one 1 C999999", "\r\n2\r\n", Status::MetaExists),
        (MetaVerb::Set, "ms absent 1 C1", "\r\n2\r\n", Status::MetaNotFound),
        (MetaVerb::Delete, "md one", "\r\n", Status::MetaDone),
        (MetaVerb::Delete, "md absent", "\r\n", Status::MetaNotFound),
        (MetaVerb::Delete, "md one C999999", "\r\n", Status::MetaExists),
        (MetaVerb::Arith, "ma one", "\r\n", Status::MetaDone),
        (MetaVerb::Arith, "ma one v", "\r\n", Status::MetaValue),
        (MetaVerb::Arith, "ma absent", "\r\n", Status::MetaNotFound),
        (MetaVerb::Debug, "me absent", "\r\n", Status::MetaMiss),
    ];
    for (verb, command, rest, expected) in rows {
        let ask = |flag: &str| {
            server.flush();
            server.ask(format!("set one 0 0 1 noreply\r\n1\r\n{command}{flag}{rest}").as_bytes())
        };
        let answer = ask("");
        let knee_proto::Decoded::Complete { item, .. } =
            ResponseDecoder::new(1 << 20).decode(&answer, Expect::Meta)
        else {
            panic!("{command}: {}", answer.escape_ascii())
        };
        assert_eq!(item.status, expected, "{command}");
        assert_eq!(quiet_suppresses(verb, item.status), ask(" q").is_empty(), "{command}");
    }
}

/// Random lines of the protocol's words. No key is too long: memcached then also drops outstanding answers to earlier
/// lines, which the decoder does not imitate.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        3 => proptest::sample::select(vec![
            "get", "gets", "gat", "gats", "set", "add", "replace", "append", "prepend", "cas",
            "incr", "decr", "delete", "touch", "mg", "ms", "md", "ma", "me", "mn", "version",
        ]).prop_map(str::to_owned),
        6 => proptest::sample::select(vec![
            "a", "b", "Zm9v", "0", "1", "2", "3", "-1", "+1", "18446744073709551617", "noreply",
            "q", "v", "k", "O1", "b", "T0", "Tx", "F1", "C1", "ME", "MX", "D2", "J3", "N0", "I", "\t1",
        ]).prop_map(str::to_owned),
        1 => "[ -~]{1,3}",
    ];
    let end = proptest::sample::select(vec!["\r\n", "\r\n", "\r\n", "\n", "\r\r\n", " \r\n"]);
    let line =
        (proptest::collection::vec(word, 1..8), end).prop_map(|(words, end)| words.join(" ") + end);
    // memcached does not answer while a value is incomplete, so the last lines complete one of up to 999 bytes.
    proptest::collection::vec(line, 1..6)
        .prop_map(|lines| (lines.concat() + &"mn\r\n".repeat(260)).into_bytes())
}

#[test]
fn random_lines_have_the_same_errors_as_in_memcached() {
    let server = Memcached::start();
    // By default all runs use the same lines. `KNEE_SOAK=n` draws n times as many lines, different in each run.
    let soak: Option<u32> = std::env::var("KNEE_SOAK").ok().and_then(|times| times.parse().ok());
    let config = ProptestConfig {
        cases: 300 * soak.unwrap_or(1),
        rng_seed: soak.map_or(RngSeed::Fixed(20_261_123), |_| RngSeed::Random),
        failure_persistence: None,
        ..Default::default()
    };
    proptest!(config, |(input in soup())| {
        server.flush();
        let theirs = protocol_errors(&server.ask(&input));
        let ours = protocol_errors(&Model::new().ask(&input));
        prop_assert_eq!(ours, theirs, "{}", input.escape_ascii());
    });
}

/// The error lines in an answer that depend only on the request, not on stored values.
fn protocol_errors(answer: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(answer)
        .lines()
        .filter(|line| line.starts_with("ERROR") || line.starts_with("CLIENT_ERROR"))
        .filter(|line| !line.contains("non-numeric value"))
        .map(str::to_owned)
        .collect()
}
