//! Connections: a limited number, closed when they are inactive for too long.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tonic::transport::server::Connected;

use crate::budget::{Budget, ConnectionMemory};

/// The pause after the system failed to accept a connection.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);

/// At the limit, a connection that was idle for this long makes room for a further one.
const IDLE_MIN: Duration = Duration::from_secs(1);

/// How long a further connection waits for the place of an idle one.
const LEAVING_MAX: Duration = Duration::from_secs(1);

/// The length of HTTP/2's client preface (RFC 9113, 3.4).
const PREFACE_BYTES: usize = 24;

/// The limits of a server's connections. An inactive connection is closed with its calls. While the server works on a
/// call, the connection counts as active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest number of connections at a time. A further connection replaces the one that was idle for longest,
    /// without calls and for at least a second. If there is none, the further connection is closed at once.
    pub connections_max: usize,
    /// How long a new connection may take to send HTTP/2's preface.
    pub silence_max: Duration,
    /// How long a connection without calls may stay inactive; `None`: for ever.
    pub idle_max: Option<Duration>,
    /// How long a client may leave its requests unfinished and its answers unread; `None`: for ever.
    pub stall_max: Option<Duration>,
}

/// A connection within the [`Limits`].
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// Missing bytes of the preface.
    preface_left: usize,
    memory: Arc<ConnectionMemory>,
    limits: Limits,
    /// The time of the next check for activity; `None`: no check.
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
    fn received(&mut self, bytes: usize) {
        if self.preface_left == 0 {
            return;
        }
        self.preface_left = self.preface_left.saturating_sub(bytes);
        if self.preface_left == 0 {
            self.memory.activity.moves();
            match (self.look_interval(), &mut self.watch) {
                (Some(interval), Some(watch)) => watch.as_mut().reset(Instant::now() + interval),
                _ => self.watch = None,
            }
        }
    }

    fn look_interval(&self) -> Option<Duration> {
        self.limits.idle_max.into_iter().chain(self.limits.stall_max).min()
    }

    /// When to check again; `None` if the connection was inactive for too long.
    fn look_again(&self) -> Option<Instant> {
        if self.preface_left > 0 {
            return None;
        }
        let Limits { idle_max, stall_max, .. } = self.limits;
        let activity = &self.memory.activity;
        let quiet_max = if activity.has_calls() { stall_max } else { idle_max };
        let now = Instant::now();
        match (quiet_max, activity.quiet_since()) {
            (Some(quiet_max), Some(since)) => Some(since + quiet_max).filter(|due| *due > now),
            _ => Some(now + self.look_interval()?),
        }
    }

    /// Fails the connection if it was inactive for too long, or must make room.
    fn poll_watch(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        if self.memory.activity.must_leave(context) {
            return Poll::Ready(io::ErrorKind::TimedOut.into());
        }
        while let Some(watch) = &mut self.watch
            && watch.as_mut().poll(context).is_ready()
        {
            let Some(next) = self.look_again() else {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            };
            if let Some(watch) = &mut self.watch {
                watch.as_mut().reset(next);
            }
        }
        Poll::Pending
    }
}

/// The connections of a listener, within `limits` and each with a part of `budget`. `open` counts them.
pub fn connections(
    listener: TcpListener,
    limits: Limits,
    budget: Arc<Budget>,
    open: Arc<AtomicU64>,
) -> impl Stream<Item = io::Result<Connection>> {
    let places = Places::new(limits.connections_max);
    unfold((listener, places, budget, open), move |mut state| async move {
        let (listener, places, budget, open) = &mut state;
        let (stream, permit) = loop {
            let accepted = listener.accept().await;
            match accepted.and_then(|(stream, _)| stream.set_nodelay(true).map(|()| stream)) {
                Ok(stream) => match places.take().await {
                    Some(permit) => break (stream, permit),
                    // A client that waited instead would not learn the cause.
                    None => drop(stream),
                },
                // Most likely no descriptor is free.
                Err(_) => tokio::time::sleep(REFUSED_PAUSE).await,
            }
        };
        open.fetch_add(1, Ordering::Relaxed);
        let memory = budget.connection();
        places.taken.push(Arc::downgrade(&memory));
        let connection = Connection {
            stream,
            preface_left: PREFACE_BYTES,
            memory,
            limits,
            watch: Some(Box::pin(sleep_until(Instant::now() + limits.silence_max))),
            _permit: permit,
            open: Arc::clone(open),
        };
        Some((Ok(connection), state))
    })
}

/// The places of connections.
struct Places {
    free: Arc<Semaphore>,
    /// The connections that took a place; some have left.
    taken: Vec<Weak<ConnectionMemory>>,
    connections_max: usize,
}

impl Places {
    fn new(connections_max: usize) -> Places {
        // The semaphore's own limit is far beyond that of open files.
        let free = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        Places { free, taken: Vec::new(), connections_max }
    }

    /// A free place, or that of the connection that was idle for longest.
    async fn take(&mut self) -> Option<OwnedSemaphorePermit> {
        if self.taken.len() >= self.connections_max {
            self.taken.retain(|memory| memory.strong_count() > 0);
        }
        let free = || Arc::clone(&self.free);
        if let Ok(permit) = free().try_acquire_owned() {
            return Some(permit);
        }
        let now = Instant::now();
        let taken = self.taken.iter().filter_map(Weak::upgrade);
        let idle = taken.filter_map(|memory| Some((memory.activity.idle_since()?, memory)));
        let (since, longest) = idle.min_by_key(|(since, _)| *since)?;
        if now < since + IDLE_MIN {
            return None;
        }
        longest.activity.ask_to_leave();
        timeout(LEAVING_MAX, free().acquire_owned()).await.ok()?.ok()
    }
}

impl Connected for Connection {
    /// Each call finds its connection's memory in its extensions.
    type ConnectInfo = Arc<ConnectionMemory>;

    fn connect_info(&self) -> Arc<ConnectionMemory> {
        Arc::clone(&self.memory)
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
            self.received(buffer.filled().len() - before);
            return Poll::Ready(read);
        }
        self.poll_watch(context).map(Err)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Pending => self.poll_watch(context).map(Err),
            written => written,
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write_vectored(context, slices) {
            // The server does not read while it cannot write, so the check must also happen here.
            Poll::Pending => self.poll_watch(context).map(Err),
            written => written,
        }
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
