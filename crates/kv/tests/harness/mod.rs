//! A store in this process, or memcached beside it, and a client that shows bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use knee_kv::{MemoryLimits, Serving, Settings};
use knee_telemetry::{Reporter, Stats};

/// Nothing that is waited for here takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn settings() -> Settings {
    Settings {
        threads: 1,
        limits: MemoryLimits { memory_bytes_max: 64 << 20, value_bytes_max: 1 << 20 },
        connections_max: 1000,
        idle_timeout: None,
    }
}

/// A running store, which ends with the test.
pub(crate) struct Store(Option<Serving>);

impl Store {
    pub(crate) fn start(settings: Settings) -> Store {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let reporter = Reporter::to_sink("knee-kv", Stats::None, Box::new(std::io::sink()));
        Store(Some(Serving::start(&settings, listener, reporter, |_| Ok(())).unwrap()))
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.0.as_ref().unwrap().address())
    }

    pub(crate) fn shut_down(&mut self) {
        let serving = self.0.take().unwrap();
        serving.shutdown().begin();
        serving.join().unwrap();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if self.0.is_some() {
            self.shut_down();
        }
    }
}

/// Debian's memcached, which ends with the test.
#[allow(dead_code)]
pub(crate) struct Memcached {
    child: Child,
    address: SocketAddr,
}

#[allow(dead_code)]
impl Memcached {
    pub(crate) fn start() -> Memcached {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // A free port, given back at once for memcached to take, unless somebody is quicker.
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let child = Command::new("memcached")
                .args(["-l", "127.0.0.1", "-p", &address.port().to_string()])
                .args(["-t", "1", "-u", "nobody"])
                // Its background threads hold references to items for moments, and arithmetic on
                // such an item has another result: the value is replaced instead of padded.
                .args(["-o", "no_lru_maintainer,no_lru_crawler"])
                .stdin(Stdio::null())
                .spawn()
                .expect("memcached is compared with: install it (apt-get install memcached)");
            let mut memcached = Memcached { child, address };
            while memcached.child.try_wait().unwrap().is_none() {
                if memcached.answers() {
                    return memcached;
                }
                assert!(Instant::now() < deadline, "memcached does not listen on {address}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Whether it is this process that listens.
    fn answers(&self) -> bool {
        let Ok(stream) = TcpStream::connect(self.address) else { return false };
        let told = Client::over(stream).told("stats\r\n");
        told.contains(&format!("STAT pid {}\r\n", self.child.id()))
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection that sends bytes and collects what comes back.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        Client::over(TcpStream::connect(address).unwrap())
    }

    fn over(stream: TcpStream) -> Client {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { stream }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Everything up to `end`.
    #[allow(dead_code)]
    pub(crate) fn read_to(&mut self, end: &[u8]) -> Vec<u8> {
        let mut read = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        while !read.ends_with(end) {
            let received = self.stream.read(&mut buffer).unwrap_or_else(|error| {
                panic!("{error} after {}", read.escape_ascii());
            });
            assert!(received > 0, "the server closed after {}", read.escape_ascii());
            read.extend_from_slice(&buffer[..received]);
        }
        read
    }

    /// What is answered to `requests`: a request whose answer cannot be taken for another's
    /// follows them.
    pub(crate) fn ask(&mut self, requests: impl AsRef<[u8]>) -> Vec<u8> {
        self.send([requests.as_ref(), b"mn\r\n"].concat());
        let mut answer = self.read_to(b"MN\r\n");
        answer.truncate(answer.len() - 4);
        answer
    }

    /// As [`Client::ask`], as text.
    #[allow(dead_code)]
    pub(crate) fn told(&mut self, requests: &str) -> String {
        String::from_utf8(self.ask(requests)).unwrap()
    }

    /// Everything until the server closes.
    #[allow(dead_code)]
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            outcome => {
                outcome.unwrap();
            }
        }
        rest
    }
}
