//! A gRPC server on a port, from start to end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::Stream;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::codegen::{Body, Bytes, Service, StdError, http};
use tonic::transport::Server;

use crate::beside::Interfaces;
use crate::connections::Connection;
use crate::messages::Outgoing;

/// How often a connection without traffic is pinged, and how long its answer may take.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// A server that handles `streams_max` calls of a connection at a time; further calls wait at the client.
pub fn server(streams_max: u32) -> Server {
    Server::builder()
        .max_concurrent_streams(streams_max)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
}

/// A handle that ends a server.
#[derive(Debug, Clone, Default)]
pub struct Shutdown(watch::Sender<bool>);

impl Shutdown {
    /// Begins the shutdown: further calls are refused, and running calls have the grace period.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Shows whether the shutdown has begun, for calls that may run for long.
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }
}

/// Registers a listener with a runtime. Returns the listener and its address.
///
/// # Errors
/// When the system refuses the listener.
pub fn listening(
    runtime: &Runtime,
    listener: std::net::TcpListener,
) -> io::Result<(TcpListener, SocketAddr)> {
    let address = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    let _inside = runtime.enter();
    Ok((TcpListener::from_std(listener)?, address))
}

/// A running server.
#[derive(Debug)]
pub struct Running {
    runtime: Runtime,
    served: JoinHandle<Result<(), tonic::transport::Error>>,
    /// Closes at the end of `served`.
    serves: watch::Receiver<()>,
    shutdown: Shutdown,
    grace: Duration,
}

impl Running {
    /// Serves connections on the threads of `runtime` until `shutdown` begins. After that, running calls may take
    /// `grace`. Health checks and reflection are served beside `interfaces`.
    pub fn start<S, B>(
        runtime: Runtime,
        server: Server,
        interfaces: Interfaces<S>,
        connections: impl Stream<Item = io::Result<Connection>> + Send + 'static,
        shutdown: Shutdown,
        grace: Duration,
    ) -> Running
    where
        S: Service<
                http::Request<tonic::body::Body>,
                Response = http::Response<B>,
                Error = Infallible,
            > + Clone
            + Send
            + 'static,
        S::Future: Send,
        B: Body<Data = Bytes, Error: Into<StdError>> + From<Outgoing> + Send + 'static,
    {
        let (service, health) = interfaces.with_standard(shutdown.watch());
        runtime.spawn(health.until(shutdown.watch()));
        let mut asked = shutdown.watch();
        let ends = async move {
            // An error means that no handle is left.
            let _ = asked.wait_for(|ends| *ends).await;
        };
        let serving = server.serve_with_incoming_shutdown(service, connections, ends);
        let (held, serves) = watch::channel(());
        let served = runtime.spawn(async move {
            // A panic drops it, too.
            let _held = held;
            serving.await
        });
        Running { runtime, served, serves, shutdown, grace }
    }

    /// Calls `ended` when the server ends for any reason.
    pub fn on_end(&self, ended: impl FnOnce() + Send + 'static) {
        let mut serves = self.serves.clone();
        self.runtime.spawn(async move {
            while serves.changed().await.is_ok() {}
            ended();
        });
    }

    /// A handle that ends the server.
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Waits until the server and the threads of its runtime have ended, or until the grace period is over.
    ///
    /// # Errors
    /// When the server failed, or ended without a shutdown.
    pub fn join(self) -> io::Result<()> {
        let Running { runtime, mut served, shutdown, grace, .. } = self;
        let mut ending = shutdown.watch();
        let outcome = runtime.block_on(async {
            tokio::select! {
                outcome = &mut served => return Some(outcome),
                _ = ending.wait_for(|ends| *ends) => {}
            }
            tokio::time::timeout(grace, &mut served).await.ok()
        });
        let was_asked = *ending.borrow();
        // Drops unread answers, and waits at most for the grace period until blocking work has ended.
        runtime.shutdown_timeout(grace);
        match outcome {
            Some(Ok(Ok(()))) if !was_asked => {
                Err(io::Error::other("the server ended without a shutdown"))
            }
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(io::Error::other(error)),
            Some(Err(error)) => Err(io::Error::other(error)),
        }
    }
}
