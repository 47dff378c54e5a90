//! Connections, no more at a time than were allowed.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tonic::transport::server::Connected;

use super::budget::{Account, Budget};
use super::meter::Meter;

/// How long nobody is taken after the system refused a connection.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);

/// What a client of HTTP/2 says first: so many bytes. Until then its connection is not asked whether
/// it is there.
const PREFACE_BYTES: usize = 24;

/// A connection, and its place among those that are allowed.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    /// Of who has not said enough yet, how much that was, and until when there is time for it.
    silent: Option<(usize, Pin<Box<Sleep>>)>,
    account: Arc<Account>,
    _permit: OwnedSemaphorePermit,
    meter: Arc<Meter>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.meter.shards.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The connections of a listener. Further ones wait until others have gone; those that have not
/// begun to speak HTTP/2 after `silence_max` do.
pub(super) fn connections(
    listener: TcpListener,
    connections_max: usize,
    silence_max: Duration,
    budget: Arc<Budget>,
    meter: Arc<Meter>,
) -> impl Stream<Item = io::Result<Connection>> {
    let places = Arc::new(Semaphore::new(connections_max));
    unfold((listener, places, budget, meter), move |(listener, places, budget, meter)| async move {
        let permit = Arc::clone(&places).acquire_owned().await.ok()?;
        let stream = loop {
            let accepted = listener.accept().await;
            match accepted.and_then(|(stream, _)| stream.set_nodelay(true).map(|()| stream)) {
                Ok(stream) => break stream,
                // Out of descriptors, most likely: come back when some may be free. Whoever is gone
                // already only waited as long.
                Err(_) => tokio::time::sleep(REFUSED_PAUSE).await,
            }
        };
        meter.shards.connections.fetch_add(1, Ordering::Relaxed);
        let silent = Some((0, Box::pin(tokio::time::sleep(silence_max))));
        let (account, counted) = (budget.account(), Arc::clone(&meter));
        let connection = Connection { stream, silent, account, _permit: permit, meter: counted };
        Some((Ok(connection), (listener, places, budget, meter)))
    })
}

impl Connected for Connection {
    /// What its calls take from; each finds it among its extensions.
    type ConnectInfo = Arc<Account>;

    fn connect_info(&self) -> Arc<Account> {
        Arc::clone(&self.account)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let Some((said_bytes, until)) = &mut self.silent else { return read };
        *said_bytes += buffer.filled().len() - before;
        if *said_bytes >= PREFACE_BYTES {
            self.silent = None;
        } else if read.is_pending() && until.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
