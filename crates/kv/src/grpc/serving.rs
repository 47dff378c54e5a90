//! Both services on one port, from start to end.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use knee_rpc::honu::storage_server::StorageServer;
use knee_rpc::kv::key_value_server::KeyValueServer;
use knee_server::{
    Bounded, Budget, Limits, Running, Shutdown, Unserved, connections, listening, runtime, server,
};
use tonic::service::Routes;

use super::key_value::Service;
use super::meter::{Meter, Telemetry};
use super::predicate::STACK_BYTES;
use super::safe::Safe;
use super::storage::Honu;
use crate::versioned::Store;

/// What all messages may take unless somebody says otherwise, and so many of the largest ones.
const MESSAGES_BYTES_MIN: usize = 256 << 20;
const MESSAGES_MIN: usize = 4;
/// Room that a message has beside one value.
const MESSAGE_OVERHEAD_BYTES: usize = 64 << 10;
/// Connections that are served unless somebody says otherwise.
pub const CONNECTIONS_MAX: usize = 1024;
/// Copies that clients may have made unless somebody says otherwise.
pub const COPIES_MAX: usize = 16;
/// Threads for scans and other calls that take long, at most.
const BLOCKING_THREADS_MAX: usize = 64;

/// How to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Threads that serve connections, at least 1.
    pub threads: usize,
    /// The second part of the versions that honu's interface prints.
    pub pid: u64,
    /// Largest request: of one value, or of a bulk put. A value and some room around it is what it
    /// must have at least, see [`Settings::for_values`].
    pub message_bytes_max: usize,
    /// What the messages of all calls take together, from the first byte of a request to the last one
    /// of its answer, and those of a connection no more than they leave to others; what is beyond it
    /// is refused. Three of the largest at least: then one is taken while another one is answered.
    pub messages_bytes_max: usize,
    /// Connections served at a time; further ones are closed at once.
    pub connections_max: usize,
    /// A connection that says nothing from its beginning on is closed after so long.
    pub silence_max: Duration,
    /// Calls of one connection that are served at a time; further ones wait.
    pub streams_max: u32,
    /// Scans served at a time; further ones are refused.
    pub scans_max: usize,
    /// Watches served at a time; further ones are refused.
    pub watches_max: usize,
    /// Where the files are that clients may have loaded; without it, none.
    pub init_dir: Option<PathBuf>,
    /// Where clients may have copies of the store made; without it, nowhere.
    pub backup_dir: Option<PathBuf>,
    /// Directories that there may be in it.
    pub copies_max: usize,
    /// A connection is closed after its clients left a request unfinished, or an answer unread, for so long;
    /// other calls of the connection that go on count as movement.
    pub reader_idle_max: Duration,
    /// An atomic scan that goes on for longer is given up: what was replaced since it began is kept
    /// for it.
    pub snapshot_age_max: Duration,
    /// Calls that go on when the server is to end have so long.
    pub grace: Duration,
}

impl Settings {
    /// What suits a store with values of at most so many bytes.
    #[must_use]
    pub fn for_values(value_bytes_max: usize) -> Settings {
        let message_bytes_max = (4 << 20).max(value_bytes_max) + MESSAGE_OVERHEAD_BYTES;
        Settings {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            pid: 1,
            message_bytes_max,
            messages_bytes_max: MESSAGES_BYTES_MIN.max(MESSAGES_MIN * message_bytes_max),
            connections_max: CONNECTIONS_MAX,
            silence_max: Duration::from_secs(10),
            streams_max: 256,
            scans_max: 64,
            watches_max: 64,
            init_dir: None,
            backup_dir: None,
            copies_max: COPIES_MAX,
            reader_idle_max: Duration::from_secs(30),
            snapshot_age_max: Duration::from_secs(3600),
            grace: Duration::from_secs(5),
        }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Serving {
    running: Running,
    safe: Safe,
    meter: Arc<Meter>,
    /// The thread that syncs.
    syncing: JoinHandle<()>,
    address: SocketAddr,
}

impl Serving {
    /// Serves a store on `listener`, and records that with `telemetry`.
    ///
    /// # Errors
    /// When the system refuses a thread, or the listener.
    pub fn start(
        settings: Settings,
        store: Store,
        listener: std::net::TcpListener,
        telemetry: Telemetry,
    ) -> io::Result<Serving> {
        let meter = Arc::new(Meter::new(settings.threads, telemetry));
        let shards = &meter.shards;
        let runtime = runtime(shards, |builder| {
            builder.max_blocking_threads(BLOCKING_THREADS_MAX).thread_stack_size(STACK_BYTES)
        })?;
        let (listener, address) = listening(&runtime, listener)?;
        let (safe, syncing) = Safe::new(store.clone(), Arc::clone(shards))?;
        let shutdown = Shutdown::default();
        let Settings { message_bytes_max, messages_bytes_max, grace, .. } = settings;
        let Settings { connections_max, silence_max, streams_max, reader_idle_max, pid, .. } =
            settings;
        let budget = Budget::new(messages_bytes_max, "--grpc-memory-mb");
        let stall_max = Some(reader_idle_max);
        let limits = Limits { connections_max, silence_max, idle_max: None, stall_max };
        let incoming = connections(listener, limits, budget, Arc::clone(&shards.connections));
        let service =
            Service::new(store, safe.clone(), Arc::clone(&meter), settings, shutdown.watch());
        let honu = Honu { service: service.clone(), pid };
        let recorded = Arc::clone(&meter) as Arc<dyn Unserved>;
        let key_value = KeyValueServer::new(service).max_decoding_message_size(message_bytes_max);
        let storage = StorageServer::new(honu).max_decoding_message_size(message_bytes_max);
        let services = Routes::new(Bounded::new(key_value, Arc::clone(&recorded)))
            .add_service(Bounded::new(storage, recorded));
        runtime.spawn(Arc::clone(shards).cut_every_second());
        let server = server(streams_max);
        let services = services.prepare();
        let afterwards = std::future::ready(());
        let running =
            Running::start(runtime, server, services, incoming, shutdown, grace, afterwards);
        Ok(Serving { running, safe, meter, syncing, address })
    }

    /// Tells when nothing is served any more, asked for or not.
    pub fn on_end(&self, tell: impl FnOnce() + Send + 'static) {
        self.running.on_end(tell);
    }

    /// The address that is served.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A handle that ends it.
    #[must_use]
    pub fn shutdown(&self) -> Shutdown {
        self.running.shutdown()
    }

    /// Waits until it has ended: then nothing of it holds the store any more, but for a compaction
    /// that outlasts the time of grace.
    ///
    /// # Errors
    /// When it did not end as it was asked to.
    pub fn join(self) -> io::Result<()> {
        let Serving { running, safe, meter, syncing, .. } = self;
        let ended = running.join();
        safe.end();
        let synced = syncing.join();
        meter.shards.finish();
        ended.and_then(|()| synced.map_err(|_| io::Error::other("the thread that syncs panicked")))
    }
}
