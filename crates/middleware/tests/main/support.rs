//! Real servers, a middleware in front of them, and clients that speak bytes.

use std::io::{BufRead, BufReader, Read, Write, sink};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use knee_middleware::{Config, Mode, Running, ServerAddress, WriteQuorum, start};
use knee_proto::Limits;
use knee_telemetry::{Middleware, Reporter, Stats};
use knee_testkit::{Memcached, PATIENCE};

/// Modes and numbers of threads. The middleware behaves the same in all of them.
pub(crate) const MODES: [(Mode, usize); 4] =
    [(Mode::Workers(3), 1), (Mode::Workers(3), 2), (Mode::Pipelined, 1), (Mode::Pipelined, 2)];

/// Three memcacheds.
pub(crate) fn three() -> [Memcached; 3] {
    std::array::from_fn(|_| Memcached::start(&[]))
}

pub(crate) fn config(mode: Mode, threads: usize, servers: &[SocketAddr]) -> Config {
    Config {
        servers: servers
            .iter()
            .map(|&address| ServerAddress { name: address.to_string(), address })
            .collect(),
        mode,
        threads,
        sharded: false,
        batch_max: None,
        cache: None,
        connections_max: 2000,
        idle_timeout: None,
        buffered_bytes_max: 256 << 20,
        exit_idle: None,
        write_quorum: WriteQuorum::Majority,
        missed_bytes_max: 1 << 20,
        // Long enough for a busy machine.
        server_timeout: PATIENCE,
        limits: Limits::default(),
        reply_bytes_max: 16 << 20,
        trace: false,
    }
}

/// Like [`config`], with a short time limit for a server's answer.
pub(crate) fn impatient(mode: Mode, threads: usize, servers: &[SocketAddr]) -> Config {
    Config { server_timeout: Duration::from_millis(500), ..config(mode, threads, servers) }
}

pub(crate) fn addresses(servers: &[Memcached]) -> Vec<SocketAddr> {
    servers.iter().map(|server| server.address).collect()
}

/// A server that answers `version`, and then behaves as given.
pub(crate) fn impostor(behave: impl Fn(TcpStream) + Send + Sync + 'static) -> std::net::SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let behave = std::sync::Arc::new(behave);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, behave) = (stream.unwrap(), std::sync::Arc::clone(&behave));
            std::thread::spawn(move || {
                let mut request = [0; 9];
                if stream.read_exact(&mut request).is_ok()
                    && stream.write_all(b"VERSION 0\r\n").is_ok()
                {
                    behave(stream);
                }
            });
        }
    });
    address
}

/// A middleware in this process; the drop ends it.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    running: Option<Running>,
    reporting: Option<knee_telemetry::Running<Middleware>>,
}

impl Proxy {
    pub(crate) fn start(config: &Config) -> Proxy {
        let listener = knee_reactor::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let mut reporter = Reporter::to_sink("knee-proxy", Stats::None, Box::new(sink()));
        let running = start(config, listener, &mut reporter).unwrap();
        let reporting = reporter.start().unwrap();
        Proxy {
            address: running.address().unwrap(),
            running: Some(running),
            reporting: Some(reporting),
        }
    }

    pub(crate) fn before(mode: Mode, threads: usize, servers: &[Memcached]) -> Proxy {
        Proxy::start(&config(mode, threads, &addresses(servers)))
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Ends the middleware like SIGTERM, and waits for the end.
    pub(crate) fn stop(mut self) {
        self.end();
    }

    /// Waits until the middleware ends by itself.
    pub(crate) fn join(mut self) {
        if let (Some(running), Some(reporting)) = (self.running.take(), self.reporting.take()) {
            running.join().unwrap();
            reporting.finish(|_| ());
        }
    }

    fn end(&mut self) {
        if let (Some(running), Some(reporting)) = (self.running.take(), self.reporting.take()) {
            running.shutdown().begin();
            running.join().unwrap();
            reporting.finish(|_| ());
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

pub(crate) struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { reader: BufReader::new(stream) }
    }

    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        self.reader.get_mut()
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.stream().write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end_matches(['\r', '\n']).to_owned()
    }

    /// Sends a request; returns the single line of its answer.
    pub(crate) fn ask(&mut self, text: &str) -> String {
        self.send(text);
        self.line()
    }

    /// Sends a request; returns the lines of its answer up to `END`.
    pub(crate) fn ask_lines(&mut self, text: &str) -> Vec<String> {
        let mut lines = vec![self.ask(text)];
        while lines.last().is_some_and(|line| !line.is_empty() && line != "END") {
            lines.push(self.line());
        }
        lines
    }

    /// Sends, and checks the exact bytes of the answer. An answer that differs does not wait for the missing bytes.
    #[track_caller]
    pub(crate) fn expect(&mut self, text: &str, answer: &str) {
        self.send(text);
        let mut received = Vec::new();
        while received.len() < answer.len() && answer.as_bytes().starts_with(&received) {
            let bytes = self.reader.fill_buf().unwrap_or_else(|error| {
                panic!("{error} after {:?} to {text:?}", String::from_utf8_lossy(&received))
            });
            assert!(!bytes.is_empty(), "closed after {:?}", String::from_utf8_lossy(&received));
            let taken = bytes.len().min(answer.len() - received.len());
            received.extend_from_slice(&bytes[..taken]);
            self.reader.consume(taken);
        }
        assert_eq!(String::from_utf8_lossy(&received), answer, "to {text:?}");
    }

    /// The value and the token of a key.
    pub(crate) fn gets(&mut self, key: &str) -> Option<(String, u64)> {
        self.send(&format!("gets {key}\r\n"));
        let header = self.line();
        if header == "END" {
            return None;
        }
        let token = header.split(' ').nth(4).unwrap_or_else(|| panic!("{header:?}"));
        let value = self.line();
        assert_eq!(self.line(), "END");
        Some((value, token.parse().unwrap()))
    }

    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.reader.read(&mut [0; 1]), Ok(0) | Err(_))
    }
}
