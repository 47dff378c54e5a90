//! The service on a port, from start to end.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use knee_rpc::DESCRIPTORS;
use knee_rpc::queue::queue_server::{QueueServer, SERVICE_NAME};
use knee_server::{
    Bounded, Budget, Interfaces, Limits, Running, Shutdown, connections, listening, program, server,
};
use tokio::runtime::Runtime;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use super::asking::Asking;
use super::awaiting::Awaiting;
use super::meter::{Meter, Telemetry};
use super::service::Service;
use crate::database::{Database, Failure, Stages};
use crate::operation::{Answer, Request};
use crate::slots::Slots;
use crate::waiters::Waiters;

/// Room for a request's fields besides its content.
const MESSAGE_OVERHEAD_BYTES: usize = 64 << 10;
/// Room for a request with many messages.
const BATCH_BYTES: usize = 4 << 20;
/// Largest number of calls of one connection at a time; further ones wait at the client.
const STREAMS_MAX: u32 = 256;

/// A server's certificate, and the issuers of its clients' certificates, as PEM.
#[derive(Clone)]
pub struct Tls {
    /// The server's certificate, and the chain up to an issuer that clients trust.
    pub certificate: Vec<u8>,
    /// The certificate's key.
    pub key: Vec<u8>,
    /// The issuers of clients' certificates; without them, the server accepts any client.
    pub client_ca: Option<Vec<u8>>,
}

impl fmt::Debug for Tls {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clients_have_certificates = self.client_ca.is_some();
        f.debug_struct("Tls")
            .field("clients_have_certificates", &clients_have_certificates)
            .finish_non_exhaustive()
    }
}

impl Tls {
    fn config(&self, handshake_max: Duration) -> ServerTlsConfig {
        let identity = Identity::from_pem(&self.certificate, &self.key);
        let config = ServerTlsConfig::new().identity(identity).timeout(handshake_max);
        match &self.client_ca {
            Some(client_ca) => config.client_ca_root(Certificate::from_pem(client_ca)),
            None => config,
        }
    }
}

/// How to serve.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Number of worker slots, at least 1.
    pub workers: usize,
    /// Largest number of requests that may wait for a worker; further ones are refused.
    pub waiting_max: usize,
    /// Largest number of requests that may wait for a message; further ones are refused.
    pub waiters_max: usize,
    /// The interval at which a request that waits for a message polls; many requests poll less often.
    pub poll_interval: Duration,
    /// Longer content is refused.
    pub content_bytes_max: usize,
    /// Memory for the messages of all calls. A request counts from its first byte to its answer's last byte. A
    /// connection may use at most as much memory as is then left for others. Further calls are refused.
    pub messages_bytes_max: usize,
    /// Limits of connections.
    pub limits: Limits,
    /// `None`: connections are not encrypted.
    pub tls: Option<Tls>,
    /// At shutdown, running calls may take this long.
    pub grace: Duration,
}

impl Settings {
    /// The largest request.
    pub fn request_bytes_max(&self) -> usize {
        BATCH_BYTES.max(self.content_bytes_max) + MESSAGE_OVERHEAD_BYTES
    }
}

/// A running server.
#[derive(Debug)]
pub struct Serving {
    running: Running,
    meter: Arc<Meter>,
    address: SocketAddr,
}

impl Serving {
    /// Serves a database on `listener`, with the threads of `runtime` (see [`knee_server::runtime`]).
    ///
    /// # Errors
    /// When the database refuses the server, the certificates or their key cannot be used, or the system refuses the
    /// listener.
    pub fn start<D: Database>(
        settings: &Settings,
        runtime: Runtime,
        database: D,
        listener: std::net::TcpListener,
        telemetry: Telemetry,
    ) -> Result<Serving, program::Failure> {
        let mut server = server(STREAMS_MAX);
        if let Some(tls) = &settings.tls {
            let config = tls.config(settings.limits.silence_max);
            server = server.tls_config(config).map_err(|error| {
                let flags = "--tls-certificate, --tls-key or --tls-client-ca";
                let message = format!("cannot use {flags}: {}", why(&error));
                program::Failure { message, code: 1 }
            })?;
        }
        let (listener, address) = listening(&runtime, listener)
            .map_err(|error| program::Failure::system("cannot start", &error))?;
        let register = async {
            let answer = database.call(Request::RegisterMiddleware, &mut Stages::default()).await?;
            let Answer::Id(middleware) = answer else {
                return Err(Failure::Broken("the database gave this server no number".into()));
            };
            Ok(middleware)
        };
        let middleware = runtime.block_on(register)?;
        let shards = Arc::clone(&telemetry.shards);
        let budget = Budget::new(settings.messages_bytes_max, "--memory-mb");
        let open = Arc::clone(&shards.connections);
        let incoming = connections(listener, settings.limits, budget, open);
        runtime.spawn(shards.cut_every_second());
        let meter = Arc::new(Meter::new(telemetry));
        let shutdown = Shutdown::default();
        let asking = Arc::new(Asking {
            database: Arc::new(database),
            workers: Slots::new(settings.workers, settings.waiting_max),
            meter: Arc::clone(&meter),
        });
        let waiters = Waiters::new(settings.waiters_max, settings.poll_interval);
        let service = Service {
            awaiting: Awaiting::new(&runtime, Arc::clone(&asking), waiters, shutdown.watch()),
            asking,
            middleware,
            content_bytes_max: settings.content_bytes_max,
        };
        let service =
            QueueServer::new(service).max_decoding_message_size(settings.request_bytes_max());
        let interfaces = Interfaces {
            service: Bounded::new(service, Arc::clone(&meter) as _),
            names: &[SERVICE_NAME],
            descriptors: DESCRIPTORS,
            meter: Arc::clone(&meter) as _,
        };
        let running =
            Running::start(runtime, server, interfaces, incoming, shutdown, settings.grace);
        Ok(Serving { running, meter, address })
    }

    /// The address that is served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A handle that ends the server, and the calls that wait for messages.
    pub fn shutdown(&self) -> Shutdown {
        self.running.shutdown()
    }

    /// Waits until the server has ended and dropped the database.
    ///
    /// # Errors
    /// When the server failed, or ended without a shutdown.
    pub fn join(self) -> io::Result<()> {
        let ended = self.running.join();
        self.meter.finish();
        ended
    }
}

/// The innermost cause of an error: the layers above it add nothing.
fn why(error: &dyn std::error::Error) -> String {
    let mut bottom = error;
    while let Some(source) = bottom.source() {
        bottom = source;
    }
    bottom.to_string()
}
