//! The near cache: it answers reads, writes remove its values, and its values end.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use knee_middleware::{Cache, Config, Mode};
use knee_testkit::{Memcached, soak, wait_until};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};

use crate::support::{Client, MODES, Proxy, addresses, config, impostor, three};

/// Longer than a test.
const LONG: Duration = Duration::from_secs(3600);
/// How late a busy machine may be.
const SLACK: Duration = Duration::from_millis(500);

fn cached(config: Config, lifetime: Duration) -> Config {
    Config { cache: Some(Cache { bytes_max: 1 << 20, lifetime }), ..config }
}

fn before(mode: Mode, threads: usize, servers: &[Memcached], lifetime: Duration) -> Proxy {
    Proxy::start(&cached(config(mode, threads, &addresses(servers)), lifetime))
}

/// Keys that the servers were asked for.
fn asked(servers: &[Memcached]) -> u64 {
    servers.iter().map(|server| server.stats()["cmd_get"]).sum()
}

#[test]
fn repeated_read_asks_no_server() {
    let servers = three();
    for (mode, threads) in MODES {
        let proxy = before(mode, threads, &servers, LONG);
        let mut clients = [proxy.client(), proxy.client()];
        clients[0].expect("flush_all\r\nset a 5 0 2\r\nhi\r\n", "OK\r\nSTORED\r\n");
        clients[0].expect("get a\r\n", "VALUE a 5 2\r\nhi\r\nEND\r\n");
        let old = asked(&servers);
        for _ in 0..5 {
            for client in &mut clients {
                client.expect(
                    "get a\r\nget a a\r\n",
                    "VALUE a 5 2\r\nhi\r\nEND\r\nVALUE a 5 2\r\nhi\r\nVALUE a 5 2\r\nhi\r\nEND\r\n",
                );
            }
        }
        assert_eq!(asked(&servers), old);
        // Servers alone know tokens, and what other commands show. A miss is not kept.
        clients[0].send("gets a\r\nmg a v\r\nget none\r\nget none\r\n");
        assert!(clients[0].line().starts_with("VALUE a 5 2 "));
        clients[0].expect("", "hi\r\nEND\r\nVA 2\r\nhi\r\nEND\r\nEND\r\n");
        assert_eq!(asked(&servers), old + 3 + 1 + 2);
    }
}

#[test]
fn multiget_asks_servers_for_the_missing_keys_alone() {
    let servers = three();
    for sharded in [false, true] {
        for (mode, threads) in MODES {
            let settings = Config { sharded, ..config(mode, threads, &addresses(&servers)) };
            let proxy = Proxy::start(&cached(settings, LONG));
            let mut client = proxy.client();
            client.expect("flush_all\r\n", "OK\r\n");
            let value = |key| format!("VALUE {key} 0 1\r\n{key}\r\n");
            for key in ["a", "b", "c", "d", "e"] {
                client.expect(&format!("set {key} 0 0 1\r\n{key}\r\n"), "STORED\r\n");
            }
            client.expect("get b\r\n", &(value("b") + "END\r\n"));
            let old = asked(&servers);
            let all = ["a", "b", "d", "b", "e", "d"].map(value).concat() + "END\r\n";
            client.expect("get a b none d b e d\r\n", &all);
            assert_eq!(asked(&servers), old + 5);
            // Now it has all but one key.
            client.expect("get a b none d b e d\r\n", &all);
            assert_eq!(asked(&servers), old + 6);
            client.expect("get a b e\r\n", &(["a", "b", "e"].map(value).concat() + "END\r\n"));
            assert_eq!(asked(&servers), old + 6);
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// A command with `{key}` in the place of a key, for one of the keys.
    Write(&'static str, usize),
    /// A `cas` with the present token, or with one that does not hold.
    Cas(usize, bool),
    Get(Vec<usize>),
}

const KEYS: [&str; 4] = ["a", "bb", "n", "azE="];

fn steps() -> impl Strategy<Value = Vec<(Step, usize)>> {
    let writes = prop::sample::select(vec![
        "set {key} 1 0 1\r\n5\r\n",
        "set {key} 0 0 2\r\nxy\r\n",
        "set {key} 0 -1 1\r\nx\r\n",
        "set {key} 0 0 1 noreply\r\n7\r\n",
        "add {key} 0 0 1\r\n3\r\n",
        "replace {key} 2 0 1\r\n4\r\n",
        "append {key} 0 0 1\r\n1\r\n",
        "prepend {key} 0 0 1\r\n2\r\n",
        "incr {key} 3\r\n",
        "decr {key} 1\r\n",
        "delete {key}\r\n",
        "touch {key} 100\r\n",
        "touch {key} -1\r\n",
        "gat -1 {key}\r\n",
        "gats 100 {key}\r\n",
        "ms {key} 1\r\n8\r\n",
        "ms {key} 1 q\r\n9\r\n",
        "ms {key} 1 b MA\r\n6\r\n",
        "md {key}\r\n",
        "md {key} b\r\n",
        "md {key} I T30\r\n",
        "ma {key} N0 J9\r\n",
        "mg {key} N30 v\r\n",
        "mg {key} T-1\r\n",
        "flush_all\r\n",
    ]);
    let key = 0..KEYS.len();
    let step = prop_oneof![
        4 => (writes, key.clone()).prop_map(|(write, key)| Step::Write(write, key)),
        1 => (key.clone(), any::<bool>()).prop_map(|(key, holds)| Step::Cas(key, holds)),
        5 => prop::collection::vec(key, 1..5).prop_map(Step::Get),
    ];
    prop::collection::vec((step, 0..2_usize), 1..40)
}

/// The lines up to `END`; values may be empty.
fn read(client: &mut Client, request: &str) -> Vec<String> {
    client.send(request);
    let mut lines = vec![client.line()];
    while lines.last().is_some_and(|line| line != "END") {
        assert!(lines.len() < 100, "{lines:?}");
        lines.push(client.line());
    }
    lines
}

/// All writes pass the middleware: a read has the answer that the server itself gives.
#[test]
fn read_has_the_servers_answer_after_any_writes() {
    let servers = three();
    for (mode, threads) in MODES {
        for servers in [&servers[..1], &servers] {
            let proxy = before(mode, threads, servers, LONG);
            let direct = Client::connect(servers[0].address);
            let clients = RefCell::new([proxy.client(), proxy.client(), direct]);
            let cases = 12 * soak();
            let cases = Cases { cases, failure_persistence: None, ..Cases::default() };
            let outcome = TestRunner::new(cases).run(&steps(), |steps| {
                let [first, second, direct] = &mut *clients.borrow_mut();
                first.expect("flush_all\r\n", "OK\r\n");
                for (step, client) in steps {
                    let client = if client == 0 { &mut *first } else { &mut *second };
                    match step {
                        Step::Write(command, key) => {
                            client.send(&command.replace("{key}", KEYS[key]));
                            // The answer to `mn` ends the answers.
                            client.send("mn\r\n");
                            while client.line() != "MN" {}
                        }
                        Step::Cas(key, holds) => {
                            let token = client.gets(KEYS[key]).map_or(1, |(_, token)| token);
                            let token = token + u64::from(!holds);
                            client.ask(&format!("cas {} 0 0 1 {token}\r\nc\r\n", KEYS[key]));
                        }
                        Step::Get(keys) => {
                            let keys: Vec<_> = keys.into_iter().map(|key| KEYS[key]).collect();
                            let request = format!("get {}\r\n", keys.join(" "));
                            let expected = read(direct, &request);
                            prop_assert_eq!(read(client, &request), expected);
                        }
                    }
                }
                Ok(())
            });
            outcome.unwrap_or_else(|failure| panic!("{mode:?}, {threads} threads: {failure}"));
        }
    }
}

/// A single writer: a register is atomic if no read is older than an acknowledged write, or than an earlier read
/// (Lamport 1986).
#[test]
fn concurrent_reads_are_never_older_than_what_was_read_or_written() {
    let writes = 150 * u64::from(soak());
    let servers = three();
    for (mode, threads) in MODES {
        let proxy = before(mode, threads, &servers[..1], LONG);
        proxy.client().expect("set r 0 0 1\r\n0\r\n", "STORED\r\n");
        let (written, read) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            // The readers also stop when this thread fails.
            let running = Arc::new(());
            for _ in 0..3 {
                let (mut client, running) = (proxy.client(), Arc::downgrade(&running));
                let (written, read) = (&written, &read);
                scope.spawn(move || {
                    while running.strong_count() > 0 {
                        let least = written.load(Ordering::SeqCst).max(read.load(Ordering::SeqCst));
                        let lines = client.ask_lines("get r\r\n");
                        let number: u64 = lines[1].parse().unwrap();
                        assert!(number >= least, "read {number} after {least}");
                        read.fetch_max(number, Ordering::SeqCst);
                    }
                });
            }
            let mut client = proxy.client();
            for number in 1..=writes {
                let request = format!("set r 0 0 {}\r\n{number}\r\n", number.to_string().len());
                client.expect(&request, "STORED\r\n");
                written.store(number, Ordering::SeqCst);
                // Reads fill the cache in between.
                std::thread::sleep(Duration::from_micros(300));
            }
        });
    }
}

/// A server that answers the first `get` with the old value, but only after a `set`.
fn slow_reader() -> std::net::SocketAddr {
    let written = Arc::new(AtomicBool::new(false));
    impostor(move |stream: TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let (mut reader, mut writer) = (BufReader::new(stream.try_clone().unwrap()), stream);
        let (mut line, mut owes) = (String::new(), false);
        loop {
            let answer = match reader.read_line(&mut line) {
                Ok(0) => return,
                Err(_) => "",
                Ok(_) => match std::mem::take(&mut line).split(' ').next() {
                    Some("get") if written.load(Ordering::SeqCst) => {
                        "VALUE a 0 3\r\nnew\r\nEND\r\n"
                    }
                    Some("get") => {
                        owes = true;
                        ""
                    }
                    Some("set") => {
                        written.store(true, Ordering::SeqCst);
                        ""
                    }
                    _ => "STORED\r\n",
                },
            };
            if written.load(Ordering::SeqCst) && std::mem::take(&mut owes) {
                writer.write_all(b"VALUE a 0 3\r\nold\r\nEND\r\n").unwrap();
            }
            if writer.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    })
}

#[test]
fn read_in_flight_during_a_write_leaves_no_old_value() {
    for (mode, threads) in MODES {
        let server = slow_reader();
        let proxy = Proxy::start(&cached(config(mode, threads, &[server]), LONG));
        let (mut reader, mut writer) = (proxy.client(), proxy.client());
        reader.send("get a\r\n");
        // The read reaches the server first.
        std::thread::sleep(Duration::from_millis(30));
        writer.expect("set a 0 0 3\r\nnew\r\n", "STORED\r\n");
        reader.expect("", "VALUE a 0 3\r\nold\r\nEND\r\n");
        for client in [&mut reader, &mut writer] {
            client.expect("get a\r\n", "VALUE a 0 3\r\nnew\r\nEND\r\n");
        }
    }
}

#[test]
fn value_of_another_writer_is_seen_after_the_lifetime() {
    const LIFETIME: Duration = Duration::from_millis(800);
    let servers = three();
    for (mode, threads) in [(Mode::Workers(3), 2), (Mode::Pipelined, 1)] {
        let proxy = before(mode, threads, &servers[..1], LIFETIME);
        let (mut client, mut other) = (proxy.client(), Client::connect(servers[0].address));
        let mut stale = 0;
        for round in 0..5 {
            let key = format!("stale{round}");
            client.expect(&format!("set {key} 0 0 1\r\nx\r\n"), "STORED\r\n");
            client.ask_lines(&format!("get {key}\r\n"));
            other.expect(&format!("set {key} 0 0 1\r\ny\r\n"), "STORED\r\n");
            let written = Instant::now();
            loop {
                let begun = Instant::now();
                if client.ask_lines(&format!("get {key}\r\n"))[1] == "y" {
                    break;
                }
                stale += 1;
                assert!(begun - written <= LIFETIME + SLACK, "stale after {:?}", begun - written);
                std::thread::sleep(Duration::from_millis(20));
            }
            if stale > 0 {
                break;
            }
        }
        // The bound is of use: such a write is not seen at once.
        assert!(stale > 0);
    }
}

/// A writer's history. Its own middleware never shows an older value than the last acknowledged one. Another middleware
/// shows one that was the last within the lifetime, and `gets` has no delay there either.
#[test]
fn history_over_two_middlewares_is_late_by_the_lifetime_at_most() {
    const LIFETIME: Duration = Duration::from_millis(100);
    const WRITES: usize = 120;
    let servers = three();
    for (mode, threads) in [(Mode::Workers(3), 2), (Mode::Pipelined, 1)] {
        let [own, other] = [(); 2].map(|()| before(mode, threads, &servers[..1], LIFETIME));
        let mut writer = own.client();
        writer.expect("set r 0 0 1\r\n0\r\n", "STORED\r\n");
        // The instant of each acknowledgement, by the number.
        let acknowledged = Mutex::new(vec![Instant::now()]);
        let least = |until: Instant| {
            acknowledged.lock().unwrap().partition_point(|&then| then <= until).max(1) - 1
        };
        let late = AtomicU64::new(0);
        std::thread::scope(|scope| {
            // The readers also stop when this thread fails.
            let running = Arc::new(());
            for (proxy, request, delay) in [
                (&own, "get r\r\n", Duration::ZERO),
                (&other, "gets r\r\n", Duration::ZERO),
                (&other, "get r\r\n", LIFETIME + SLACK),
            ] {
                let (mut client, running, late) = (proxy.client(), Arc::downgrade(&running), &late);
                scope.spawn(move || {
                    while running.strong_count() > 0 {
                        let begun = Instant::now();
                        let (at_once, bound) = (least(begun), least(begun - delay));
                        let number: usize = client.ask_lines(request)[1].parse().unwrap();
                        assert!(number >= bound, "{request:?} has {number}, not {bound}");
                        late.fetch_add(u64::from(number < at_once), Ordering::SeqCst);
                        std::thread::sleep(Duration::from_millis(5));
                    }
                });
            }
            for number in 1..=WRITES {
                let request = format!("set r 0 0 {}\r\n{number}\r\n", number.to_string().len());
                writer.expect(&request, "STORED\r\n");
                acknowledged.lock().unwrap().push(Instant::now());
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        assert!(late.into_inner() > 0, "{mode:?}: the other cache never delayed a value");
    }
}

#[test]
fn expired_value_is_gone_after_the_lifetime() {
    const LIFETIME: Duration = Duration::from_millis(300);
    let servers = three();
    let proxy = before(Mode::Pipelined, 1, &servers, LIFETIME);
    let mut client = proxy.client();
    let stored = Instant::now();
    client.expect("set a 0 1 1\r\nx\r\n", "STORED\r\n");
    loop {
        let begun = Instant::now();
        if client.ask_lines("get a\r\n").len() == 1 {
            break;
        }
        // memcached counts whole seconds.
        let most = Duration::from_secs(2) + LIFETIME + SLACK;
        assert!(begun - stored <= most, "found after {:?}", begun - stored);
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn flush_through_the_middleware_empties_the_cache() {
    let servers = three();
    for (mode, threads) in MODES {
        let proxy = before(mode, threads, &servers, LONG);
        let mut clients = [proxy.client(), proxy.client()];
        clients[0].expect("set a 0 0 1\r\nx\r\n", "STORED\r\n");
        for client in &mut clients {
            client.expect("get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n");
        }
        clients[1].expect("flush_all noreply\r\nget a\r\n", "END\r\n");
        clients[0].expect("get a\r\n", "END\r\n");
    }
}

#[test]
fn cache_answers_while_its_server_is_down() {
    for (mode, threads) in MODES {
        let mut servers = [Memcached::start(&[])];
        let proxy = before(mode, threads, &servers, LONG);
        let mut client = proxy.client();
        client.expect("set a 0 0 1\r\nx\r\n", "STORED\r\n");
        client.expect("get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n");
        servers[0].kill();
        client.expect("get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n");
        // A part of the answer is no answer.
        for request in ["get b\r\n", "get a b\r\n", "set a 0 0 1\r\ny\r\n", "get a\r\n"] {
            let line = client.ask(request);
            assert!(line.starts_with("SERVER_ERROR "), "{line} to {request:?}");
        }
        // The failed write has removed the value, and has ended.
        servers[0].restart();
        wait_until("the server is in", || client.ask("set a 0 0 1\r\nz\r\n") == "STORED");
        for _ in 0..2 {
            client.expect("get a\r\n", "VALUE a 0 1\r\nz\r\nEND\r\n");
        }
        assert_eq!(asked(&servers), 1);
    }
}

#[test]
fn unread_answers_of_the_cache_wait_for_their_client() {
    let servers = three();
    for (mode, threads) in MODES {
        let proxy = before(mode, threads, &servers[..1], LONG);
        let mut client = proxy.client();
        let value = format!("VALUE a 0 10000\r\n{:x>10000}\r\nEND\r\n", "");
        client.expect(&format!("set a 0 0 10000\r\n{:x>10000}\r\n", ""), "STORED\r\n");
        client.expect("get a\r\n", &value);
        // 20 MB of answers to 14 kB of requests, between requests that the server answers.
        let requests = "get a\r\n".repeat(2000);
        client.send(&format!("{requests}get none\r\n{requests}"));
        for _ in 0..2000 {
            client.expect("", &value);
        }
        client.expect("", "END\r\n");
        for _ in 0..2000 {
            client.expect("", &value);
        }
    }
}
