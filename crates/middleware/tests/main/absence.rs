//! Servers that are out for a while: writes go on, and no read is stale once they are back.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{Client, MODES, Proxy, addresses, config, impatient, impostor, three};
use knee_middleware::{Config, Mode, WriteQuorum};
use knee_testkit::{Memcached, wait_until};

/// A short time limit that a busy machine keeps nevertheless: a server is out after twice the time.
fn brisk(mode: Mode, threads: usize, servers: &[SocketAddr]) -> Config {
    Config { server_timeout: Duration::from_secs(1), ..config(mode, threads, servers) }
}

/// Stops a server; the drop lets it continue.
struct Stopped<'a>(&'a Memcached);

impl<'a> Stopped<'a> {
    fn new(server: &'a Memcached) -> Stopped<'a> {
        server.signal(libc::SIGSTOP);
        Stopped(server)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.signal(libc::SIGCONT);
    }
}

/// Reads through the middleware until this server has answered a read.
fn wait_for_reads(client: &mut Client, server: &Memcached) {
    let before = server.stats()["cmd_get"];
    wait_until("the server is read from", || {
        client.expect("get nothing\r\n", "END\r\n");
        server.stats()["cmd_get"] > before
    });
}

#[test]
fn writes_need_the_quorum_of_servers() {
    // (servers, of them down, quorum, whether writes work)
    let rows = [
        (3, 1, WriteQuorum::Majority, true),
        (3, 2, WriteQuorum::Majority, false),
        (2, 1, WriteQuorum::Majority, true),
        (3, 1, WriteQuorum::All, false),
        (3, 2, WriteQuorum::One, true),
        (3, 3, WriteQuorum::One, false),
        (1, 1, WriteQuorum::Majority, false),
    ];
    // One thread has no worker slot.
    for (mode, threads) in [(Mode::Workers(1), 2), (Mode::Pipelined, 2)] {
        for (count, down, write_quorum, works) in rows {
            let mut servers: Vec<Memcached> = (0..count).map(|_| Memcached::start(&[])).collect();
            let settings = config(mode, threads, &addresses(&servers));
            let proxy = Proxy::start(&Config { write_quorum, ..settings });
            let mut clients: Vec<Client> = (0..4).map(|_| proxy.client()).collect();
            for client in &mut clients {
                client.expect("set a 0 0 1\r\nx\r\n", "STORED\r\n");
            }
            servers[..down].iter_mut().for_each(Memcached::kill);
            // The first write may meet connections that are about to fail.
            clients[0].ask("set a 0 0 1\r\nx\r\n");
            for client in &mut clients {
                for request in ["set a 0 0 1\r\nx\r\n", "ms a 1\r\nx\r\n", "touch a 0\r\n"] {
                    let answer = client.ask(request);
                    let worked = !answer.starts_with("SERVER_ERROR");
                    let row = format!("{down} of {count} with {write_quorum:?}: {answer}");
                    assert_eq!(worked, works, "{row}");
                    assert!(
                        works || answer.contains("is down") || answer.contains("is up"),
                        "{row}"
                    );
                }
            }
        }
    }
}

/// A stopped server keeps its data, and requests that it has received; it executes them when it continues.
#[test]
fn stopped_server_serves_nothing_old_when_it_continues() {
    // (write before the absence, write in the absence with its answer, key)
    let rows = [
        ("set a 0 0 1\r\n1\r\n", "set a 0 0 1\r\n2\r\n", "STORED", "a"),
        ("set b 0 0 1\r\n1\r\n", "incr b 1\r\n", "2", "b"),
        ("set c 0 0 1\r\n1\r\n", "append c 0 0 1\r\n2\r\n", "STORED", "c"),
        ("set d 0 0 1\r\n1\r\n", "delete d\r\n", "DELETED", "d"),
        ("set e 0 0 1\r\n1\r\n", "touch e -1\r\n", "TOUCHED", "e"),
        ("set f 0 0 1\r\n1\r\n", "ms f 1\r\n2\r\n", "HD", "f"),
        ("set g 0 0 1\r\n1\r\n", "ms Zw== 1 b\r\n2\r\n", "HD", "g"),
        ("set h 0 0 1\r\n1\r\n", "md h\r\n", "HD", "h"),
        ("set i 0 0 1\r\n1\r\n", "ma i\r\n", "HD", "i"),
        ("set j 0 0 1\r\n1\r\n", "mg j T-1\r\n", "HD", "j"),
        ("delete k\r\n", "add k 0 0 1\r\n2\r\n", "STORED", "k"),
    ];
    let servers = three();
    for (mode, threads) in [(Mode::Workers(3), 2), (Mode::Pipelined, 2)] {
        let proxy = Proxy::start(&brisk(mode, threads, &addresses(&servers)));
        let mut client = proxy.client();
        for (before, ..) in rows {
            client.ask(before);
        }
        client.expect("set kept 0 0 1\r\nx\r\nset cas 0 0 1\r\n1\r\n", "STORED\r\nSTORED\r\n");
        let stopped = Stopped::new(&servers[1]);
        for (_, write, answer, _) in rows {
            assert_eq!(client.ask(write), answer, "{write:?}");
        }
        // A token stands for the servers that are in.
        let (_, token) = client.gets("cas").unwrap();
        client.expect(&format!("cas cas 0 0 1 {token}\r\n2\r\n"), "STORED\r\n");
        client.expect(&format!("cas cas 0 0 1 {token}\r\n3\r\n"), "EXISTS\r\n");
        for (.., key) in rows {
            let get = format!("get {key}\r\n");
            let (first, second) = (client.ask_lines(&get), client.ask_lines(&get));
            assert_eq!(first, second, "{key}");
        }
        drop(stopped);
        // Without any request, also of the other thread's clients.
        let mut direct = Client::connect(servers[1].address);
        let keys = rows.map(|row| row.3).join(" ");
        wait_until("it has no missed key", || {
            direct.ask_lines(&format!("get {keys} cas\r\n")) == ["END"]
        });
        direct.expect("get kept\r\n", "VALUE kept 0 1\r\nx\r\nEND\r\n");
        wait_for_reads(&mut client, &servers[1]);
        client.expect("set a 0 0 1\r\n3\r\n", "STORED\r\n");
        direct.expect("get a\r\n", "VALUE a 0 1\r\n3\r\nEND\r\n");
    }
}

#[test]
fn write_that_no_server_answers_leaves_the_key_at_one() {
    for (mode, threads) in MODES {
        let servers = three();
        let proxy = Proxy::start(&brisk(mode, threads, &addresses(&servers)));
        let mut client = proxy.client();
        for value in ["x", "y"] {
            client.expect(&format!("set a 0 0 1\r\n{value}\r\n"), "STORED\r\n");
            let stopped = servers.each_ref().map(Stopped::new);
            let request = if value == "x" { "set a 0 0 1\r\nz\r\n" } else { "ms a 1 c\r\nz\r\n" };
            let answer = client.ask(request);
            assert!(answer.starts_with("SERVER_ERROR"), "{answer}");
            drop(stopped);
            wait_until("a server is in", || client.ask("get nothing\r\n").starts_with("END"));
            servers.iter().for_each(|server| wait_for_reads(&mut client, server));
            let has = |server: &&Memcached| {
                let mut direct = Client::connect(server.address);
                direct.gets("a").is_some_and(|(held, _)| held == value || held == "z")
            };
            assert_eq!(servers.iter().filter(has).count(), 1, "{mode:?}, {value}");
        }
    }
}

#[test]
fn missed_flush_is_made_up_for() {
    let servers = three();
    for (mode, threads) in [(Mode::Workers(3), 2), (Mode::Pipelined, 1)] {
        let proxy = Proxy::start(&brisk(mode, threads, &addresses(&servers)));
        let mut client = proxy.client();
        client.expect("set a 0 0 1\r\nx\r\n", "STORED\r\n");
        let stopped = Stopped::new(&servers[2]);
        client.expect("flush_all\r\n", "OK\r\n");
        drop(stopped);
        let mut direct = Client::connect(servers[2].address);
        wait_until("it is flushed", || direct.ask_lines("get a\r\n") == ["END"]);
        wait_for_reads(&mut client, &servers[2]);
    }
}

#[test]
fn each_server_is_out_and_in_again() {
    for (mode, threads) in MODES {
        let mut servers = three();
        let proxy = Proxy::before(mode, threads, &servers);
        let mut clients: Vec<Client> = (0..4).map(|_| proxy.client()).collect();
        for round in 0..6 {
            let server = &mut servers[round % 3];
            server.kill();
            for client in &mut clients {
                client.expect("set a 0 0 1\r\nx\r\n", "STORED\r\n");
            }
            server.restart();
            for client in &mut clients {
                wait_for_reads(client, &servers[round % 3]);
            }
            clients[0].expect("set a 0 0 1\r\nx\r\n", "STORED\r\n");
        }
    }
}

/// A server that answers `get` after this time, and other requests never.
fn slow(wait: Duration) -> SocketAddr {
    impostor(move |mut stream| {
        let mut request = [0; 1024];
        while let Ok(read) = stream.read(&mut request)
            && read > 0
        {
            if request.starts_with(b"get ") {
                std::thread::sleep(wait);
                let _ = stream.write_all(b"VALUE a 0 1\r\nx\r\nEND\r\n");
            }
        }
    })
}

#[test]
fn slow_answer_of_a_server_that_answers_a_probe_is_awaited() {
    for (mode, threads) in MODES {
        let server = slow(Duration::from_millis(800));
        let proxy = Proxy::start(&impatient(mode, threads, &[server]));
        proxy.client().expect("get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n");
    }
}

#[test]
fn read_of_a_slow_server_is_repeated_at_another() {
    for (mode, threads) in MODES {
        let good = Memcached::start(&[]);
        Client::connect(good.address).expect("set a 0 0 1\r\ny\r\n", "STORED\r\n");
        let never = slow(Duration::from_secs(3600));
        let proxy = Proxy::start(&impatient(mode, threads, &[never, good.address]));
        let mut client = proxy.client();
        for _ in 0..4 {
            client.expect("get a\r\n", "VALUE a 0 1\r\ny\r\nEND\r\n");
        }
    }
}

/// A store that executes its first `set` after this time, as if that connection's thread did not run. Returns its
/// address, and the number of its answers to `get`.
fn stalling(stall: Duration) -> (SocketAddr, Arc<AtomicU64>) {
    let (item, stalls) = (Mutex::new(None), AtomicBool::new(true));
    let reads = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&reads);
    let address = impostor(move |mut stream| {
        let mut request = [0; 1024];
        while let Ok(read) = stream.read(&mut request)
            && read > 0
        {
            let answer = match &request[..3] {
                b"set" => {
                    if stalls.swap(false, Ordering::SeqCst) {
                        std::thread::sleep(stall);
                    }
                    *item.lock().unwrap() = Some(request[read - 3]);
                    "STORED\r\n".to_owned()
                }
                b"del" => {
                    *item.lock().unwrap() = None;
                    "DELETED\r\n".to_owned()
                }
                _ => {
                    counted.fetch_add(1, Ordering::SeqCst);
                    let found = item.lock().unwrap().map(char::from);
                    found.map_or("END\r\n".to_owned(), |value| {
                        format!("VALUE a 0 1\r\n{value}\r\nEND\r\n")
                    })
                }
            };
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    (address, reads)
}

#[test]
fn server_returns_after_the_writes_of_its_old_connections() {
    const STALL: Duration = Duration::from_secs(4);
    for (mode, threads) in [(Mode::Workers(3), 2), (Mode::Pipelined, 1)] {
        let good = Memcached::start(&[]);
        let (server, reads) = stalling(STALL);
        let begun = Instant::now();
        let proxy = Proxy::start(&brisk(mode, threads, &[server, good.address]));
        let mut client = proxy.client();
        client.expect("set a 0 0 1\r\n1\r\n", "STORED\r\n");
        client.expect("set a 0 0 1\r\n2\r\n", "STORED\r\n");
        let before = reads.load(Ordering::SeqCst);
        wait_until("it is read from after its stall", || {
            let found = client.ask_lines("get a\r\n");
            assert!(found == ["END"] || found == ["VALUE a 0 1", "2", "END"], "{found:?}");
            begun.elapsed() > STALL && reads.load(Ordering::SeqCst) > before + 5
        });
    }
}
