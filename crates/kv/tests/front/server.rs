//! The store through real sockets.

use std::io::{Read, Write};
use std::time::Duration;

use knee_kv_cache::MemoryLimits;

use crate::harness::{Client, Store, settings};
use knee_kv::MemcachedSettings;

/// A table test of the protocol: requests and their answers.
fn converse(rows: &[(&str, &str)]) {
    for store in Store::each(settings()) {
        let mut client = store.client();
        for (sent, expected) in rows {
            assert_eq!(client.answer(sent), *expected, "after {}", sent.escape_debug());
        }
    }
}

#[test]
fn classic_compare_and_swap() {
    for store in Store::each(settings()) {
        let mut client = store.client();
        client.answer("set k 0 0 1\r\na\r\n");
        let answer = client.answer("gets k\r\n");
        let token = answer.split_whitespace().nth(4).unwrap().to_owned();
        assert_eq!(client.answer(&format!("cas k 0 0 1 {token}\r\nb\r\n")), "STORED\r\n");
        assert_eq!(client.answer(&format!("cas k 0 0 1 {token}\r\nc\r\n")), "EXISTS\r\n");
        assert_eq!(client.answer("cas absent 0 0 1 1\r\nc\r\n"), "NOT_FOUND\r\n");
        assert_eq!(client.answer("get k\r\n"), "VALUE k 0 1\r\nb\r\nEND\r\n");
    }
}

#[test]
fn expiry() {
    converse(&[
        ("set gone 0 -1 1\r\nx\r\n", "STORED\r\n"),
        ("get gone\r\n", "END\r\n"),
        // An absolute time in 1970, and one in the future.
        ("set past 0 2592001 1\r\nx\r\n", "STORED\r\n"),
        ("get past\r\n", "END\r\n"),
        ("set k 0 2000000000 1\r\nx\r\n", "STORED\r\n"),
        // In one write: both run in the same second.
        ("touch k 100\r\nmg k t\r\n", "TOUCHED\r\nHD t100\r\n"),
        ("gat 0 k absent\r\n", "VALUE k 0 1\r\nx\r\nEND\r\n"),
        ("mg k t\r\n", "HD t-1\r\n"),
        ("touch k -1\r\n", "TOUCHED\r\n"),
        ("touch k 0\r\n", "NOT_FOUND\r\n"),
        // A counter's expiry is set, also if the number gets longer.
        ("ms t 1\r\n9\r\nma t T-1\r\nmg t\r\n", "HD\r\nHD\r\nEN\r\n"),
    ]);
}

#[test]
fn item_expires_in_its_second() {
    for store in Store::each(settings()) {
        let mut client = store.client();
        // In one write, in one second: an item of the next second is not flushed.
        let all = "set k 0 1 1\r\nx\r\nset l 0 1000 1\r\ny\r\nflush_all 1\r\nset m 0 0 1\r\nz\r\n";
        assert_eq!(client.answer(all), "STORED\r\nSTORED\r\nOK\r\nSTORED\r\n");
        // Both expire within a second; a longer wait is no fault.
        std::thread::sleep(Duration::from_millis(1100));
        assert_eq!(client.answer("get k l m\r\n"), "END\r\n");
        client.answer("set n 0 0 1\r\nz\r\n");
        assert_eq!(client.answer("get n\r\n"), "VALUE n 0 1\r\nz\r\nEND\r\n");
    }
}

#[test]
fn base64_keys_are_stored_decoded_and_shown_encoded() {
    converse(&[
        ("ms Zm9v 1 b\r\nx\r\n", "HD\r\n"),
        ("mg Zm9v b v k\r\n", "VA 1 kZm9v b\r\nx\r\n"),
        ("get foo\r\n", "VALUE foo 0 1\r\nx\r\nEND\r\n"),
        // `a\nb`: decoded, it would be two lines.
        ("mg YQpi N30 b k\r\n", "HD kYQpi b W\r\n"),
        ("mg YQpi b k\r\n", "HD kYQpi b Z\r\n"),
        ("md YQpi b\r\nma YQpi N0 J9 b q\r\nma YQpi b q\r\n", "HD\r\nHD\r\n"),
        ("mg YQpi b k v\r\n", "VA 2 kYQpi b\r\n10\r\n"),
    ]);
}

/// memcached answers so since version 1.6.20.
#[test]
fn meta_set_with_s_shows_the_length_of_the_stored_value() {
    converse(&[
        ("ms k 3 s Oa\r\nabc\r\n", "HD s3 Oa\r\n"),
        ("ms k 2 Oa s MA\r\nde\r\n", "HD Oa s5\r\n"),
        ("ms k 4 MP s k\r\nxxxx\r\n", "HD s9 kk\r\n"),
        ("mg k s v\r\n", "VA 9 s9\r\nxxxxabcde\r\n"),
        ("ms k 0 s MA\r\n\r\n", "HD s9\r\n"),
        ("ms k 0 s\r\n\r\n", "HD s0\r\n"),
        ("ms k 2 s q\r\nab\r\n", ""),
        // A value that is not stored has the length that was sent.
        ("ms k 1 ME s\r\nx\r\n", "NS s1\r\n"),
        ("ms k 1 C1 s\r\nx\r\n", "EX s1\r\n"),
        ("ms absent 3 MA s\r\nabc\r\n", "NS s3\r\n"),
        ("ms absent 3 C1 s\r\nabc\r\n", "NF s3\r\n"),
    ]);
}

#[test]
fn administration() {
    converse(&[
        ("verbosity 1\r\n", "OK\r\n"),
        ("shutdown\r\n", "ERROR: shutdown not enabled\r\n"),
        ("cache_memlimit 1\r\n", "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n"),
        ("cache_memlimit 32\r\n", "OK\r\n"),
        ("stats detail dump\r\n", "END\r\n"),
        ("stats nonsense\r\n", "ERROR\r\n"),
        ("nonsense\r\n", "ERROR\r\n"),
        ("set k 0 0 1\r\nx\r\n", "STORED\r\n"),
        ("flush_all\r\n", "OK\r\n"),
        ("get k\r\n", "END\r\n"),
        ("flush_all noreply\r\n", ""),
    ]);
    let store = Store::start(settings());
    let mut client = store.client();
    assert!(client.answer("version\r\n").starts_with("VERSION 1.6."), "as clients expect it");
    client.send("quit\r\nget k\r\n");
    assert_eq!(client.rest(), b"");
}

fn stat(client: &mut Client, group: &str, name: &str) -> Option<String> {
    let answer = client.answer(&format!("stats {group}\r\n"));
    assert!(answer.ends_with("END\r\n"), "{answer}");
    answer.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} "))).map(str::to_owned)
}

#[test]
fn statistics_count_requests() {
    for store in Store::each(MemcachedSettings { threads: 2, ..settings() }) {
        let (mut one, mut two) = (store.client(), store.client());
        one.answer("set a 0 0 1\r\nx\r\nset b 0 0 1\r\nx\r\nget a b c\r\ndelete a\r\ndelete a\r\n");
        two.answer(
            "get b\r\nset n 0 0 1\r\n1\r\nincr n 1\r\ndecr z 1\r\ntouch b 0\r\nflush_all\r\n",
        );
        let expected = [
            ("cmd_get", "4"),
            ("get_hits", "3"),
            ("get_misses", "1"),
            ("cmd_set", "3"),
            ("delete_hits", "1"),
            ("delete_misses", "1"),
            ("incr_hits", "1"),
            ("decr_misses", "1"),
            ("touch_hits", "1"),
            ("cmd_flush", "1"),
            ("curr_connections", "2"),
            ("total_connections", "2"),
            ("threads", "2"),
            ("limit_maxbytes", "67108864"),
        ];
        for (name, count) in expected {
            assert_eq!(stat(&mut one, "", name).as_deref(), Some(count), "{name}");
        }
        // Flushed items are counted later.
        while stat(&mut one, "", "curr_items").as_deref() != Some("0") {}
        assert_eq!(stat(&mut one, "settings", "item_size_max").as_deref(), Some("1048576"));
        assert_eq!(stat(&mut one, "items", "items:1:number"), None);
        one.answer("set a 0 0 1\r\nx\r\n");
        assert_eq!(stat(&mut one, "items", "items:1:number").as_deref(), Some("1"));
        assert_eq!(stat(&mut one, "slabs", "active_slabs").as_deref(), Some("1"));
        assert_eq!(two.answer("stats reset\r\n"), "RESET\r\n");
        assert_eq!(stat(&mut one, "", "cmd_get").as_deref(), Some("0"));
        assert_eq!(stat(&mut one, "", "curr_items").as_deref(), Some("1"));
    }
}

/// A conversation with every kind of request.
const CONVERSATION: &[u8] = b"set k 0 0 5\r\na\r\nbc\r\nget k\r\nms m 2 k\r\nxy\r\nmg m v k\r\n\
    incr k 1\r\nset big 0 0 20000\r\nget k m\r\ndelete k\r\n";

/// [`CONVERSATION`] with the large value that it announces.
fn conversation() -> Vec<u8> {
    let at = CONVERSATION.windows(7).position(|window| window == b"20000\r\n").unwrap() + 7;
    let mut whole = CONVERSATION[..at].to_vec();
    whole.resize(at + 20_000, b'x');
    whole.extend_from_slice(b"\r\n");
    whole.extend_from_slice(&CONVERSATION[at..]);
    whole
}

const ANSWERS: &[u8] = b"STORED\r\nVALUE k 0 5\r\na\r\nbc\r\nEND\r\nHD km\r\nVA 2 km\r\nxy\r\n\
    CLIENT_ERROR cannot increment or decrement non-numeric value\r\n\
    SERVER_ERROR object too large for cache\r\n\
    VALUE k 0 5\r\na\r\nbc\r\nVALUE m 0 2\r\nxy\r\nEND\r\nDELETED\r\n";

#[test]
fn requests_may_be_split_at_every_byte() {
    let limits = MemoryLimits { value_bytes_max: 10_000, ..settings().limits };
    for store in Store::each(MemcachedSettings { limits, ..settings() }) {
        let whole = conversation();
        let is_value = |at: usize| whole[at..].starts_with(b"xxx") && whole[..at].ends_with(b"xxx");
        for split in (1..whole.len()).filter(|&at| !is_value(at)) {
            let mut client = store.client();
            client.send(&whole[..split]);
            // Likely, though not certain, to arrive apart.
            std::thread::yield_now();
            let answers = client.ask(&whole[split..]);
            assert_eq!(
                answers.escape_ascii().to_string(),
                ANSWERS.escape_ascii().to_string(),
                "split at {split}"
            );
        }
    }
}

#[test]
fn requests_may_trickle_in() {
    let store = Store::start(settings());
    let mut client = store.client();
    let request = b"set k 0 0 3\r\nabc\r\nget k\r\nmn\r\n";
    for byte in request {
        client.send([*byte]);
    }
    assert_eq!(client.read_to(b"MN\r\n"), b"STORED\r\nVALUE k 0 3\r\nabc\r\nEND\r\nMN\r\n");
}

#[test]
fn many_requests_in_one_write_are_answered_in_order() {
    for store in Store::each(settings()) {
        let mut client = store.client();
        let mut requests = String::new();
        let mut expected = String::new();
        for number in 0..2000 {
            requests += &format!("set k{number} 0 0 4\r\n{number:04}\r\nget k{number}\r\n");
            expected += &format!("STORED\r\nVALUE k{number} 0 4\r\n{number:04}\r\nEND\r\n");
        }
        assert_eq!(client.answer(&requests), expected);
    }
}

#[test]
fn bad_input_is_answered_and_keeps_the_connection() {
    let key = "k".repeat(251);
    let store = Store::start(settings());
    let mut client = store.client();
    let rows = [
        (format!("get {key}\r\n"), "CLIENT_ERROR bad command line format\r\n"),
        (format!("delete {key}\r\n"), "CLIENT_ERROR bad command line format\r\n"),
        (format!("mg {key}\r\n"), "CLIENT_ERROR bad command line format\r\n"),
        ("set k 0 0 3\r\nabcd\r\n".into(), "CLIENT_ERROR bad data chunk\r\nERROR\r\n"),
        ("set k 0 0 -1\r\n".into(), "CLIENT_ERROR bad command line format\r\n"),
        ("\r\n".into(), "ERROR\r\n"),
    ];
    for (sent, expected) in rows {
        let answer = client.answer(&sent);
        // memcached's words; the rest of a bad chunk may be another command.
        assert!(
            answer.starts_with(expected.split_inclusive("\r\n").next().unwrap()),
            "{sent}: {answer}"
        );
    }
    assert_eq!(client.answer("set k 0 0 1\r\nx\r\n"), "STORED\r\n");
    // An endless line ends the connection.
    client.send(vec![b'x'; 100_000]);
    assert_eq!(client.rest(), b"");
    assert_eq!(store.client().answer("get k\r\n"), "VALUE k 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn largest_value_fits_and_one_more_byte_is_refused() {
    let limits = MemoryLimits { memory_bytes_max: 16 << 20, value_bytes_max: 3_000_000 };
    for store in Store::each(MemcachedSettings { limits, ..settings() }) {
        let mut client = store.client();
        let value = "v".repeat(3_000_000);
        assert_eq!(client.answer(&format!("set k 0 0 3000000\r\n{value}\r\n")), "STORED\r\n");
        assert_eq!(client.answer("get k\r\n"), format!("VALUE k 0 3000000\r\n{value}\r\nEND\r\n"));
        let refused = client.answer(&format!("set k 0 0 3000001\r\n{value}v\r\n"));
        assert_eq!(refused, "SERVER_ERROR object too large for cache\r\n");
        assert_eq!(client.answer("get k\r\n"), "END\r\n", "the old value is gone");
    }
}

#[test]
fn half_sent_requests_do_not_disturb_others() {
    let store = Store::start(settings());
    let mut halves: Vec<Client> = (0..50).map(|_| store.client()).collect();
    for client in &mut halves {
        client.send("set k 0 0 100000\r\nhalf of it");
    }
    assert_eq!(store.client().answer("set k 0 0 1\r\nx\r\n"), "STORED\r\n");
    drop(halves);
    assert_eq!(store.client().answer("get k\r\n"), "VALUE k 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn client_that_closes_its_side_gets_its_answers() {
    for store in Store::each(settings()) {
        let mut client = store.client();
        client.send("set k 0 0 1\r\nx\r\nget k\r\n");
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(client.rest(), b"STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    }
}

#[test]
fn increments_of_many_clients_and_threads_add_up() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 50;
    for store in Store::each(MemcachedSettings { threads: 2, ..settings() }) {
        store.client().answer("set n 0 0 1\r\n0\r\nset i 0 0 1\r\n0\r\n");
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                let mut client = store.client();
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        assert!(client.answer("incr i 1\r\n").ends_with("\r\n"));
                        loop {
                            let answer = client.answer("gets n\r\n");
                            let mut words = answer.split_whitespace().skip(4);
                            let token = words.next().unwrap();
                            let sum = words.next().unwrap().parse::<usize>().unwrap() + 1;
                            let sum = sum.to_string();
                            let swap = format!("cas n 0 0 {} {token}\r\n{sum}\r\n", sum.len());
                            match client.answer(&swap).as_str() {
                                "STORED\r\n" => break,
                                other => assert_eq!(other, "EXISTS\r\n"),
                            }
                        }
                    }
                });
            }
        });
        let total = (CLIENTS * ROUNDS).to_string();
        let answer = store.client().answer("get n i\r\n");
        assert_eq!(answer.matches(&format!("\r\n{total}")).count(), 2, "{answer}");
    }
}

#[test]
fn counter_that_many_clients_create_counts_all() {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 500;
    for store in Store::each(MemcachedSettings { threads: 2, ..settings() }) {
        let start = std::sync::Barrier::new(CLIENTS);
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                let (mut client, start) = (store.client(), &start);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        start.wait();
                        assert_eq!(client.answer(&format!("ma n{round} N0 J1\r\n")), "HD\r\n");
                    }
                });
            }
        });
        let mut client = store.client();
        for round in 0..ROUNDS {
            let answer = client.answer(&format!("get n{round}\r\n"));
            assert_eq!(answer, format!("VALUE n{round} 0 1\r\n{CLIENTS}\r\nEND\r\n"));
        }
    }
}

#[test]
fn connection_beyond_the_limit_is_refused() {
    let store = Store::start(MemcachedSettings { connections_max: 2, ..settings() });
    let (mut one, mut two) = (store.client(), store.client());
    one.answer("get k\r\n");
    two.answer("get k\r\n");
    assert_eq!(store.client().rest(), b"ERROR Too many open connections\r\n");
    assert_eq!(one.answer("get k\r\n"), "END\r\n");
}

#[test]
fn idle_connections_are_closed() {
    let idle_timeout = Some(Duration::from_millis(100));
    let store = Store::start(MemcachedSettings { idle_timeout, ..settings() });
    assert_eq!(store.client().rest(), b"");
}

#[test]
fn shutdown_answers_read_requests() {
    for mut store in Store::each(settings()) {
        let mut client = store.client();
        let value = "v".repeat(1_000_000);
        client.answer(&format!("set k 0 0 1000000\r\n{value}\r\n"));
        client.send("get k k k k k k k k\r\n");
        // The first bytes of the answer show that the request was read.
        let mut first = [0; 6];
        client.stream.read_exact(&mut first).unwrap();
        let reader = std::thread::spawn(move || client.rest());
        store.shut_down();
        let rest = reader.join().unwrap();
        assert_eq!(
            rest.len() + first.len(),
            8 * (1_000_000 + "VALUE k 0 1000000\r\n\r\n".len()) + 5
        );
        assert!(rest.ends_with(b"END\r\n"));
    }
}

#[test]
fn reset_connection_does_not_disturb_others() {
    let store = Store::start(settings());
    let mut client = store.client();
    client.answer(&format!("set k 0 0 100000\r\n{}\r\n", "v".repeat(100_000)));
    for _ in 0..20 {
        let mut rude = store.client();
        rude.stream.write_all("get k\r\n".repeat(100).as_bytes()).unwrap();
        // Closing with unread input resets the connection.
        drop(rude);
    }
    assert!(client.answer("get k\r\n").ends_with("END\r\n"));
}
