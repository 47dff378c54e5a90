//! The operations of a handler, and the state of every connection.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use socket2::{SockRef, TcpKeepalive};

use crate::buffer::{Output, Pool};
use crate::id::ConnId;
use crate::room::{FREE_BYTES, Holding};
use crate::shared::Shared;
use crate::timer::Timers;

/// Tokens of the poll that are not connections.
pub(crate) const WAKE: Token = Token(usize::MAX);
pub(crate) const TIMER: Token = Token(usize::MAX - 1);
pub(crate) const LISTENER: Token = Token(usize::MAX - 2);

/// Silence after which an ended connection is probed, and pause between three probes.
const PROBED_AFTER: Duration = Duration::from_secs(20);

/// Limits of one event loop.
#[derive(Debug, Clone)]
pub struct Config {
    /// A receive reads at most this many bytes into the thread's scratch buffer.
    pub read_bytes: usize,
    /// Largest unconsumed input of a connection, in bytes; beyond it the connection is closed.
    /// Must exceed the largest request that the handler accepts.
    pub input_bytes_max: usize,
    /// An accepted connection with more unsent output than this is not read from…
    pub output_high_water_bytes: usize,
    /// …until its unsent output is at most this.
    pub output_low_water_bytes: usize,
    /// Memory of the whole group for unfinished requests and unread answers of accepted connections, in bytes.
    /// Longer requests wait for room. Connections that then hold memory and stand still are closed.
    pub buffered_bytes_max: usize,
    /// Largest number of accepted connections of the whole group; further ones are refused.
    pub connections_max: usize,
    /// Longest request of an accepted connection. The memory has room for six of them in any case.
    pub request_bytes_max: usize,
    /// The text that a refused connection gets before it is closed.
    pub refusal: &'static [u8],
    /// An accepted connection without traffic in either direction for this time is closed.
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
            buffered_bytes_max: usize::MAX,
            connections_max: 16 * 1024,
            request_bytes_max: 4 * 1024 * 1024,
            refusal: b"",
            idle_timeout: None,
            shutdown_grace: Duration::from_secs(5),
        }
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
    /// The handler closed the connection (by default after the peer's end of input), or the loop ended.
    Local,
    /// No traffic for [`Config::idle_timeout`].
    Idle,
    /// The unconsumed input exceeded [`Config::input_bytes_max`].
    Overflow,
    /// The connection held memory and stood still, while other connections waited for memory.
    Still,
    /// The connect failed.
    Refused(io::Error),
    /// The kernel reported an error.
    Failed(io::Error),
}

pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) generation: u32,
    pub(crate) origin: Origin,
    /// Consumed bytes, then unconsumed input; it has no memory between requests.
    pub(crate) input: Vec<u8>,
    /// Consumed bytes at the front of `input`. Moving the rest to the front after each request would cost more than
    /// handling the request.
    pub(crate) consumed: usize,
    /// Bytes of input that must be there before the handler is called.
    pub(crate) wanted: usize,
    pub(crate) output: Output,
    pub(crate) last_active: Instant,
    /// Bytes of input that are counted: those of a request that is long and unfinished.
    pub(crate) request_bytes: usize,
    /// Bytes of unsent output that are counted.
    pub(crate) answer_bytes: usize,
    pub(crate) sent_since: usize,
    /// When the first of those bytes were counted.
    pub(crate) holds_since: Instant,
    pub(crate) waits_for_room: bool,
    pub(crate) connecting: bool,
    /// Whether the kernel may have input: an edge was seen, and the input was not yet read to its end.
    pub(crate) readable: bool,
    /// Whether the peer will send no more; known before the last bytes are read.
    pub(crate) hung_up: bool,
    /// Whether the end of the input was read and reported to the handler.
    pub(crate) ended: bool,
    pub(crate) writable: bool,
    pub(crate) paused: bool,
    /// Whether a pause or congestion held back unconsumed input, to show before reading more.
    pub(crate) show_again: bool,
    /// Whether output exceeded the high-water mark, and has not yet fallen to the low one.
    pub(crate) congested: bool,
    pub(crate) close_when_sent: bool,
    /// Whether the connection closes at the end of the batch; the handler gets no more input of it.
    pub(crate) closing: bool,
    /// Whether it is in the list of connections to flush.
    pub(crate) dirty: bool,
    /// Whether it is in the list of connections to read without waiting for an event.
    pub(crate) queued: bool,
}

impl Connection {
    pub(crate) fn may_deliver(&self) -> bool {
        // Two peers that each stop reading until the other reads would deadlock. So only the accepting side stops; the
        // connecting side bounds its own output.
        let congested = self.congested && self.origin == Origin::Accepted;
        let held_back = self.paused || congested || self.waits_for_room;
        !(held_back || self.connecting || self.close_when_sent || self.closing)
    }
}

pub(crate) enum Slot {
    Free { generation: u32 },
    Open(Box<Connection>),
}

/// The operations of a [`Handler`](crate::Handler) within a callback.
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
    pub(crate) holding: Holding,
    /// Connections whose output fell to the low-water mark outside of a batch.
    pub(crate) drained: Vec<ConnId>,
    pub(crate) shared: std::sync::Arc<Shared>,
    pub(crate) thread: usize,
}

impl Io {
    /// The time at which the current batch began.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The number of this thread in the group, from 0.
    pub fn thread(&self) -> usize {
        self.thread
    }

    /// Open connections of this thread, of either origin.
    pub fn connections(&self) -> usize {
        self.open
    }

    /// Open accepted connections of all threads of the group.
    pub fn accepted(&self) -> usize {
        self.shared.accepted()
    }

    /// Whether `conn` is still open.
    pub fn is_open(&self, conn: ConnId) -> bool {
        self.get(conn).is_some()
    }

    /// The peer's address, while the connection is open.
    pub fn peer(&self, conn: ConnId) -> Option<SocketAddr> {
        self.get(conn)?.stream.peer_addr().ok()
    }

    /// Begins to connect. Success calls [`Handler::on_open`](crate::Handler::on_open); failure calls
    /// [`Handler::on_close`](crate::Handler::on_close) with [`Close::Refused`]. Output written before is sent once the
    /// connection is open.
    ///
    /// # Errors
    /// When the system refuses a socket (too many open files, no route).
    pub fn connect(&mut self, address: SocketAddr, tag: u64) -> io::Result<ConnId> {
        let stream = TcpStream::connect(address)?;
        self.insert(stream, Origin::Connected(tag), true)
    }

    /// The unsent output of `conn`, to append to; it is sent at the end of the batch.
    /// Only extend it: its front may have been sent. `None` when the connection is closed.
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

    /// Appends to the output of `conn`; no effect on a closed connection.
    pub fn write(&mut self, conn: ConnId, bytes: &[u8]) {
        if let Some(output) = self.output(conn) {
            output.extend_from_slice(bytes);
        }
    }

    /// Passes the output of `conn` to the kernel at once, and not at the end of the batch.
    pub fn send_now(&mut self, conn: ConnId) {
        // Handlers may hear later that output has fallen to the low-water mark.
        if self.is_open(conn) && self.flush(conn.index) {
            self.drained.push(conn);
        }
    }

    /// Bytes of unsent output of `conn`.
    pub fn output_len(&self, conn: ConnId) -> usize {
        self.get(conn).map_or(0, |connection| connection.output.len())
    }

    /// Calls [`Handler::on_data`](crate::Handler::on_data) again only once there are `bytes` of input, including
    /// unconsumed ones. If `bytes` exceeds [`Config::input_bytes_max`], the input reaches that limit first, and the
    /// connection is closed.
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

    /// Reads from `conn` again, beginning with the unconsumed input.
    pub fn resume(&mut self, conn: ConnId) {
        if let Some(connection) = self.get_mut(conn)
            && connection.paused
        {
            connection.paused = false;
            connection.show_again = true;
            self.enqueue(conn.index);
        }
    }

    /// Closes `conn` at the end of the batch. Only output that the kernel accepts at once is sent.
    pub fn close(&mut self, conn: ConnId) {
        self.close_because(conn, Close::Local);
    }

    /// Closes `conn` once its output has been sent; no more input is read.
    pub fn close_when_sent(&mut self, conn: ConnId) {
        if let Some(connection) = self.get_mut(conn) {
            connection.close_when_sent = true;
            if connection.output.is_empty() {
                self.close(conn);
            }
        }
    }

    /// Sends no more over `conn`, and drops its unsent output. The connection still reads, until the peer closes it.
    /// Returns whether the connection was open.
    pub fn end_output(&mut self, conn: ConnId) -> bool {
        let Io { slots, pool, .. } = self;
        match slots.get_mut(conn.index()) {
            Some(Slot::Open(connection))
                if connection.generation == conn.generation
                    && !(connection.connecting || connection.closing) =>
            {
                connection.output.release(pool);
                connection.wanted = 0;
                // A peer that has lost its power never ends its side; probes find that out.
                let probes =
                    TcpKeepalive::new().with_time(PROBED_AFTER).with_interval(PROBED_AFTER);
                let _ =
                    SockRef::from(&connection.stream).set_tcp_keepalive(&probes.with_retries(3));
                connection.stream.shutdown(std::net::Shutdown::Write).is_ok()
            }
            _ => false,
        }
    }

    /// Calls [`Handler::on_timer`](crate::Handler::on_timer) with `key` at the time `at`. Timers cannot be cancelled: a
    /// handler ignores keys that it no longer waits for.
    pub fn timer(&mut self, at: Instant, key: u64) {
        self.timers.add(at, key);
    }

    /// Accepts no more connections, and closes the listening socket.
    pub fn stop_accepting(&mut self) {
        if let Some(mut listener) = self.listener.take() {
            // Deregistration fails only for a descriptor that is not registered.
            let _ = self.registry.deregister(&mut listener);
        }
    }

    /// Ends this thread's loop with the current batch: sends output that the kernel accepts at once, and closes every
    /// connection.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Ends this thread's loop with the current batch. Drops all unsent output, including output of earlier batches,
    /// and closes every connection.
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
            request_bytes: 0,
            answer_bytes: 0,
            sent_since: 0,
            holds_since: self.now,
            waits_for_room: false,
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
        // Wrapping is harmless: an old id recurs only after 2^32 connections on one slot.
        let freed = Slot::Free { generation: conn.generation.wrapping_add(1) };
        match std::mem::replace(&mut self.slots[conn.index()], freed) {
            Slot::Open(mut connection) => {
                self.free.push(conn.index);
                self.open -= 1;
                self.leave_room(&connection);
                self.pool.give(std::mem::take(&mut connection.input));
                connection.output.release(&mut self.pool);
                // Closing the descriptor, which dropping the stream does, deregisters it.
                Some(connection)
            }
            Slot::Free { .. } => None,
        }
    }

    /// Tries once more to send the output of `conn`, which is about to be closed.
    pub(crate) fn flush_last(&mut self, conn: ConnId) {
        if let Some(connection) = self.get_mut(conn)
            && connection.writable
            && !connection.output.is_empty()
        {
            // The connection closes now, even after a failed or short write.
            let _ = connection.stream.write(connection.output.pending());
        }
    }

    /// Sends the output of the connection at `index`, as far as the kernel accepts it. Returns whether congested output
    /// fell to the low-water mark.
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
                    connection.sent_since = connection.sent_since.saturating_add(sent);
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
        if waiting > FREE_BYTES || connection.answer_bytes > 0 {
            self.count_output(index);
        }
        let Some((_, connection)) = self.at(index) else { return false };
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
    // SAFETY: the pointer and length describe memory of the vector without another reference. The kernel writes at most
    // that many bytes.
    let received = unsafe {
        libc::recv(stream.as_raw_fd(), spare.as_mut_ptr().cast::<libc::c_void>(), spare.len(), 0)
    };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    let received = received.unsigned_abs();
    // SAFETY: the kernel has initialised that many bytes after the old length.
    unsafe { buffer.set_len(start + received) };
    Ok(received)
}
