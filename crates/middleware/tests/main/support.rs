//! Real servers, a middleware in front of them, and clients that speak bytes.

use std::io::{BufRead, BufReader, Read, Write, sink};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use knee_middleware::{Config, Mode, Running, ServerAddress, start};
use knee_proto::Limits;
use knee_telemetry::{Middleware, Reporter, Stats};
use knee_testkit::free_port;

/// Every behaviour is the same in all of them.
pub(crate) const MODES: [(Mode, usize); 4] =
    [(Mode::Workers(3), 1), (Mode::Workers(3), 2), (Mode::Pipelined, 1), (Mode::Pipelined, 2)];

const PATIENCE: Duration = Duration::from_secs(15);

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Debian's memcached, or the program that `KNEE_MEMCACHED` names; ended with the value.
pub(crate) struct Memcached {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Memcached {
    pub(crate) fn start() -> Memcached {
        Memcached::start_at(free_port())
    }

    pub(crate) fn start_at(port: u16) -> Memcached {
        let program = std::env::var_os("KNEE_MEMCACHED").unwrap_or_else(|| "memcached".into());
        let child = Command::new(program)
            .args(["-l", "127.0.0.1", "-t", "1", "-m", "64", "-u", "nobody", "-p"])
            .arg(port.to_string())
            .stderr(Stdio::null())
            .spawn()
            .expect("memcached is installed");
        let mut memcached = Memcached { child, address: (Ipv4Addr::LOCALHOST, port).into() };
        wait_until("memcached listens", || {
            assert_eq!(memcached.child.try_wait().unwrap(), None, "it ended at once");
            TcpStream::connect(memcached.address).is_ok()
        });
        memcached
    }

    pub(crate) fn three() -> [Memcached; 3] {
        std::array::from_fn(|_| Memcached::start())
    }

    /// Ends it without a word.
    pub(crate) fn kill(mut self) -> u16 {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.address.port()
    }

    pub(crate) fn stat(&self, name: &str) -> u64 {
        let mut client = Client::connect(self.address);
        client.send("stats\r\n");
        let line =
            client.lines_until("END").into_iter().find(|line| line.split(' ').nth(1) == Some(name));
        line.unwrap().split(' ').nth(2).unwrap().parse().unwrap()
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
        connections_max: 2000,
        idle_timeout: None,
        exit_idle: None,
        // Longer than a busy machine takes.
        server_timeout: PATIENCE,
        limits: Limits::default(),
        reply_bytes_max: 16 << 20,
        trace: false,
    }
}

/// As [`config`], with a server's answer due soon.
pub(crate) fn impatient(mode: Mode, threads: usize, servers: &[SocketAddr]) -> Config {
    Config { server_timeout: Duration::from_millis(500), ..config(mode, threads, servers) }
}

pub(crate) fn addresses(servers: &[Memcached]) -> Vec<SocketAddr> {
    servers.iter().map(|server| server.address).collect()
}

/// A server that answers `version` and then behaves as given.
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

/// A middleware in this process, ended with the value.
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

    /// As SIGTERM does; returns when it has ended.
    pub(crate) fn stop(mut self) {
        self.end();
    }

    /// Returns when it has ended by itself.
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

    pub(crate) fn lines_until(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.line();
            assert!(!line.is_empty(), "closed after {lines:?}");
            if line == last {
                return lines;
            }
            lines.push(line);
        }
    }

    /// Sends a request that is answered by one line.
    pub(crate) fn ask(&mut self, text: &str) -> String {
        self.send(text);
        self.line()
    }

    /// Sends, and checks the exact bytes of the answer.
    #[track_caller]
    pub(crate) fn expect(&mut self, text: &str, answer: &str) {
        self.send(text);
        let mut received = vec![0; answer.len()];
        self.reader.read_exact(&mut received).unwrap();
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
