//! Both services on one port, from start to end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use knee_kv_store::Store;
use knee_rpc::DESCRIPTORS;
use knee_rpc::honu::storage_server::{self as honu, StorageServer};
use knee_rpc::kv::key_value_server::{self as kv, KeyValueServer};
use knee_server::{
    Bounded, Budget, Interfaces, Limits, Running, Shutdown, Unserved, connections, listening,
    runtime, server,
};
use tonic::service::Routes;

use super::meter::{Meter, Telemetry};
use super::predicate::STACK_BYTES;
use super::safe::Safe;
use super::service::Service;
use super::settings::GrpcSettings;
use super::storage::Honu;

/// Largest number of threads for scans and other long calls.
const BLOCKING_THREADS_MAX: usize = 64;

/// A running server.
#[derive(Debug)]
pub struct GrpcServer {
    running: Running,
    safe: Safe,
    meter: Arc<Meter>,
    syncing: JoinHandle<()>,
    address: SocketAddr,
}

impl GrpcServer {
    /// Serves a store on `listener`, and records its calls with `telemetry`.
    ///
    /// # Errors
    /// When the system refuses a thread, or the listener.
    pub fn start(
        settings: GrpcSettings,
        store: Store,
        listener: std::net::TcpListener,
        telemetry: Telemetry,
    ) -> io::Result<GrpcServer> {
        let meter = Arc::new(Meter::new(settings.threads, telemetry));
        let shards = &meter.shards;
        let runtime = runtime(shards, |builder| {
            builder.max_blocking_threads(BLOCKING_THREADS_MAX).thread_stack_size(STACK_BYTES)
        })?;
        let (listener, address) = listening(&runtime, listener)?;
        let (safe, syncing) = Safe::new(store.clone(), Arc::clone(shards))?;
        let shutdown = Shutdown::default();
        let GrpcSettings { message_bytes_max, messages_bytes_max, grace, .. } = settings;
        let GrpcSettings {
            connections_max, silence_max, streams_max, reader_idle_max, pid, ..
        } = settings;
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
            .add_service(Bounded::new(storage, Arc::clone(&recorded)));
        let interfaces = Interfaces {
            service: services.prepare(),
            names: &[kv::SERVICE_NAME, honu::SERVICE_NAME],
            descriptors: DESCRIPTORS,
            meter: recorded,
        };
        runtime.spawn(Arc::clone(shards).cut_every_second());
        let server = server(streams_max);
        let running = Running::start(runtime, server, interfaces, incoming, shutdown, grace);
        Ok(GrpcServer { running, safe, meter, syncing, address })
    }

    /// Calls a function when the server ends, even after a failure.
    pub fn on_end(&self, ended: impl FnOnce() + Send + 'static) {
        self.running.on_end(ended);
    }

    /// The address that is served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A handle that shuts the server down.
    pub fn shutdown(&self) -> Shutdown {
        self.running.shutdown()
    }

    /// Waits until the server has ended and released the store. A compaction that outlasts the grace period still holds
    /// the store.
    ///
    /// # Errors
    /// When the server failed, or ended without a shutdown.
    pub fn join(self) -> io::Result<()> {
        let GrpcServer { running, safe, meter, syncing, .. } = self;
        let ended = running.join();
        safe.end();
        let synced = syncing.join();
        meter.shards.finish();
        ended.and_then(|()| synced.map_err(|_| io::Error::other("the thread that syncs panicked")))
    }
}
