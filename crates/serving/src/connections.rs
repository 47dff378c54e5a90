//! Connections, no more at a time than were allowed.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::transport::server::Connected;

use crate::budget::{Account, Budget};

/// How long nobody is taken after the system refused a connection.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);

/// What a client of HTTP/2 says first: so many bytes. Until then its connection is not asked whether
/// it is there.
const PREFACE_BYTES: usize = 24;

/// Whom a server serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time; further ones are closed at once.
    pub connections_max: usize,
    /// Who says nothing from the beginning on is left after so long.
    pub silence_max: Duration,
    /// Who has no call that is worked at, and takes nothing of an answer, is left after so long.
    pub idle_max: Option<Duration>,
}

/// A connection, and its place among those that are allowed.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// How much was said by who has not said enough yet.
    silent: Option<usize>,
    account: Arc<Account>,
    idle_max: Option<Duration>,
    /// When to look whether anything happens; without it, never.
    watch: Option<Pin<Box<Sleep>>>,
    _permit: OwnedSemaphorePermit,
    open: Arc<AtomicU64>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection {
    /// It has said so much more.
    fn said(&mut self, bytes: usize) {
        let Some(said_bytes) = &mut self.silent else { return };
        *said_bytes += bytes;
        if *said_bytes >= PREFACE_BYTES {
            self.silent = None;
            self.account.activity.happens();
            match (self.idle_max, &mut self.watch) {
                (Some(idle_max), Some(watch)) => watch.as_mut().reset(Instant::now() + idle_max),
                _ => self.watch = None,
            }
        }
    }

    /// When to look again; `None` where it has been idle for too long, or silent.
    fn look_again(&self) -> Option<Instant> {
        let idle_max = self.idle_max.filter(|_| self.silent.is_none())?;
        let now = Instant::now();
        let next = self.account.activity.idle_since().unwrap_or(now) + idle_max;
        (next > now).then_some(next)
    }
}

/// The connections of a listener, which `open` counts, each with an account of the budget. Those that
/// have not begun to speak HTTP/2 in time are left, and so are those that are idle.
pub fn connections(
    listener: TcpListener,
    limits: Limits,
    budget: Arc<Budget>,
    open: Arc<AtomicU64>,
) -> impl Stream<Item = io::Result<Connection>> {
    let Limits { connections_max, silence_max, idle_max } = limits;
    let places = Arc::new(Semaphore::new(connections_max));
    unfold((listener, places, budget, open), move |(listener, places, budget, open)| async move {
        let (stream, permit) = loop {
            let accepted = listener.accept().await;
            match accepted.and_then(|(stream, _)| stream.set_nodelay(true).map(|()| stream)) {
                Ok(stream) => match Arc::clone(&places).try_acquire_owned() {
                    Ok(permit) => break (stream, permit),
                    // Closed at once: who waited instead would not know what for.
                    Err(_) => drop(stream),
                },
                // Out of descriptors, most likely: come back when some may be free. Whoever is gone
                // already only waited as long.
                Err(_) => tokio::time::sleep(REFUSED_PAUSE).await,
            }
        };
        open.fetch_add(1, Ordering::Relaxed);
        let connection = Connection {
            stream,
            silent: Some(0),
            account: budget.account(),
            idle_max,
            watch: Some(Box::pin(sleep_until(Instant::now() + silence_max))),
            _permit: permit,
            open: Arc::clone(&open),
        };
        Some((Ok(connection), (listener, places, budget, open)))
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
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(context, buffer) {
            self.said(buffer.filled().len() - before);
            return Poll::Ready(read);
        }
        while let Some(watch) = &mut self.watch
            && watch.as_mut().poll(context).is_ready()
        {
            let Some(next) = self.look_again() else {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            };
            if let Some(watch) = &mut self.watch {
                watch.as_mut().reset(next);
            }
        }
        Poll::Pending
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
