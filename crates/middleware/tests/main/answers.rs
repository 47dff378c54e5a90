//! Servers with wrong answers: no client gets the answer to another client's request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::support::{Client, MODES, Proxy, impatient, impostor};
use knee_testkit::{Memcached, wait_until};

/// The reaction of a server to a request with the word `lie` in its key.
#[derive(Debug, Clone, Copy)]
enum Lie {
    Twice,
    Never,
    OtherKey,
    OtherOpaque,
    OtherForm,
}

const LIES: [Lie; 5] = [Lie::Twice, Lie::Never, Lie::OtherKey, Lie::OtherOpaque, Lie::OtherForm];

/// A server with a value for every key; the value names its key.
fn liar(lie: Lie) -> SocketAddr {
    impostor(move |stream| {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let value_bytes = match words[0] {
                "set" => words[4].parse().unwrap(),
                "ms" => words[2].parse().unwrap(),
                _ => 0,
            };
            if value_bytes > 0 {
                reader.read_exact(&mut vec![0; value_bytes + 2]).unwrap();
            }
            let answer = match (lie, words[1].starts_with("lie")) {
                (_, false) => answer(&words, words[1]),
                (Lie::Twice, true) => answer(&words, words[1]).repeat(2),
                (Lie::Never, true) => String::new(),
                (Lie::OtherKey, true) => answer(&words, "other"),
                (Lie::OtherOpaque, true) => answer(&words, words[1]).replacen(" O", " O9", 1),
                (Lie::OtherForm, true) => "OK\r\n".to_owned(),
            };
            if reader.get_mut().write_all(answer.as_bytes()).is_err() {
                return;
            }
            line.clear();
        }
    })
}

fn answer(words: &[&str], key: &str) -> String {
    let opaque = words.iter().skip(2).find(|word| word.starts_with('O'));
    let opaque = opaque.map_or(String::new(), |word| format!(" {word}"));
    let value = format!("of {key}");
    match words[0] {
        "get" => format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len()),
        "mg" => format!("VA {}{opaque}\r\n{value}\r\n", value.len()),
        "ms" | "md" => format!("HD{opaque}\r\n"),
        "set" => "STORED\r\n".to_owned(),
        "delete" => "DELETED\r\n".to_owned(),
        _ => "ERROR\r\n".to_owned(),
    }
}

#[test]
fn lying_server_gives_no_client_an_answer_of_another() {
    let requests =
        ["get lie\r\n", "mg lie v\r\n", "ms lie 1 Ox\r\nx\r\n", "md lie\r\n", "delete lie\r\n"];
    for (mode, threads) in MODES {
        for lie in LIES {
            let servers = [liar(lie)];
            let proxy = Proxy::start(&impatient(mode, threads, &servers));
            let served = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                // The victims also stop when this thread fails.
                let running = Arc::new(());
                for name in 0..3 {
                    let (client, served) = (proxy.client(), &served);
                    let running = Arc::downgrade(&running);
                    scope.spawn(move || victim(name, client, &running, served));
                }
                for request in requests {
                    let mut attacker = TcpStream::connect(proxy.address).unwrap();
                    attacker.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
                    attacker.write_all(request.as_bytes()).unwrap();
                    let _ = attacker.read(&mut [0; 4096]);
                }
                let before = served.load(Ordering::Relaxed);
                wait_until("victims are served", || served.load(Ordering::Relaxed) > before);
            });
        }
    }
}

/// A client that reads its own keys. It also accepts errors.
fn victim(name: usize, mut client: Client, running: &Weak<()>, served: &AtomicUsize) {
    let key = format!("victim{name}");
    let rows = [
        (
            format!("get {key}\r\n"),
            vec![format!("VALUE {key} 0 10"), format!("of {key}"), "END".into()],
        ),
        (
            format!("mg {key} v Omine{name}\r\n"),
            vec![format!("VA 10 Omine{name}"), format!("of {key}")],
        ),
        (format!("mg {key} v\r\n"), vec!["VA 10".into(), format!("of {key}")]),
        (format!("ms {key} 1 Oset{name}\r\nx\r\n"), vec![format!("HD Oset{name}")]),
        (format!("set {key} 0 0 1\r\nx\r\n"), vec!["STORED".into()]),
    ];
    while running.strong_count() > 0 {
        for (request, lines) in &rows {
            let first = client.ask(request);
            if first.starts_with("SERVER_ERROR server") {
                // The connection was closed; the middleware reconnects soon.
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            assert_eq!(&first, &lines[0], "to {request:?}");
            for line in &lines[1..] {
                assert_eq!(&client.line(), line, "to {request:?}");
            }
            served.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn unfit_answer_closes_the_connection() {
    // (request, answer of the server)
    let rows = [
        ("get a\r\n", "VALUE b 0 1\r\nx\r\nEND\r\n"),
        ("get a\r\n", "VALUE a 0 1 7\r\nx\r\nEND\r\n"),
        ("get a b\r\n", "VALUE b 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
        ("gets a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"),
        ("set a 0 0 1\r\nx\r\n", "DELETED\r\n"),
        ("delete a\r\n", "STORED\r\n"),
        ("incr a 1\r\n", "STORED\r\n"),
        ("touch a 1\r\n", "7\r\n"),
        ("flush_all\r\n", "DELETED\r\n"),
        ("mg a v\r\n", "VA 1\r\nx\r\n"),
        ("mg a v Omine\r\n", "VA 1 Omine\r\nx\r\n"),
        ("me a\r\n", "ME b size=1\r\n"),
    ];
    for (mode, threads) in MODES {
        for (request, answer) in rows {
            let server = impostor(|mut stream| {
                let mut bytes = [0; 1024];
                if stream.read(&mut bytes).is_ok_and(|read| read > 0) {
                    stream.write_all(answer.as_bytes()).unwrap();
                    // The middleware closed the connection.
                    assert!(!stream.read(&mut bytes).is_ok_and(|read| read > 0));
                }
            });
            let proxy = Proxy::start(&impatient(mode, threads, &[server]));
            let got = proxy.client().ask(request);
            assert!(got.starts_with("SERVER_ERROR server"), "{request:?}: {got:?}");
        }
    }
}

#[test]
fn debug_answer_with_a_binary_key_fits() {
    // memcached answers in base64, even if the request was not.
    let server = Memcached::start(&[]);
    for (mode, threads) in MODES {
        let proxy = Proxy::start(&impatient(mode, threads, &[server.address]));
        let mut client = proxy.client();
        assert_eq!(client.ask("ms azE= 1 b\r\nx\r\n"), "HD");
        let debug = client.ask("me k1\r\n");
        assert!(debug.starts_with("ME azE= "), "{debug:?}");
        assert_eq!(client.ask("mn\r\n"), "MN");
    }
}

#[test]
fn refused_value_closes_the_connection() {
    for (mode, threads) in MODES {
        // A server that refuses the line of a `set` and reads its value as a command.
        let server = impostor(|mut stream| {
            let mut bytes = [0; 1024];
            while stream.read(&mut bytes).is_ok_and(|read| read > 0) {
                let refusal = b"CLIENT_ERROR bad line\r\nERROR\r\n";
                let answer = if bytes.starts_with(b"set") { &refusal[..] } else { b"DELETED\r\n" };
                if stream.write_all(answer).is_err() {
                    return;
                }
            }
        });
        let proxy = Proxy::start(&impatient(mode, threads, &[server]));
        let mut client = proxy.client();
        assert_eq!(client.ask("set a 0 0 1\r\nx\r\n"), "CLIENT_ERROR bad line");
        wait_until("it is deleted", || {
            let answer = client.ask("delete a\r\n");
            assert!(answer.starts_with("SERVER_ERROR server") || answer == "DELETED", "{answer}");
            answer == "DELETED"
        });
    }
}
