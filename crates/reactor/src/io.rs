//! What a handler may do, and what the loop knows of every connection.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::buffer::{Output, Pool};
use crate::shared::Shared;
use crate::timer::Timers;

/// Tokens of the poll that are no connections.
pub(crate) const WAKE: Token = Token(usize::MAX);
pub(crate) const TIMER: Token = Token(usize::MAX - 1);
pub(crate) const LISTENER: Token = Token(usize::MAX - 2);

/// Limits of one event loop.
#[derive(Debug, Clone)]
pub struct Config {
    /// One receive reads at most this many bytes into the thread's scratch buffer.
    pub read_bytes: usize,
    /// Unconsumed input of a connection; beyond it the connection is closed.
    /// Must exceed the largest request the handler accepts.
    pub input_bytes_max: usize,
    /// An accepted connection with more than this waiting to be sent is not read from…
    pub output_high_water_bytes: usize,
    /// …until no more than this is waiting.
    pub output_low_water_bytes: usize,
    /// Accepted connections of the whole group; further ones are refused.
    pub connections_max: usize,
    /// The text that a refused connection gets before it is closed.
    pub refusal: &'static [u8],
    /// An accepted connection without traffic in either direction for so long is closed.
    pub idle_timeout: Option<Duration>,
    /// A shutdown that the handler has not completed within this time is cut short.
    pub shutdown_grace: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            read_bytes: 256 * 1024,
            input_bytes_max: 4 * 1024 * 1024,
            output_high_water_bytes: 1024 * 1024,
            output_low_water_bytes: 256 * 1024,
            connections_max: 16 * 1024,
            refusal: b"",
            idle_timeout: None,
            shutdown_grace: Duration::from_secs(5),
        }
    }
}

/// Names a connection of this loop. An id outlives its connection harmlessly: whatever is done with
/// it afterwards has no effect, even when the slot serves another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ConnId {
    /// A small integer, unique among the connections open at a time, to index the handler's own
    /// tables with.
    #[must_use]
    pub fn index(self) -> usize {
        self.index as usize
    }

    /// The id as one number, to be a timer's key or to cross threads.
    #[must_use]
    pub fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The inverse of [`ConnId::to_u64`].
    #[must_use]
    pub fn from_u64(bits: u64) -> ConnId {
        ConnId { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// Where a connection came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A peer connected to the group's listener.
    Accepted,
    /// [`Io::connect`] was called with this tag.
    Connected(u64),
}

/// Why a connection ended.
#[derive(Debug)]
pub enum Close {
    /// The handler closed it, or the peer did and the handler left it at that.
    Local,
    /// No traffic for [`Config::idle_timeout`].
    Idle,
    /// More unconsumed input than [`Config::input_bytes_max`].
    Overflow,
    /// It never stood: the connect failed.
    Refused(io::Error),
    /// The kernel reported an error.
    Failed(io::Error),
}

pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) generation: u32,
    pub(crate) origin: Origin,
    /// Input that was left, its first `consumed` bytes gone; without memory between requests.
    pub(crate) input: Vec<u8>,
    /// Moving the rest to the front for each request taken of many would cost more than they do.
    pub(crate) consumed: usize,
    /// So much input has to be there before the handler wants to see it.
    pub(crate) wanted: usize,
    pub(crate) output: Output,
    pub(crate) last_active: Instant,
    pub(crate) connecting: bool,
    /// The kernel may have input: an edge was seen and not yet read to its end.
    pub(crate) readable: bool,
    /// The peer will send no more; known before the last bytes are read.
    pub(crate) hung_up: bool,
    /// The end of the input was read, and the handler knows.
    pub(crate) ended: bool,
    pub(crate) writable: bool,
    pub(crate) paused: bool,
    /// Unconsumed input was held back by a pause or by congestion: show it before reading more.
    pub(crate) show_again: bool,
    /// Above the high-water mark, not yet below the low one.
    pub(crate) congested: bool,
    pub(crate) close_when_sent: bool,
    /// In the list of connections to close at the end of the batch: nothing more is shown of it.
    pub(crate) closing: bool,
    /// In the list of connections to flush.
    pub(crate) dirty: bool,
    /// In the list of connections to read without waiting for an event.
    pub(crate) queued: bool,
}

impl Connection {
    pub(crate) fn may_deliver(&self) -> bool {
        // Two peers that each refuse to read until the other does would wait for ever. The one that
        // accepted gives in to no peer, the one that connected bounds by itself what it sends.
        let congested = self.congested && self.origin == Origin::Accepted;
        !(self.paused || congested || self.connecting || self.close_when_sent || self.closing)
    }
}

pub(crate) enum Slot {
    Free { generation: u32 },
    Open(Box<Connection>),
}

/// What a [`Handler`](crate::Handler) may do from within a call.
pub struct Io {
    pub(crate) registry: Registry,
    pub(crate) config: Config,
    pub(crate) slots: Vec<Slot>,
    pub(crate) free: Vec<u32>,
    pub(crate) open: usize,
    pub(crate) pool: Pool,
    pub(crate) timers: Timers,
    pub(crate) now: Instant,
    pub(crate) dirty: Vec<u32>,
    pub(crate) queued: Vec<u32>,
    pub(crate) closing: Vec<(ConnId, Close)>,
    pub(crate) listener: Option<mio::net::TcpListener>,
    pub(crate) next_thread: usize,
    pub(crate) stopping: bool,
    pub(crate) shared: std::sync::Arc<Shared>,
    pub(crate) thread: usize,
}

impl Io {
    /// The time at which the current batch of events was taken up.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Which thread of the group this is, from 0.
    #[must_use]
    pub fn thread(&self) -> usize {
        self.thread
    }

    /// Open connections of this thread, of either origin.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.open
    }

    /// Connections the group has accepted and not closed yet, over all threads.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.shared.accepted()
    }

    /// Whether `conn` is still open.
    #[must_use]
    pub fn is_open(&self, conn: ConnId) -> bool {
        self.get(conn).is_some()
    }

    /// The peer's address, while the connection is open.
    #[must_use]
    pub fn peer(&self, conn: ConnId) -> Option<SocketAddr> {
        self.get(conn)?.stream.peer_addr().ok()
    }

    /// Begins to connect. [`Handler::on_open`](crate::Handler::on_open) tells when it stands,
    /// [`Handler::on_close`](crate::Handler::on_close) with [`Close::Refused`] when it fails; what
    /// is written before is sent as soon as it stands.
    ///
    /// # Errors
    /// When no socket can be had (too many open files, no route).
    pub fn connect(&mut self, address: SocketAddr, tag: u64) -> io::Result<ConnId> {
        let stream = TcpStream::connect(address)?;
        self.insert(stream, Origin::Connected(tag), true)
    }

    /// The bytes waiting to be sent to `conn`, to append to; they leave with the end of the batch.
    /// Extend only: the front may be on its way already. `None` when the connection is closed.
    #[must_use]
    pub fn output(&mut self, conn: ConnId) -> Option<&mut Vec<u8>> {
        let Io { slots, pool, dirty, .. } = self;
        let connection = match slots.get_mut(conn.index()) {
            Some(Slot::Open(connection)) if connection.generation == conn.generation => connection,
            _ => return None,
        };
        if !connection.dirty {
            connection.dirty = true;
            dirty.push(conn.index);
        }
        Some(connection.output.tail(pool))
    }

    /// Appends to the output of `conn`; without effect when it is closed.
    pub fn write(&mut self, conn: ConnId, bytes: &[u8]) {
        if let Some(output) = self.output(conn) {
            output.extend_from_slice(bytes);
        }
    }

    /// How many bytes wait to be sent to `conn`.
    #[must_use]
    pub fn output_len(&self, conn: ConnId) -> usize {
        self.get(conn).map_or(0, |connection| connection.output.len())
    }

    /// Says that [`Handler::on_data`](crate::Handler::on_data) is to be called again only with so
    /// many bytes at hand, what was left unconsumed included. More than
    /// [`Config::input_bytes_max`] is never there: the connection is closed on the way.
    pub fn want(&mut self, conn: ConnId, bytes: usize) {
        let beyond = self.config.input_bytes_max.saturating_add(1);
        if let Some(connection) = self.get_mut(conn) {
            connection.wanted = bytes.min(beyond);
        }
    }

    /// Stops reading from `conn`: back-pressure. The kernel's buffer fills, then the peer's.
    pub fn pause(&mut self, conn: ConnId) {
        if let Some(connection) = self.get_mut(conn) {
            connection.paused = true;
        }
    }

    /// Reads from `conn` again, beginning with what was left unconsumed.
    pub fn resume(&mut self, conn: ConnId) {
        if let Some(connection) = self.get_mut(conn)
            && connection.paused
        {
            connection.paused = false;
            connection.show_again = true;
            self.enqueue(conn.index);
        }
    }

    /// Closes `conn` at the end of the batch; of what waits, only what the kernel takes at once is
    /// sent.
    pub fn close(&mut self, conn: ConnId) {
        self.close_because(conn, Close::Local);
    }

    /// Closes `conn` as soon as what waits has been sent; nothing more is read from it.
    pub fn close_when_sent(&mut self, conn: ConnId) {
        if let Some(connection) = self.get_mut(conn) {
            connection.close_when_sent = true;
            if connection.output.is_empty() {
                self.close(conn);
            }
        }
    }

    /// Calls [`Handler::on_timer`](crate::Handler::on_timer) with `key` once `at` has come. Timers
    /// cannot be cancelled: a handler ignores the keys it no longer waits for.
    pub fn timer(&mut self, at: Instant, key: u64) {
        self.timers.add(at, key);
    }

    /// Takes no more connections; the listening socket is closed.
    pub fn stop_accepting(&mut self) {
        if let Some(mut listener) = self.listener.take() {
            // Deregistration fails only for a descriptor that is not registered.
            let _ = self.registry.deregister(&mut listener);
        }
    }

    /// Ends this thread's loop with the current batch: output that the kernel accepts at once is
    /// sent, every connection is closed.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Ends this thread's loop with the current batch, and sends nothing more: what waits is
    /// dropped, that of earlier batches included, and every connection is closed.
    pub fn abandon(&mut self) {
        self.stop();
        let Io { slots, pool, .. } = self;
        for slot in slots {
            if let Slot::Open(connection) = slot {
                connection.output.release(pool);
            }
        }
    }

    /// The open connections of this thread.
    pub fn ids(&self) -> impl Iterator<Item = (ConnId, Origin)> + '_ {
        self.slots.iter().enumerate().filter_map(|(index, slot)| match slot {
            Slot::Open(connection) => Some((
                ConnId { index: index as u32, generation: connection.generation },
                connection.origin,
            )),
            Slot::Free { .. } => None,
        })
    }

    pub(crate) fn get(&self, conn: ConnId) -> Option<&Connection> {
        match self.slots.get(conn.index()) {
            Some(Slot::Open(connection)) if connection.generation == conn.generation => {
                Some(connection)
            }
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, conn: ConnId) -> Option<&mut Connection> {
        match self.slots.get_mut(conn.index()) {
            Some(Slot::Open(connection)) if connection.generation == conn.generation => {
                Some(connection)
            }
            _ => None,
        }
    }

    pub(crate) fn at(&mut self, index: u32) -> Option<(ConnId, &mut Connection)> {
        match self.slots.get_mut(index as usize) {
            Some(Slot::Open(connection)) => {
                Some((ConnId { index, generation: connection.generation }, connection))
            }
            _ => None,
        }
    }

    pub(crate) fn enqueue(&mut self, index: u32) {
        if let Some((_, connection)) = self.at(index)
            && !connection.queued
        {
            connection.queued = true;
            self.queued.push(index);
        }
    }

    pub(crate) fn close_because(&mut self, conn: ConnId, why: Close) {
        if let Some(connection) = self.get_mut(conn)
            && !connection.closing
        {
            connection.closing = true;
            self.closing.push((conn, why));
        }
    }

    pub(crate) fn listen(&mut self, listener: TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let mut listener = mio::net::TcpListener::from_std(listener);
        self.registry.register(&mut listener, LISTENER, Interest::READABLE)?;
        self.listener = Some(listener);
        Ok(())
    }

    pub(crate) fn insert(
        &mut self,
        mut stream: TcpStream,
        origin: Origin,
        connecting: bool,
    ) -> io::Result<ConnId> {
        if !connecting {
            stream.set_nodelay(true)?;
        }
        let index = self.free.last().copied().unwrap_or(self.slots.len() as u32);
        self.registry.register(
            &mut stream,
            Token(index as usize),
            Interest::READABLE | Interest::WRITABLE,
        )?;
        let generation = match self.free.pop() {
            Some(_) => match self.slots[index as usize] {
                Slot::Free { generation } => generation,
                Slot::Open(_) => unreachable!("an open slot was on the free list"),
            },
            None => {
                self.slots.push(Slot::Free { generation: 0 });
                0
            }
        };
        self.slots[index as usize] = Slot::Open(Box::new(Connection {
            stream,
            generation,
            origin,
            input: Vec::new(),
            consumed: 0,
            wanted: 0,
            output: Output::default(),
            last_active: self.now,
            connecting,
            readable: false,
            hung_up: false,
            ended: false,
            writable: !connecting,
            paused: false,
            show_again: false,
            congested: false,
            close_when_sent: false,
            closing: false,
            dirty: false,
            queued: false,
        }));
        self.open += 1;
        Ok(ConnId { index, generation })
    }

    pub(crate) fn remove(&mut self, conn: ConnId) -> Option<Box<Connection>> {
        self.get(conn)?;
        // Wrapping is harmless: it takes 2^32 connections on one slot to meet an old id again.
        let freed = Slot::Free { generation: conn.generation.wrapping_add(1) };
        match std::mem::replace(&mut self.slots[conn.index()], freed) {
            Slot::Open(mut connection) => {
                self.free.push(conn.index);
                self.open -= 1;
                self.pool.give(std::mem::take(&mut connection.input));
                connection.output.release(&mut self.pool);
                // Closing the descriptor, which dropping the stream does, deregisters it.
                Some(connection)
            }
            Slot::Free { .. } => None,
        }
    }

    /// One last attempt to send what waits for `conn`, which is about to be closed.
    pub(crate) fn flush_last(&mut self, conn: ConnId) {
        if let Some(connection) = self.get_mut(conn)
            && connection.writable
            && !connection.output.is_empty()
        {
            // Whether it fails or is cut short, the connection closes now.
            let _ = connection.stream.write(connection.output.pending());
        }
    }

    /// Sends what waits for the connection at `index`, as far as the kernel takes it.
    /// Returns whether output fell below the low-water mark with this.
    pub(crate) fn flush(&mut self, index: u32) -> bool {
        let low = self.config.output_low_water_bytes;
        let high = self.config.output_high_water_bytes;
        let now = self.now;
        let Io { slots, pool, .. } = self;
        let Some(Slot::Open(connection)) = slots.get_mut(index as usize) else { return false };
        let conn = ConnId { index, generation: connection.generation };
        while connection.writable && !connection.output.is_empty() {
            let pending = connection.output.pending();
            let asked = pending.len();
            match connection.stream.write(pending) {
                Ok(sent) => {
                    connection.last_active = now;
                    connection.output.advance(sent, pool);
                    // A short write means that the kernel's buffer is full: an edge will come.
                    connection.writable = sent == asked;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    connection.writable = false;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    connection.output.release(pool);
                    connection.writable = false;
                    self.close_because(conn, Close::Failed(error));
                    return false;
                }
            }
        }
        let waiting = connection.output.len();
        if waiting == 0 && connection.close_when_sent {
            self.close(conn);
            return false;
        }
        if waiting > high {
            connection.congested = true;
        } else if connection.congested && waiting <= low {
            connection.congested = false;
            connection.show_again = true;
            self.enqueue(index);
            return true;
        }
        false
    }
}

/// Receives into the spare capacity of `buffer`, at most `bytes_max`.
pub(crate) fn receive(
    stream: &TcpStream,
    buffer: &mut Vec<u8>,
    bytes_max: usize,
) -> io::Result<usize> {
    buffer.reserve(bytes_max);
    let start = buffer.len();
    let spare = &mut buffer.spare_capacity_mut()[..bytes_max];
    // SAFETY: the pointer and length describe memory that belongs to the vector and that nothing
    // else refers to; the kernel writes at most that many bytes.
    let received = unsafe {
        libc::recv(stream.as_raw_fd(), spare.as_mut_ptr().cast::<libc::c_void>(), spare.len(), 0)
    };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    let received = received.unsigned_abs();
    // SAFETY: the kernel has initialised that many bytes behind the old length.
    unsafe { buffer.set_len(start + received) };
    Ok(received)
}
