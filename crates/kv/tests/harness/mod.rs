//! A store in this process, a memcached to compare with, and a client of bytes.

pub(crate) mod graph;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use knee_kv::{MemcachedServer, MemcachedSettings};
use knee_kv_cache::MemoryLimits;
use knee_kv_store::{Consistency, DirectoryOptions, Durability, History, Keeper, StoreOptions};
use knee_telemetry::{Reporter, Stats};
use knee_testkit::{Memcached, PATIENCE};

pub(crate) fn settings() -> MemcachedSettings {
    MemcachedSettings {
        threads: 1,
        limits: MemoryLimits { memory_bytes_max: 64 << 20, value_bytes_max: 1 << 20 },
        buffered_bytes_max: 256 << 20,
        connections_max: 1000,
        idle_timeout: None,
    }
}

/// A running store, which ends with the test.
pub(crate) struct Store {
    serving: Option<MemcachedServer>,
    /// The keeper of a store that keeps versions.
    keeper: Option<Keeper>,
    /// The directory is removed after the store has ended.
    directory: Option<Directory>,
}

impl Store {
    /// A cache.
    pub(crate) fn start(settings: MemcachedSettings) -> Store {
        let (listener, reporter) = surroundings();
        let serving =
            MemcachedServer::start(&settings, listener, reporter, None, |_| Ok(())).unwrap();
        Store { serving: Some(serving), keeper: None, directory: None }
    }

    /// A store that keeps versions.
    pub(crate) fn over(store: &knee_kv_store::Store, settings: MemcachedSettings) -> Store {
        let (listener, reporter) = surroundings();
        let serving =
            MemcachedServer::start_over(store, &settings, listener, reporter, None, |_| Ok(()));
        Store { serving: Some(serving.unwrap()), keeper: None, directory: None }
    }

    /// A store that keeps versions, with its keeper.
    pub(crate) fn kept(store: &knee_kv_store::Store, settings: MemcachedSettings) -> Store {
        let keeper = Keeper::start(store.clone(), History::Seconds(60)).unwrap();
        let mut store = Store::over(store, settings);
        store.keeper = Some(keeper);
        store
    }

    /// A store of each kind; the last store is sequential.
    pub(crate) fn each(settings: MemcachedSettings) -> impl Iterator<Item = Store> {
        let kinds: [fn(MemcachedSettings) -> Store; 4] = [
            Store::start,
            |settings| Store::kept(&in_memory(&settings, Consistency::Linearizable), settings),
            |settings| {
                let directory = Directory::new();
                let mut store = Store::kept(&directory.open(&settings), settings);
                store.directory = Some(directory);
                store
            },
            |settings| Store::kept(&in_memory(&settings, Consistency::Sequential), settings),
        ];
        kinds.into_iter().map(move |start| start(settings))
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.serving.as_ref().unwrap().address())
    }

    pub(crate) fn shut_down(&mut self) {
        let serving = self.serving.take().unwrap();
        serving.shutdown().begin();
        serving.join().unwrap();
    }
}

fn surroundings() -> (TcpListener, Reporter<knee_telemetry::Store>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    (listener, Reporter::to_sink("knee-kv", Stats::None, Box::new(std::io::sink())))
}

fn in_memory(settings: &MemcachedSettings, consistency: Consistency) -> knee_kv_store::Store {
    let bytes_max = settings.limits.memory_bytes_max as u64;
    knee_kv_store::Store::in_memory(options(settings, consistency), bytes_max).unwrap()
}

fn options(settings: &MemcachedSettings, consistency: Consistency) -> StoreOptions {
    StoreOptions {
        consistency,
        stripes: 4 * settings.threads,
        value_bytes_max: settings.limits.value_bytes_max,
        segment_bytes: 2 << 20,
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if self.serving.is_some() {
            self.shut_down();
        }
    }
}

/// A temporary directory for a store.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Directory {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("knee-kv-front-{}-{number}", std::process::id());
        Directory(std::env::temp_dir().join(name))
    }

    /// The store in it.
    pub(crate) fn open(&self, settings: &MemcachedSettings) -> knee_kv_store::Store {
        let options = options(settings, Consistency::Linearizable);
        let directory = DirectoryOptions {
            path: self.0.clone(),
            durability: Durability::Always,
            repair: false,
        };
        let bytes_max = settings.limits.memory_bytes_max as u64;
        knee_kv_store::Store::open(options, &directory, bytes_max).unwrap().0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // The directory may not exist.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// memcached, for comparisons.
pub(crate) fn memcached() -> Memcached {
    Memcached::start(&[
        // memcached's background threads hold short references to items, and then arithmetic replaces a value instead
        // of padding it.
        "-o",
        "no_lru_maintainer,no_lru_crawler",
        // In a number above 2^63, memcached looks for a minus sign up to the next zero byte. This may be after the
        // value's end, where an earlier, longer value has left bytes. With this size, no value is so long.
        "-n",
        "4096",
    ])
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

    /// All bytes up to `end`.
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

    /// The answers to `requests`. A final request with a unique answer marks their end.
    pub(crate) fn ask(&mut self, requests: impl AsRef<[u8]>) -> Vec<u8> {
        self.send([requests.as_ref(), b"mn\r\n"].concat());
        let mut answer = self.read_to(b"MN\r\n");
        answer.truncate(answer.len() - 4);
        answer
    }

    /// The same as text.
    pub(crate) fn answer(&mut self, requests: &str) -> String {
        String::from_utf8(self.ask(requests)).unwrap()
    }

    /// All bytes until the server closes the connection.
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
