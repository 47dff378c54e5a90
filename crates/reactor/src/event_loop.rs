//! One thread's loop: waits, reads, calls the handler, writes.

use std::io;
use std::net::TcpStream as StdTcpStream;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Poll};

use crate::hold::ROOM;
use crate::id::ConnId;
use crate::io::{Close, Io, LISTENER, Origin, TIMER, WAKE, receive};
use crate::room::FREE_BYTES;

/// Events taken from the kernel at a time.
const EVENTS_MAX: usize = 1024;
/// The loop receives at most this many times from a connection before it reads others.
const RECEIVES_MAX: usize = 4;
/// If a request lacks at least this many bytes, the loop receives them straight into the connection's own buffer. Smaller
/// pieces pass through the scratch buffer, so that the connection's buffer stays small.
const DIRECT_BYTES_MIN: usize = 64 * 1024;
/// If a batch gathers ([`Handler::gathers`]), the loop polls for more events, at most `GATHERS_MAX` times and for
/// `GATHERING_MAX`. The batch's first answers wait that long.
const GATHERS_MAX: usize = 8;
const GATHERING_MAX: Duration = Duration::from_micros(100);
/// A batch accepts at most this many connections.
const ACCEPTS_MAX: usize = 64;
/// A connection may keep a buffer of this capacity, even if its unconsumed input is much shorter.
const HELD_BYTES_MIN: usize = 4 * 1024;
/// Pause in accepting when the process is out of descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Timer keys of the loop itself; handlers use smaller ones.
const SWEEP: u64 = u64::MAX;
const GRACE_OVER: u64 = u64::MAX - 1;
const ACCEPT_AGAIN: u64 = u64::MAX - 2;

/// The program's callbacks: one value per thread, called by that thread only.
///
/// A connection gets `on_open`, any number of `on_data`, perhaps `on_end`, and exactly one
/// `on_close`. A connection that fails after [`Io::connect`] returned gets only `on_close`.
pub trait Handler {
    /// The loop begins.
    fn on_start(&mut self, _io: &mut Io) {}

    /// A connection is open.
    fn on_open(&mut self, io: &mut Io, conn: ConnId, origin: Origin);

    /// Handles input, in order. Returns the number of consumed bytes. Unconsumed bytes are an incomplete request: the
    /// next call shows them again with more input. If `conn` was paused, that call follows [`Io::resume`].
    fn on_data(&mut self, io: &mut Io, conn: ConnId, input: &[u8]) -> usize;

    /// The peer will send no more, but may still read.
    fn on_end(&mut self, io: &mut Io, conn: ConnId) {
        io.close_when_sent(conn);
    }

    /// Output that exceeded the high-water mark has fallen to the low-water mark.
    fn on_drained(&mut self, _io: &mut Io, _conn: ConnId) {}

    /// The connection is closed; `conn` is no longer valid.
    fn on_close(&mut self, io: &mut Io, conn: ConnId, origin: Origin, why: Close);

    /// A timer set with this key has come due. Keys are below `u64::MAX - 8`.
    fn on_timer(&mut self, _io: &mut Io, _key: u64) {}

    /// Another thread has called [`Waker::wake`](crate::Waker::wake).
    fn on_wake(&mut self, _io: &mut Io) {}

    /// Whether the batch should also take events that have arrived since it began, because ending a batch is expensive.
    /// The loop then polls several times more, for at most about 100 µs. Output still leaves at the end of the batch,
    /// and [`Io::now`] stays the time of its beginning.
    fn gathers(&mut self) -> bool {
        false
    }

    /// The batch waits for further events until this time, and sends its output then. `None` ends it at once.
    fn waits_until(&mut self) -> Option<Instant> {
        None
    }

    /// All events of the batch were handled. The loop sends the output after this.
    fn on_batch_end(&mut self, _io: &mut Io) {}

    /// The kernel has taken as much of the batch's output as it accepts. Handlers take the timestamps of replies here.
    /// Output that is written here leaves with the next batch.
    fn on_batch_sent(&mut self, _io: &mut Io) {}

    /// A shutdown has begun, and no connection is accepted any more. Call [`Io::stop`] when all started work is done,
    /// within [`Config::shutdown_grace`](crate::Config::shutdown_grace).
    fn on_shutdown(&mut self, io: &mut Io) {
        io.stop();
    }

    /// The loop has ended and every connection is closed.
    fn on_stop(&mut self, _io: &mut Io) {}
}

pub(crate) struct EventLoop<H> {
    pub(crate) poll: Poll,
    pub(crate) io: Io,
    pub(crate) inbox: Receiver<StdTcpStream>,
    pub(crate) handler: H,
    /// Whether accepting is paused until its timer fires.
    pub(crate) accept_rests: bool,
    pub(crate) shutdown_notified: bool,
    /// The connections to read again: a kept buffer, so that a batch allocates nothing.
    pub(crate) reading: Vec<u32>,
    /// The connections to flush: also a kept buffer.
    pub(crate) flushing: Vec<u32>,
}

impl<H: Handler> EventLoop<H> {
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut scratch = Vec::with_capacity(self.io.config.read_bytes);

        let now = Instant::now();
        self.io.now = now;
        if let Some(idle) = self.io.config.idle_timeout {
            self.io.timer(now + idle, SWEEP);
        }
        self.handler.on_start(&mut self.io);
        self.finish_batch();

        while !self.io.stopping {
            self.io.timers.arm(self.io.now)?;
            let Io { queued: to_read, dirty, closing, .. } = &self.io;
            let idle = to_read.is_empty() && dirty.is_empty() && closing.is_empty();
            let wait = (!idle).then_some(Duration::ZERO);
            match self.poll.poll(&mut events, wait) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                outcome => outcome?,
            }
            self.io.now = Instant::now();

            self.take_up(&events, &mut scratch);
            let mut until = None;
            for _ in 0..GATHERS_MAX {
                if self.io.stopping || !self.handler.gathers() {
                    break;
                }
                let now = Instant::now();
                if now >= *until.get_or_insert(now + GATHERING_MAX) {
                    break;
                }
                match self.poll.poll(&mut events, Some(Duration::ZERO)) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => break,
                    outcome => outcome?,
                }
                if events.is_empty() && self.io.queued.is_empty() {
                    break;
                }
                self.take_up(&events, &mut scratch);
            }

            while !self.io.stopping
                && let Some(until) = self.handler.waits_until()
                && Instant::now() < until
            {
                // The poll's own limit has whole milliseconds.
                self.io.timers.arm_for(until)?;
                let wait = (!self.io.queued.is_empty()).then_some(Duration::ZERO);
                match self.poll.poll(&mut events, wait) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    outcome => outcome?,
                }
                self.take_up(&events, &mut scratch);
            }

            while let Some(key) = self.io.timers.pop_due(self.io.now) {
                match key {
                    SWEEP => self.close_idle(),
                    GRACE_OVER => self.io.stop(),
                    ROOM => {
                        self.io.on_room_timer();
                        for conn in std::mem::take(&mut self.io.drained) {
                            self.handler.on_drained(&mut self.io, conn);
                        }
                    }
                    ACCEPT_AGAIN => {
                        self.accept_rests = false;
                        self.accept();
                    }
                    key => self.handler.on_timer(&mut self.io, key),
                }
            }

            self.handler.on_batch_end(&mut self.io);
            self.finish_batch();
            self.handler.on_batch_sent(&mut self.io);
        }

        let open: Vec<ConnId> = self.io.ids().map(|(conn, _)| conn).collect();
        for conn in open {
            self.close(conn, Close::Local);
        }
        self.handler.on_stop(&mut self.io);
        Ok(())
    }

    /// Passes events and unread input to the handler.
    fn take_up(&mut self, events: &Events, scratch: &mut Vec<u8>) {
        for event in events {
            match event.token() {
                WAKE => {
                    self.take_inbox();
                    if self.io.shared.shutting_down() && !self.shutdown_notified {
                        self.shutdown_notified = true;
                        self.io.stop_accepting();
                        let grace = self.io.config.shutdown_grace;
                        self.io.timer(self.io.now + grace, GRACE_OVER);
                        self.handler.on_shutdown(&mut self.io);
                    }
                    self.handler.on_wake(&mut self.io);
                }
                TIMER => self.io.timers.fired(),
                LISTENER => self.accept(),
                token => self.on_event(token.0 as u32, event, scratch),
            }
        }
        let mut reading = std::mem::take(&mut self.reading);
        std::mem::swap(&mut reading, &mut self.io.queued);
        for index in reading.drain(..) {
            if let Some((_, connection)) = self.io.at(index) {
                connection.queued = false;
                self.read(index, scratch);
            }
        }
        self.reading = reading;
    }

    /// Sends the batch's output and removes closed connections, repeatedly: each step may make work for the other.
    fn finish_batch(&mut self) {
        self.io.holding.batch_bytes = 0;
        self.io.trim_soon();
        while !self.io.dirty.is_empty() || !self.io.closing.is_empty() {
            let mut flushing = std::mem::take(&mut self.flushing);
            std::mem::swap(&mut flushing, &mut self.io.dirty);
            for index in flushing.drain(..) {
                if let Some((_, connection)) = self.io.at(index) {
                    connection.dirty = false;
                    self.flush(index);
                }
            }
            self.flushing = flushing;
            for (conn, why) in std::mem::take(&mut self.io.closing) {
                self.close(conn, why);
            }
        }
    }

    fn flush(&mut self, index: u32) {
        if self.io.flush(index)
            && let Some((conn, _)) = self.io.at(index)
        {
            self.handler.on_drained(&mut self.io, conn);
        }
    }

    fn on_event(&mut self, index: u32, event: &mio::event::Event, scratch: &mut Vec<u8>) {
        // An earlier event of this batch may have closed the connection.
        let Some((conn, connection)) = self.io.at(index) else { return };
        if connection.closing {
            return;
        }
        if connection.connecting {
            if !event.is_writable() && !event.is_error() {
                return;
            }
            let origin = connection.origin;
            let failure = match connection.stream.take_error() {
                Ok(None) => connection.stream.peer_addr().err(),
                Ok(Some(error)) | Err(error) => Some(error),
            };
            match failure {
                Some(error) if error.kind() == io::ErrorKind::NotConnected => return,
                Some(error) => return self.io.close_because(conn, Close::Refused(error)),
                None => {}
            }
            connection.connecting = false;
            // This fails only on a closed socket; the next read reports that.
            let _ = connection.stream.set_nodelay(true);
            self.handler.on_open(&mut self.io, conn, origin);
        } else if event.is_error()
            && let Ok(Some(error)) = connection.stream.take_error()
        {
            return self.io.close_because(conn, Close::Failed(error));
        }
        let Some((_, connection)) = self.io.at(index) else { return };
        connection.hung_up |= event.is_read_closed();
        if event.is_writable() {
            connection.writable = true;
            // Output of this batch leaves at its end.
            if !connection.output.is_empty() && !connection.dirty {
                self.flush(index);
            }
        }
        if event.is_readable() || event.is_read_closed() {
            if let Some((_, connection)) = self.io.at(index) {
                connection.readable = true;
            }
            self.read(index, scratch);
        }
    }

    /// Passes unconsumed and new input to the handler, unless the connection is paused or congested.
    fn read(&mut self, index: u32, scratch: &mut Vec<u8>) {
        for _ in 0..RECEIVES_MAX {
            let read_bytes = self.io.config.read_bytes;
            let high = self.io.config.output_high_water_bytes;
            let now = self.io.now;
            let full = self.io.batch_is_full();
            let Some((conn, connection)) = self.io.at(index) else { return };
            if connection.ended || !connection.may_deliver() {
                return;
            }
            if connection.dirty && connection.output.len() > high || full {
                // Read more after this batch is sent, if the kernel accepts the output.
                return self.io.enqueue(index);
            }
            if std::mem::take(&mut connection.show_again) && !connection.input.is_empty() {
                self.deliver(conn);
                continue;
            }
            if !connection.readable {
                return;
            }
            if connection.has_long_input() && !self.io.reserve(index) {
                return;
            }
            let tight = self.io.shared.room.is_tight();
            let Some((_, connection)) = self.io.at(index) else { return };

            connection.input.drain(..connection.consumed);
            connection.consumed = 0;
            let missing = connection.wanted.saturating_sub(connection.input.len());
            let direct = missing >= DIRECT_BYTES_MIN;
            let asked = match direct {
                true => missing,
                false if tight && connection.origin == Origin::Accepted => FREE_BYTES,
                false => read_bytes,
            };
            let outcome = if direct {
                receive(&connection.stream, &mut connection.input, asked)
            } else {
                scratch.clear();
                receive(&connection.stream, scratch, asked)
            };
            match outcome {
                Ok(0) => {
                    connection.readable = false;
                    connection.ended = true;
                    return self.handler.on_end(&mut self.io, conn);
                }
                Ok(received) => {
                    connection.last_active = now;
                    // A short read means that the stream is drained. After a hang-up, read on: the kernel announces the
                    // end of input only once.
                    if received < asked && !connection.hung_up {
                        connection.readable = false;
                    }
                    if !direct && connection.input.is_empty() {
                        self.deliver_scratch(conn, scratch);
                        continue;
                    }
                    if !direct {
                        connection.input.extend_from_slice(scratch);
                    }
                    if connection.input.len() >= connection.wanted {
                        self.deliver(conn);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    connection.readable = false;
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    connection.readable = false;
                    return self.io.close_because(conn, Close::Failed(error));
                }
            }
        }
        if let Some((_, connection)) = self.io.at(index)
            && (connection.readable || connection.show_again)
            && connection.may_deliver()
        {
            self.io.enqueue(index);
        }
    }

    fn deliver_scratch(&mut self, conn: ConnId, scratch: &[u8]) {
        let consumed = self.show(conn, scratch);
        if consumed < scratch.len() {
            let mut rest = self.io.pool.take();
            rest.extend_from_slice(&scratch[consumed..]);
            self.keep(conn, rest, 0, consumed > 0);
        } else {
            self.count_consumed(conn);
        }
    }

    fn deliver(&mut self, conn: ConnId) {
        let Some(connection) = self.io.get_mut(conn) else { return };
        let input = std::mem::take(&mut connection.input);
        let mut consumed = std::mem::take(&mut connection.consumed);
        let shown = self.show(conn, &input[consumed..]);
        consumed += shown;
        if consumed == input.len() {
            self.io.pool.give(input);
            self.count_consumed(conn);
        } else {
            self.keep(conn, input, consumed, shown > 0);
        }
    }

    fn count_consumed(&mut self, conn: ConnId) {
        if self.io.get(conn).is_some_and(|connection| connection.has_long_input()) {
            self.io.count_input(conn.index, true);
        }
    }

    fn show(&mut self, conn: ConnId, input: &[u8]) -> usize {
        if let Some(connection) = self.io.get_mut(conn) {
            connection.wanted = 0;
        }
        let consumed = self.handler.on_data(&mut self.io, conn, input);
        assert!(consumed <= input.len(), "a handler consumed more than it was shown");
        let written = self.io.output_len(conn);
        if written > FREE_BYTES {
            self.io.holding.batch_bytes += written;
        }
        consumed
    }

    fn keep(&mut self, conn: ConnId, mut input: Vec<u8>, mut consumed: usize, progressed: bool) {
        let bytes_max = self.io.config.input_bytes_max;
        let Some(connection) = self.io.get_mut(conn) else { return };
        let rest = input.len() - consumed;
        let needed = rest.max(connection.wanted);
        if input.capacity() > HELD_BYTES_MIN && needed < input.capacity() / 4 {
            // Shrink the buffer: ten thousand half-sent requests must not hold ten thousand of the largest buffers.
            let mut fitting = Vec::with_capacity(needed);
            fitting.extend_from_slice(&input[consumed..]);
            self.io.pool.give(std::mem::replace(&mut input, fitting));
            consumed = 0;
        }
        let Some(connection) = self.io.get_mut(conn) else { return };
        (connection.input, connection.consumed) = (input, consumed);
        if rest > bytes_max && !connection.paused {
            self.io.close_because(conn, Close::Overflow);
        } else if needed > FREE_BYTES || connection.request_bytes > 0 {
            self.io.count_input(conn.index, progressed);
        }
    }

    fn accept(&mut self) {
        // One timer ends the pause; connections that arrive during the pause set no further timers.
        if self.accept_rests {
            return;
        }
        for _ in 0..ACCEPTS_MAX {
            let Some(listener) = &self.io.listener else { return };
            match listener.accept() {
                Ok((stream, _)) => self.deal(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The peer gave up before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    // Out of descriptors or memory: waiting connections stay in the backlog.
                    return self.rest_from_accepting(ACCEPT_BACKOFF);
                }
            }
        }
        // Accept more in a later batch.
        self.rest_from_accepting(Duration::from_nanos(1));
    }

    fn rest_from_accepting(&mut self, rest: Duration) {
        self.accept_rests = true;
        self.io.timer(self.io.now + rest, ACCEPT_AGAIN);
    }

    /// Passes an accepted connection to the next thread in turn.
    fn deal(&mut self, stream: TcpStream) {
        let shared = &self.io.shared;
        if shared.accepted() >= self.io.config.connections_max {
            // The refused peer may be gone: ignore errors.
            let _ = io::Write::write(&mut &stream, self.io.config.refusal);
            return;
        }
        shared.accepted.fetch_add(1, Ordering::Relaxed);
        self.io.next_thread = (self.io.next_thread + 1) % shared.threads.len();
        if self.io.next_thread == self.io.thread {
            self.adopt(stream);
        } else if !shared.threads[self.io.next_thread].hand_over(StdTcpStream::from(stream)) {
            // That thread has ended: the group is shutting down.
            shared.accepted.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn take_inbox(&mut self) {
        while let Ok(stream) = self.inbox.try_recv() {
            self.adopt(TcpStream::from_std(stream));
        }
    }

    fn adopt(&mut self, stream: TcpStream) {
        match self.io.insert(stream, Origin::Accepted, false) {
            Ok(conn) => self.handler.on_open(&mut self.io, conn, Origin::Accepted),
            // The peer has already left, or the kernel is out of memory.
            Err(_) => {
                self.io.shared.accepted.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn close(&mut self, conn: ConnId, why: Close) {
        if matches!(why, Close::Local) {
            // Output that the kernel accepts at once is still sent.
            self.io.flush_last(conn);
        }
        if let Some(connection) = self.io.remove(conn) {
            let origin = connection.origin;
            drop(connection);
            if origin == Origin::Accepted {
                self.io.shared.accepted.fetch_sub(1, Ordering::Relaxed);
            }
            self.handler.on_close(&mut self.io, conn, origin, why);
        }
    }

    fn close_idle(&mut self) {
        let Some(idle) = self.io.config.idle_timeout else { return };
        let now = self.io.now;
        let mut next = now + idle;
        let mut expired = Vec::new();
        for (conn, origin) in self.io.ids() {
            if let (Origin::Accepted, Some(connection)) = (origin, self.io.get(conn)) {
                let until = connection.last_active + idle;
                if until <= now {
                    expired.push(conn);
                } else {
                    next = next.min(until);
                }
            }
        }
        for conn in expired {
            self.io.close_because(conn, Close::Idle);
        }
        // A single timer serves all connections: a sweep checks all of them.
        self.io.timer(next.max(now + idle / 8), SWEEP);
    }
}
