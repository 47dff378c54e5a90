//! Lines that versions of memcached read differently, and HTTP requests.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::support::{Client, MODES, Proxy, addresses, config, three};
use knee_middleware::{Config, Mode};
use knee_proto::Limits;
use knee_testkit::{Memcached, soak};

/// A server that records requests and answers each with one line. Every request arrives in one piece.
fn recording_server() -> (std::net::SocketAddr, std::sync::mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (record, recorded) = channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut bytes) {
            let answer: &[u8] = match &bytes[..read] {
                b"version\r\n" => b"VERSION 1.6.18\r\n",
                [b'g', ..] => b"END\r\n",
                [b'm', ..] => b"HD O1\r\n",
                _ => b"STORED\r\n",
            };
            if !bytes.starts_with(b"version") && record.send(bytes[..read].to_vec()).is_err() {
                return;
            }
            stream.write_all(answer).unwrap();
        }
    });
    (address, recorded)
}

#[test]
fn servers_get_canonical_requests_only() {
    // (what a client sends, what the server gets)
    let rows: [(&str, Option<&str>); 16] = [
        (" get noreply\r\n", Some("get noreply\r\n")),
        (" set k 0 0 5\r\nhello\r\n", Some("set k 0 0 5\r\nhello\r\n")),
        ("set k 0 0 +5\r\nhello\r\n", Some("set k 0 0 5\r\nhello\r\n")),
        ("ms k +5\r\nhello\r\n", Some("ms k 5 O1\r\nhello\r\n")),
        ("set  k 007 -1 5  \r\nhello\r\n", Some("set k 7 -1 5\r\nhello\r\n")),
        ("mg k  q v\r\nmn\r\n", Some("mg k v O1\r\n")),
        ("mg a\0 q\r\n", None),
        ("get a\0b\r\n", None),
        ("delete k\0 noreply\r\n", None),
        ("set k 0 0 1\0 noreply\r\nx\r\n", None),
        ("set k 0 0 5\r\r\nhello\r\n", None),
        ("set k 0 0 1\r\r\nx\r\n", None),
        ("ms k 5\r\r\nhello\r\n", None),
        ("get a\tb\r\n", None),
        // memaslap uses such keys.
        ("get a\x10b\r\n", Some("get a\x10b\r\n")),
        ("delete noreply\r\n", None),
    ];
    for (sent, forwarded) in rows {
        let (address, recorded) = recording_server();
        let proxy = Proxy::start(&config(Mode::Pipelined, 1, &[address]));
        let answer = proxy.client().ask(sent);
        let refused = answer.starts_with("CLIENT_ERROR bad command line format");
        assert_eq!(refused, forwarded.is_none(), "{sent:?}: {answer:?}");
        if let Some(forwarded) = forwarded {
            let got = recorded.recv_timeout(Duration::from_secs(15)).unwrap();
            assert_eq!(String::from_utf8_lossy(&got), forwarded, "{sent:?}");
        }
        assert!(recorded.try_recv().is_err(), "{sent:?} reached the server");
    }
}

/// Base64 of `\r\nVALUE v0 0 9\r\nEVILEVIL!\r\nEND\r\n`.
const EVIL: &str = "DQpWQUxVRSB2MCAwIDkNCkVWSUxFVklMIQ0KRU5EDQo=";

/// A middleware with short values.
fn limited(mode: Mode, threads: usize, servers: &[Memcached]) -> Proxy {
    let limits = Limits { value_bytes_max: 16, ..Limits::default() };
    Proxy::start(&Config { limits, ..config(mode, threads, &addresses(servers)) })
}

#[test]
fn answers_with_line_ends_in_keys_reach_no_other_client() {
    const BAD_LINE: &str = "CLIENT_ERROR bad command line format\r\n";
    for (mode, threads) in MODES {
        let server = [Memcached::start(&[])];
        let proxy = limited(mode, threads, &server);
        let (mut attacker, mut victim) = (proxy.client(), proxy.client());
        victim.expect("set v0 0 0 4\r\nGOOD\r\n", "STORED\r\n");
        attacker.expect(&format!("mg {EVIL} N300 b\r\n"), "HD W\r\n");
        for line in ["me", "mg", "ms", "md", "ma"] {
            let (bytes, value) = if line == "ms" { (" 1", "x\r\n") } else { ("", "") };
            let flags = if line == "me" { " b" } else { " k b" };
            attacker.expect(&format!("{line} {EVIL}{bytes}{flags}\r\n{value}"), BAD_LINE);
        }
        victim.expect("get v0\r\n", "VALUE v0 0 4\r\nGOOD\r\nEND\r\n");
        // Other answers show no keys, and keys with blanks may be shown.
        attacker.expect(&format!("md {EVIL} b\r\n"), "HD\r\n");
        attacker.expect("ms YSBi 1 b k\r\nx\r\n", "HD kYSBi b\r\n");
    }
}

#[test]
fn stats_with_open_ends_are_not_forwarded() {
    for (mode, threads) in MODES {
        let server = [Memcached::start(&[])];
        let proxy = Proxy::before(mode, threads, &server);
        let (mut attacker, mut victim) = (proxy.client(), proxy.client());
        victim.expect("set v0 0 0 4\r\nGOOD\r\n", "STORED\r\n");
        for args in ["sizes_enable", "sizes_disable", "cachedump 1 1", "detail dump", "noreply"] {
            let answer = if args.starts_with("cachedump") { "END\r\n" } else { "ERROR\r\n" };
            attacker.expect(&format!("stats {args}\r\n"), answer);
            victim.expect("get v0\r\n", "VALUE v0 0 4\r\nGOOD\r\nEND\r\n");
        }
        attacker.expect("stats reset\r\n", "RESET\r\n");
        for args in ["", "settings", "items", "slabs", "sizes", "conns"] {
            assert!(attacker.ask(&format!("stats {args}\r\n")).starts_with("STAT "), "{args}");
            while attacker.line() != "END" {}
        }
    }
}

#[test]
fn refused_large_value_deletes_exactly_its_key() {
    for (mode, threads) in MODES {
        for servers in [vec![Memcached::start(&[])], three().into()] {
            let proxy = limited(mode, threads, &servers);
            let (mut client, mut victim) = (proxy.client(), proxy.client());
            victim.expect("set v0 0 0 4\r\nGOOD\r\n", "STORED\r\n");
            // They decode to `a noreply`, `v0 0`, and a NUL with another byte; `v1` is as sent.
            for (key, b) in [("YSBub3JlcGx5", " b"), ("djAgMA==", " b"), ("AAE=", " b"), ("v1", "")]
            {
                client.expect(&format!("ms {key} 3{b}\r\nold\r\n"), "HD\r\n");
                let value = "x".repeat(20);
                let answer = "SERVER_ERROR object too large for cache\r\n";
                client.expect(&format!("ms {key} 20{b}\r\n{value}\r\n"), answer);
                client.expect(&format!("mg {key} v{b}\r\n"), "EN\r\n");
                victim.expect("get v0\r\n", "VALUE v0 0 4\r\nGOOD\r\nEND\r\n");
            }
        }
    }
}

/// Lines to spoil, without `flush_all`, which would remove the victims' values.
const LINES: [&str; 29] = [
    "get k\r\n",
    "get k noreply\r\n",
    "gets k j\r\n",
    "gat 0 k\r\n",
    "set k 0 0 5\r\nhello\r\n",
    "set k 0 0 1 noreply\r\nx\r\n",
    "cas k 0 0 1 7\r\nx\r\n",
    "append k 0 0 1\r\nx\r\n",
    "delete k noreply\r\n",
    "incr k 1\r\n",
    "touch k 0 noreply\r\n",
    "verbosity 0\r\n",
    "mg k v q\r\n",
    "ms k 5 q\r\nhello\r\n",
    "md k q\r\n",
    "ma k N0 J1 q\r\n",
    "mg EVIL N0 b\r\n",
    "ma EVIL N0 b v\r\n",
    "ms EVIL 1 b\r\nx\r\n",
    "me EVIL b\r\n",
    "mg EVIL k b Ox\r\n",
    "me k\r\n",
    "mg YSBi N0 b k v\r\n",
    "ms YSBub3JlcGx5 20 b\r\nxxxxxxxxxxxxxxxxxxxx\r\n",
    "ms djAgMA== 20 b\r\nxxxxxxxxxxxxxxxxxxxx\r\n",
    "ms AAE= 20 b\r\nxxxxxxxxxxxxxxxxxxxx\r\n",
    "stats\r\n",
    "stats sizes\r\n",
    "stats detail dump\r\n",
];

/// Oddities that are inserted at random places.
const ODD: [&str; 14] = [
    "\0", "\r", "\t", "\x0b", "\x0c", "\x10", "\x7f", " ", "  ", "+", "-", "noreply", " noreply",
    "0",
];

/// Other lines that memcached 1.6.18 and 1.6.45 read differently, or answer with other frames than asked for.
const KNOWN: [&str; 18] = [
    "mg a\0 q\r\n",
    "delete k\0 noreply\r\n",
    "set k 0 0 1\0 noreply\r\nx\r\n",
    "delete noreply\r\n",
    " get noreply\r\n",
    " set k 0 0 5\r\nhello\r\n",
    "set k 0 0 5\r\r\nhello\r\n",
    "set k 0 0 1\r\r\nx\r\n",
    "ms k 5\r\r\nhello\r\n",
    "ms k 5\r\r\n",
    "set k 0 0 +5\r\nhello\r\n",
    "ms k +5\r\nhello\r\n",
    "mg EVIL N0 b\r\nme EVIL b\r\n",
    "mg EVIL N0 b\r\nmg EVIL Ox b k\r\n",
    "stats sizes_enable\r\n",
    "stats sizes_disable\r\n",
    "stats detail on\r\nget k\r\nstats detail dump\r\n",
    "stats cachedump 1 9\r\n",
];

/// Random numbers from a seed (xorshift64, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    /// A line with one to three oddities before its end.
    fn odd_line(&mut self) -> String {
        if self.below(3) == 0 {
            return KNOWN[self.below(KNOWN.len())].replace("EVIL", EVIL);
        }
        let mut line = LINES[self.below(LINES.len())].replace("EVIL", EVIL);
        for _ in 0..=self.below(3) {
            let end = line.find("\r\n").unwrap();
            line.insert_str(self.below(end + 1), ODD[self.below(ODD.len())]);
        }
        line
    }
}

/// `KNEE_SOAK` multiplies the number of lines; `KNEE_MEMCACHED` names another memcached.
#[test]
fn odd_lines_shift_no_answer_of_another_client() {
    let soak = soak();
    for (mode, threads) in MODES {
        for count in [1, 2] {
            let servers: Vec<_> = (0..count).map(|_| Memcached::start(&[])).collect();
            let proxy = limited(mode, threads, &servers);
            std::thread::scope(|scope| {
                let (address, running) = (proxy.address, Arc::new(()));
                for name in 0..3 {
                    let running = Arc::downgrade(&running);
                    scope.spawn(move || victim(name, &mut Client::connect(address), &running));
                }
                let attack = scope.spawn(move || {
                    // The victims also stop when this thread fails.
                    let _running = running;
                    let mut random = Random(u64::from(soak) + 88_172_645_463_325_252);
                    for _ in 0..15 * soak {
                        let lines: String = (0..8).map(|_| random.odd_line()).collect();
                        let mut attacker = TcpStream::connect(address).unwrap();
                        attacker.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
                        attacker.write_all(lines.as_bytes()).unwrap();
                        let _ = attacker.read(&mut [0; 4096]);
                    }
                });
                attack.join().unwrap();
            });
        }
    }
}

/// Writes and reads values that only this client can have written, while the attack is `running`.
fn victim(name: usize, client: &mut Client, running: &Weak<()>) {
    for number in 0.. {
        if running.strong_count() == 0 {
            return;
        }
        let value = format!("{name}.{number:07}");
        client.expect(&format!("set v{name} 0 0 9\r\n{value}\r\n"), "STORED\r\n");
        let got = format!("VALUE v{name} 0 9\r\n{value}\r\nEND\r\n");
        client.expect(&format!("get v{name}\r\n"), &got);
        client.expect(&format!("mg v{name} k v\r\n"), &format!("VA 9 kv{name}\r\n{value}\r\n"));
        client.expect(&format!("mg none{name} v\r\n"), "EN\r\n");
    }
}

#[test]
fn http_request_closes_its_connection() {
    let server = Memcached::start(&[]);
    let proxy = Proxy::start(&config(Mode::Pipelined, 1, &[server.address]));
    for method in ["GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"] {
        let mut client = TcpStream::connect(proxy.address).unwrap();
        let request = format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\nset http 0 0 1\r\nx\r\n");
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // The proxy resets the connection if bytes of the request are unread.
        let _ = client.read_to_end(&mut answer);
        assert_eq!(answer, b"", "{method}");
    }
    assert_eq!(proxy.client().ask("get http\r\n"), "END");
}
