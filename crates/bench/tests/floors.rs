//! The floors between real sockets: nothing lost, nothing swapped, nothing sent twice.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use knee_bench::relay::{Moved, Relay, RelayHandler};
use knee_bench::send::{Send, SendHandler, Sent};
use knee_reactor::{Config, Group, bind};

const REQUEST_BYTES: usize = 16;
const REPLY_BYTES: usize = 8;

/// Answers every request with its first bytes, and counts.
struct Echo {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
}

impl Echo {
    fn start() -> Echo {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let echo = Echo { address: listener.local_addr().unwrap(), requests: Arc::default() };
        let requests = Arc::clone(&echo.requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, requests) = (stream.unwrap(), Arc::clone(&requests));
                thread::spawn(move || {
                    let mut request = [0; REQUEST_BYTES];
                    while stream.read_exact(&mut request).is_ok() {
                        requests.fetch_add(1, Ordering::Relaxed);
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

#[test]
fn the_sender_counts_what_the_server_answered() {
    let server = Echo::start();
    let (report, reported) = mpsc::channel();
    let send = Send {
        server: server.address,
        connections: 4,
        depth: NonZeroUsize::new(3).unwrap(),
        request: request(1, 2),
        reply_bytes: NonZeroUsize::new(REPLY_BYTES).unwrap(),
        time: Duration::from_millis(100),
    };
    let group = Group::start("send", 1, &Config::default(), None, |_, _| {
        let report = report.clone();
        SendHandler::new(send.clone(), move |outcome| report.send(outcome).unwrap())
    })
    .unwrap();
    group.join().unwrap();
    let Sent { requests, time } = reported.recv().unwrap().unwrap();
    assert_eq!(requests, server.requests());
    assert!(requests >= 4 * 3 && requests % 3 == 0);
    assert!(time >= Duration::from_millis(100));
}
