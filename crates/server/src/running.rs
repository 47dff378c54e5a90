//! A server of gRPC on a port, from start to end.

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

use crate::connections::Connection;

/// A connection without traffic is asked whether it is there so often, and is gone if it does not say
/// so in time: what its calls hold is free then.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// A server that serves so many calls of one connection at a time; further ones wait at the client.
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
    /// No more calls are taken; those that go on have the time of grace.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Whether it has begun, for calls that would go on for long.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }
}

/// A listener on the threads of a runtime, and its address.
///
/// # Errors
/// When the system refuses it.
pub fn listening(
    runtime: &Runtime,
    listener: std::net::TcpListener,
) -> io::Result<(TcpListener, SocketAddr)> {
    let address = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    let _inside = runtime.enter();
    Ok((TcpListener::from_std(listener)?, address))
}

/// A server that runs.
#[derive(Debug)]
pub struct Running {
    runtime: Runtime,
    served: JoinHandle<Result<(), tonic::transport::Error>>,
    /// Ends with that.
    serves: watch::Receiver<()>,
    shutdown: Shutdown,
    grace: Duration,
}

impl Running {
    /// Serves connections on the threads of `runtime` until `shutdown` begins; calls that go on by then
    /// have so long, and what is to be done `afterwards` has what is left of that. `service` answers whatever is
    /// called for, as a generated one does by itself: a router before it costs every call some copies and as
    /// many boxes.
    pub fn start<S, B>(
        runtime: Runtime,
        server: Server,
        service: S,
        connections: impl Stream<Item = io::Result<Connection>> + Send + 'static,
        shutdown: Shutdown,
        grace: Duration,
        afterwards: impl Future<Output = ()> + Send + 'static,
    ) -> Running
    where
        S: Service<http::Request<tonic::body::Body>, Response = http::Response<B>>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
        S::Error: Into<StdError> + Send,
        B: Body<Data = Bytes, Error: Into<StdError>> + Send + 'static,
    {
        let mut asked = shutdown.watch();
        let ends = async move {
            // An error says that nobody can ask any more.
            let _ = asked.wait_for(|ends| *ends).await;
        };
        let serving = server.serve_with_incoming_shutdown(service, connections, ends);
        let (held, serves) = watch::channel(());
        let served = runtime.spawn(async move {
            // Gone with that, also where it panics.
            let outcome = {
                let _held = held;
                serving.await
            };
            // Nobody bounds it where serving ended by itself.
            let _ = tokio::time::timeout(grace, afterwards).await;
            outcome
        });
        Running { runtime, served, serves, shutdown, grace }
    }

    /// Tells when nothing is served any more, asked for or not.
    pub fn on_end(&self, tell: impl FnOnce() + Send + 'static) {
        let mut serves = self.serves.clone();
        self.runtime.spawn(async move {
            while serves.changed().await.is_ok() {}
            tell();
        });
    }

    /// A handle that ends it.
    #[must_use]
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Waits until it has ended, and with it the threads of its runtime, but for what outlasts the time
    /// of grace.
    ///
    /// # Errors
    /// When it did not end as it was asked to.
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
        // Whoever has not taken his answer by now is cut off; what runs beside the connections ends its
        // step.
        runtime.shutdown_timeout(grace);
        match outcome {
            Some(Ok(Ok(()))) if !was_asked => {
                Err(io::Error::other("it ended though nobody had asked it to"))
            }
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(io::Error::other(error)),
            Some(Err(error)) => Err(io::Error::other(error)),
        }
    }
}
