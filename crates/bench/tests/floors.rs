//! The floors (minimal programs that only move bytes) over real sockets: they lose, swap and repeat no message.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::{NonZeroU64, NonZeroUsize};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use knee_bench::Moved;
use knee_bench::log::{LogHandler, Logged, REPLY};
use knee_bench::relay::{Relay, RelayHandler};
use knee_bench::send::{DIGITS, Draws, Send, SendHandler};
use knee_reactor::{Config, Group, bind};

const REQUEST_BYTES: usize = 16;
const REPLY_BYTES: usize = 8;

/// A server that answers each request with its first bytes. It counts the requests, and keeps the first ones.
struct Echo {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
    first: Arc<Mutex<Vec<[u8; REQUEST_BYTES]>>>,
}

const FIRST: u64 = 100;

impl Echo {
    fn start() -> Echo {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let echo = Echo { address, requests: Arc::default(), first: Arc::default() };
        let (requests, first) = (Arc::clone(&echo.requests), Arc::clone(&echo.first));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, requests) = (stream.unwrap(), Arc::clone(&requests));
                let first = Arc::clone(&first);
                thread::spawn(move || {
                    let mut request = [0; REQUEST_BYTES];
                    while stream.read_exact(&mut request).is_ok() {
                        if requests.fetch_add(1, Ordering::Relaxed) < FIRST {
                            first.lock().unwrap().push(request);
                        }
                        if stream.write_all(&request[..REPLY_BYTES]).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        echo
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

fn request(client: u32, number: u32) -> Vec<u8> {
    let mut request = Vec::new();
    request.extend_from_slice(&client.to_be_bytes());
    request.extend_from_slice(&number.to_be_bytes());
    request.resize(REQUEST_BYTES, b'.');
    request
}

/// Clients that send `volleys` of `depth` requests, cut into odd pieces, and check every reply.
fn converse(address: SocketAddr, clients: u32, volleys: u32, depth: u32) {
    thread::scope(|scope| {
        for client in 0..clients {
            scope.spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_nodelay(true).unwrap();
                for volley in 0..volleys {
                    let numbers = volley * depth..(volley + 1) * depth;
                    let bytes: Vec<u8> =
                        numbers.clone().flat_map(|number| request(client, number)).collect();
                    for piece in bytes.chunks(REQUEST_BYTES + 5) {
                        stream.write_all(piece).unwrap();
                    }
                    for number in numbers {
                        let mut reply = [0; REPLY_BYTES];
                        stream.read_exact(&mut reply).unwrap();
                        assert_eq!(reply, request(client, number)[..REPLY_BYTES]);
                    }
                }
            });
        }
    });
}

fn relay(servers: &[Echo], replicate: bool) -> Moved {
    let (report, reported) = mpsc::channel();
    let relay = Relay {
        servers: servers.iter().map(|server| server.address).collect(),
        request_bytes: NonZeroUsize::new(REQUEST_BYTES).unwrap(),
        reply_bytes: NonZeroUsize::new(REPLY_BYTES).unwrap(),
        replicate,
    };
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let group = Group::start("relay", 1, &Config::default(), Some(listener), |_, _| {
        let report = report.clone();
        RelayHandler::new(relay.clone(), move |outcome| report.send(outcome).unwrap())
    })
    .unwrap();
    converse(group.address().unwrap(), 5, 40, 7);
    group.shutdown().begin();
    group.join().unwrap();
    reported.recv().unwrap().unwrap()
}

#[test]
fn dealt_requests_are_answered_in_order_and_reach_every_server() {
    let servers = [Echo::start(), Echo::start(), Echo::start()];
    assert_eq!(relay(&servers, false).requests, 5 * 40 * 7);
    assert_eq!(servers.iter().map(Echo::requests).sum::<u64>(), 5 * 40 * 7);
    assert!(servers.iter().all(|server| server.requests() > 0));
}

#[test]
fn replicated_requests_reach_every_server_and_are_answered_once() {
    let servers = [Echo::start(), Echo::start(), Echo::start()];
    assert_eq!(relay(&servers, true).requests, 5 * 40 * 7);
    assert!(servers.iter().all(|server| server.requests() == 5 * 40 * 7));
}

#[test]
fn a_relay_that_loses_its_server_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (report, reported) = mpsc::channel();
    let relay = Relay {
        servers: vec![listener.local_addr().unwrap()],
        request_bytes: NonZeroUsize::MIN,
        reply_bytes: NonZeroUsize::MIN,
        replicate: false,
    };
    let group = Group::start("relay", 1, &Config::default(), None, |_, _| {
        let report = report.clone();
        RelayHandler::new(relay.clone(), move |outcome| report.send(outcome).unwrap())
    })
    .unwrap();
    drop(listener.accept().unwrap());
    group.join().unwrap();
    assert!(reported.recv().unwrap().unwrap_err().contains("lost a server"));
}

fn send(server: &Echo, draws: Option<Draws>) -> Moved {
    let (report, reported) = mpsc::channel();
    let send = Send {
        server: server.address,
        connections: 4,
        depth: NonZeroUsize::new(3).unwrap(),
        request: request(1, 2),
        draws,
        reply_bytes: NonZeroUsize::new(REPLY_BYTES).unwrap(),
        time: Duration::from_millis(100),
    };
    let group = Group::start("send", 1, &Config::default(), None, |_, _| {
        let report = report.clone();
        SendHandler::new(send.clone(), move |outcome| report.send(outcome).unwrap())
    })
    .unwrap();
    group.join().unwrap();
    reported.recv().unwrap().unwrap()
}

#[test]
fn the_sender_counts_what_the_server_answered() {
    let server = Echo::start();
    let Moved { requests, time } = send(&server, None);
    assert_eq!(requests, server.requests());
    assert!(requests >= 4 * 3 && requests % 3 == 0);
    assert!(time >= Duration::from_millis(100));
    assert!(server.first.lock().unwrap().iter().all(|sent| sent[..] == request(1, 2)));
}

#[test]
fn the_sender_draws_the_number_in_each_request() {
    let server = Echo::start();
    send(&server, Some(Draws { at: 4, below: NonZeroU64::new(1000).unwrap() }));
    let first = server.first.lock().unwrap();
    let drawn: BTreeSet<u64> = first
        .iter()
        .map(|sent| {
            assert_eq!(sent[..4], request(1, 2)[..4]);
            assert_eq!(sent[4 + DIGITS..], request(1, 2)[4 + DIGITS..]);
            str::from_utf8(&sent[4..4 + DIGITS]).unwrap().parse().unwrap()
        })
        .collect();
    assert!(*drawn.last().unwrap() < 1000);
    // Twelve uniform draws from a thousand numbers have at least 6 distinct values. The chance of fewer is 10^-9.
    assert!(first.len() >= 12 && drawn.len() >= 6, "{drawn:?}");
}

/// A log in an unlinked file, and the file.
fn log(file_bytes: usize, reports: Sender<Logged>) -> (Group, File) {
    let path = std::env::temp_dir().join(format!(
        "knee-floor-{}-{:?}",
        std::process::id(),
        thread::current().id()
    ));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    let size = NonZeroUsize::new(REQUEST_BYTES).unwrap();
    let report = move |outcome: Result<Logged, String>| reports.send(outcome.unwrap()).unwrap();
    let log = LogHandler::new(file.try_clone().unwrap(), file_bytes as u64, size, report);
    let (mut log, listener) = (Some(log.unwrap()), bind("127.0.0.1:0".parse().unwrap()).unwrap());
    let group =
        Group::start("log", 1, &Config::default(), Some(listener), |_, _| log.take().unwrap());
    (group.unwrap(), file)
}

/// Sends a request and waits for the answer.
fn put(stream: &mut TcpStream, request: &[u8]) {
    stream.write_all(request).unwrap();
    let mut reply = [0; REPLY.len()];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply, REPLY);
}

fn records(file: &File, bytes: usize) -> Vec<Vec<u8>> {
    let mut logged = vec![0; bytes];
    file.read_exact_at(&mut logged, 0).unwrap();
    logged.chunks(REQUEST_BYTES).map(<[u8]>::to_vec).collect()
}

#[test]
fn what_the_log_has_answered_is_in_its_file() {
    const CLIENTS: u32 = 4;
    const REQUESTS: u32 = 50;
    const BYTES: usize = (CLIENTS * REQUESTS) as usize * REQUEST_BYTES;
    let (report, reported) = mpsc::channel();
    let (group, file) = log(BYTES, report);
    let address = group.address().unwrap();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let file = &file;
            scope.spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                for number in 0..REQUESTS {
                    put(&mut stream, &request(client, number));
                    assert!(records(file, BYTES).contains(&request(client, number)));
                }
            });
        }
    });
    group.shutdown().begin();
    group.join().unwrap();
    let Logged { records, commits, .. } = reported.recv().unwrap();
    assert_eq!(records, u64::from(CLIENTS * REQUESTS));
    // Each client waits for its answer, so a commit has at most one request of each client.
    assert!((u64::from(REQUESTS)..=records).contains(&commits), "{commits} commits");
}

#[test]
fn a_full_log_goes_on_at_its_beginning() {
    let (report, _reported) = mpsc::channel();
    let (group, file) = log(3 * REQUEST_BYTES, report);
    let mut stream = TcpStream::connect(group.address().unwrap()).unwrap();
    for number in 1..=4 {
        put(&mut stream, &request(0, number));
    }
    assert_eq!(records(&file, 3 * REQUEST_BYTES), [4, 2, 3].map(|number| request(0, number)));
    group.shutdown().begin();
    group.join().unwrap();
}
