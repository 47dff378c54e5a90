//! The memcached server from start to end: threads, their engine and their report.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock};

use knee_kv_cache::engine::Engine;
use knee_kv_cache::{Memory, Stripes};
use knee_kv_store::Items;
use knee_kv_store::calendar::Calendar;
use knee_proto::Limits;
use knee_reactor::{Config, Group, Shutdown};
use knee_server::Trace;
use knee_telemetry::{Moment, Reporter, Running, Store, StoreGauges};

use crate::commands::Commands;
use crate::counters::{Counters, Facts};
use crate::server::Server;
use crate::settings::MemcachedSettings;

/// Input bytes of a connection besides a value. No line is longer, except the line of a retrieval.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// A running server.
#[derive(Debug)]
pub struct MemcachedServer {
    group: Group,
    running: Running<Store>,
    address: SocketAddr,
    unsettled: Arc<OnceLock<String>>,
}

impl MemcachedServer {
    /// Serves a cache on `listener`, with a report and an optional trace of each request.
    ///
    /// `before_ready` gets the shutdown handle before the server prints the `ready` line. A reader of that line may
    /// shut the server down at once.
    ///
    /// # Errors
    /// When the memory is below [`MemoryLimits::memory_bytes_min`](knee_kv_cache::MemoryLimits::memory_bytes_min), or the
    /// system refuses a socket, a poll or a thread.
    pub fn start(
        settings: &MemcachedSettings,
        listener: TcpListener,
        reporter: Reporter<Store>,
        trace: Option<Trace>,
        before_ready: impl FnOnce(Shutdown) -> io::Result<()>,
    ) -> io::Result<MemcachedServer> {
        if settings.threads == 1 {
            let mut memory = Some(Memory::new(settings.limits).ok_or_else(too_little_memory)?);
            let take = || memory.take().expect("one thread asks for one engine");
            MemcachedServer::with_engine(settings, listener, reporter, trace, before_ready, take)
        } else {
            let stripes =
                Stripes::new(settings.threads, settings.limits).ok_or_else(too_little_memory)?;
            MemcachedServer::with_engine(settings, listener, reporter, trace, before_ready, || {
                stripes.clone()
            })
        }
    }

    /// Serves the items of a versioned store, which other servers may serve as well.
    ///
    /// # Errors
    /// When the system refuses a socket, a poll or a thread.
    pub fn start_over(
        store: &knee_kv_store::Store,
        settings: &MemcachedSettings,
        listener: TcpListener,
        reporter: Reporter<Store>,
        trace: Option<Trace>,
        before_ready: impl FnOnce(Shutdown) -> io::Result<()>,
    ) -> io::Result<MemcachedServer> {
        let items = Items::new(store.clone());
        MemcachedServer::with_engine(settings, listener, reporter, trace, before_ready, || {
            items.clone()
        })
    }

    /// Serves an engine. Each thread gets its handle to the engine from `engine`.
    fn with_engine<E: Engine + Send + 'static>(
        settings: &MemcachedSettings,
        listener: TcpListener,
        mut reporter: Reporter<Store>,
        trace: Option<Trace>,
        before_ready: impl FnOnce(Shutdown) -> io::Result<()>,
        mut engine: impl FnMut() -> E,
    ) -> io::Result<MemcachedServer> {
        let address = listener.local_addr()?;
        let started = Moment::now();
        let facts = Arc::new(Facts { settings: *settings, listen: address, started: started.mono });
        let counters = Arc::new(Counters::new(settings.threads));
        let unsettled = Arc::new(OnceLock::new());
        let limits =
            Limits { value_bytes_max: settings.limits.value_bytes_max, ..Limits::default() };
        let config = Config {
            input_bytes_max: limits.value_bytes_max.max(limits.retrieval_line_bytes_max)
                + LINE_BYTES_MAX,
            buffered_bytes_max: settings.buffered_bytes_max,
            connections_max: settings.connections_max,
            request_bytes_max: limits.value_bytes_max.max(limits.retrieval_line_bytes_max)
                + LINE_BYTES_MAX,
            refusal: b"ERROR Too many open connections\r\n",
            idle_timeout: settings.idle_timeout,
            ..Config::default()
        };
        let group = Group::start("net", settings.threads, &config, Some(listener), |thread, _| {
            let commands =
                Commands::new(engine(), Arc::clone(&counters), Arc::clone(&facts), thread);
            let gauges = StoreGauges::default();
            let recorder = reporter.recorder(format!("net-{thread}"), gauges, started);
            let calendar = Calendar::of_process();
            let (trace, unsettled) = (trace.clone(), Arc::clone(&unsettled));
            Server::new(commands, limits, calendar, recorder, trace, thread == 0, unsettled)
        })?;
        before_ready(group.shutdown())?;
        reporter.ready(Some(address));
        Ok(MemcachedServer { group, running: reporter.start()?, address, unsettled })
    }

    /// The address that is served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A handle that shuts the server down: the server reads no further request, and answers the requests it has read.
    pub fn shutdown(&self) -> Shutdown {
        self.group.shutdown()
    }

    /// Waits until the server has ended, and prints the summary.
    ///
    /// # Errors
    /// When the system ended an event loop, or the log could not be written.
    pub fn join(self) -> io::Result<()> {
        self.join_with(|| ())
    }

    /// The same, but calls `end_others` before it prints the summary.
    ///
    /// # Errors
    /// See [`MemcachedServer::join`].
    pub fn join_with(self, end_others: impl FnOnce()) -> io::Result<()> {
        let ended = self.group.join();
        end_others();
        self.running.finish(|_| ());
        match self.unsettled.get() {
            Some(why) => Err(io::Error::other(format!(
                "the log cannot be written: {why}; answered writes are there when the store is opened again, \
                 others were not answered"
            ))),
            None => {
                ended.map_err(|error| io::Error::other(format!("an event loop failed: {error}")))
            }
        }
    }
}

fn too_little_memory() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "too little memory for the largest values")
}
