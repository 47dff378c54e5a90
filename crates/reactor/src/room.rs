//! Memory for unfinished requests and unread answers: one budget for the threads of a group.
//!
//! One half is for requests, the other for answers. A request reserves its length before more of it is read; without
//! room, its connection waits unread. While the answers fill their half, handlers begin no long answer. If a connection
//! or a handler waits, the loops close connections that hold memory and stand still.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::io::{Close, ConnId, Connection, Io, Origin};

/// Input or output of a connection up to this length is not counted, and waits for no room.
pub(crate) const FREE_BYTES: usize = 4 * 1024;
/// A thread ends its batch when it has written about this many bytes of long answers. The answers then leave, or count.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Pause before waiting connections try again.
const RETRY: Duration = Duration::from_millis(5);
/// Pause between the checks of a thread whose connections hold memory.
const CHECK: Duration = Duration::from_millis(50);
/// While a connection waits for room, a holder may stand still for this long…
const STILL_MAX: Duration = Duration::from_secs(1);
/// …and hold memory for this long, plus a millisecond per KiB.
const HOLDING_MAX: Duration = Duration::from_secs(10);
/// After freeing this much in large buffers, a thread gives free memory back to the system.
const TRIMMED_BYTES_MIN: usize = 8 * 1024 * 1024;

/// The budget of a group.
#[derive(Debug)]
pub(crate) struct Room {
    half: usize,
    requests: AtomicUsize,
    answers: AtomicUsize,
    /// Connections that wait for room.
    waiting: AtomicUsize,
    /// Whether a handler waits for room for answers.
    handler_waits: AtomicBool,
}

impl Room {
    pub(crate) fn new(bytes_max: usize) -> Room {
        Room {
            half: bytes_max / 2,
            requests: AtomicUsize::new(0),
            answers: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            handler_waits: AtomicBool::new(false),
        }
    }

    /// Whether connections read little at a time.
    pub(crate) fn is_tight(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
            || self.requests.load(Ordering::Relaxed) > self.half
    }

    fn is_full_of_answers(&self) -> bool {
        self.answers.load(Ordering::Relaxed) >= self.half
    }

    fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
            || self.handler_waits.load(Ordering::Relaxed) && self.is_full_of_answers()
    }

    /// Raises the reservation of a request from `old` to `new` bytes. A request that is alone always has room.
    fn reserve(&self, old: usize, new: usize) -> bool {
        let raised = |held: usize| {
            let after = held - old + new;
            (after <= self.half || held == old).then_some(after)
        };
        self.requests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raised).is_ok()
    }
}

/// Replaces a part of a shared sum.
fn replace(sum: &AtomicUsize, old: usize, new: usize) {
    if new >= old {
        sum.fetch_add(new - old, Ordering::Relaxed);
    } else {
        sum.fetch_sub(old - new, Ordering::Relaxed);
    }
}

/// What a thread holds of the room.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    /// Counted bytes of this thread's connections.
    bytes: usize,
    /// Connections that wait for room.
    waiting: Vec<ConnId>,
    /// The time of the next check.
    due: Option<Instant>,
    /// Bytes of long answers that the batch has written.
    pub(crate) batch_bytes: usize,
}

impl Connection {
    /// Whether the connection holds memory until its peer acts, and for too long.
    fn stands_still(&self, now: Instant) -> bool {
        let reads = self.request_bytes > 0 && !(self.paused || self.waits_for_room);
        let writes = self.answer_bytes > 0;
        let silent = reads && !self.readable || writes && !self.writable;
        let held = self.request_bytes + self.answer_bytes;
        let allowed = HOLDING_MAX + Duration::from_millis(held as u64 / 1024);
        silent && now >= self.last_active + STILL_MAX
            || (reads || writes) && now >= self.holds_since + allowed
    }
}

impl Io {
    /// Whether the loop may read more of the connection's request. If not, the connection waits for room.
    pub(crate) fn reserve(&mut self, index: u32) -> bool {
        let input_bytes_max = self.config.input_bytes_max;
        let Some((conn, connection)) = self.at(index) else { return true };
        if connection.origin != Origin::Accepted {
            return true;
        }
        let rest = connection.input.len() - connection.consumed;
        let new = rest.max(connection.wanted).min(input_bytes_max);
        let old = connection.request_bytes;
        if new <= old.max(FREE_BYTES) {
            return true;
        }
        if !self.shared.room.reserve(old, new) {
            self.wait_for_room(conn);
            return false;
        }
        self.hold(index, |connection| connection.request_bytes = new);
        true
    }

    /// Counts the kept input of a connection. A rest of at most [`FREE_BYTES`] gives the reservation back; a longer one
    /// keeps or raises it. During a pause, the input may be whole requests, which count with their length.
    pub(crate) fn count_input(&mut self, index: u32) {
        let Some((_, connection)) = self.at(index) else { return };
        if connection.origin != Origin::Accepted {
            return;
        }
        let rest = connection.input.len() - connection.consumed;
        let old = connection.request_bytes;
        let needed = rest.max(connection.wanted);
        if connection.paused || needed <= FREE_BYTES {
            let new = if needed > FREE_BYTES { rest } else { 0 };
            if new != old {
                replace(&self.shared.room.requests, old, new);
                self.hold(index, |connection| connection.request_bytes = new);
            }
        } else {
            self.reserve(index);
        }
    }

    /// Counts the unsent output of an accepted connection.
    pub(crate) fn count_output(&mut self, index: u32) {
        let Some((_, connection)) = self.at(index) else { return };
        let long = connection.origin == Origin::Accepted && connection.output.len() > FREE_BYTES;
        let new = if long { connection.output.capacity() } else { 0 };
        let old = connection.answer_bytes;
        if new != old {
            replace(&self.shared.room.answers, old, new);
            self.hold(index, |connection| connection.answer_bytes = new);
        }
    }

    /// Gives back the room of a connection that is closed.
    pub(crate) fn leave_room(&mut self, connection: &Connection) {
        let room = &self.shared.room;
        let (request, answer) = (connection.request_bytes, connection.answer_bytes);
        if request + answer > 0 {
            replace(&room.requests, request, 0);
            replace(&room.answers, answer, 0);
            self.holding.bytes -= request + answer;
        }
        if connection.waits_for_room {
            room.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether a handler may begin work that ends in a long answer. If not, a timer ends a
    /// batch within 5 ms, and the handler can ask again.
    pub fn has_room_for_answers(&mut self) -> bool {
        let room = &self.shared.room;
        let full = room.is_full_of_answers();
        if full != room.handler_waits.load(Ordering::Relaxed) {
            room.handler_waits.store(full, Ordering::Relaxed);
        }
        if full {
            self.check_room(RETRY);
        }
        !full
    }

    /// Counts a request that the handler keeps, until [`Io::release_request`]: other long requests wait for room.
    pub fn hold_request(&self, bytes: usize) {
        if bytes > FREE_BYTES {
            replace(&self.shared.room.requests, 0, bytes);
        }
    }

    /// Gives back what [`Io::hold_request`] counted, perhaps on another thread.
    pub fn release_request(&self, bytes: usize) {
        if bytes > FREE_BYTES {
            replace(&self.shared.room.requests, bytes, 0);
        }
    }

    /// Gives memory back soon, if large buffers were freed.
    pub(crate) fn trim_soon(&mut self) {
        if self.pool.dropped >= TRIMMED_BYTES_MIN {
            self.check_room(CHECK);
        }
    }

    /// Whether the batch has written so much that it should end.
    pub(crate) fn batch_is_full(&self) -> bool {
        self.holding.batch_bytes >= BATCH_BYTES_MAX
    }

    /// Changes a connection's counted bytes.
    fn hold(&mut self, index: u32, change: impl FnOnce(&mut Connection)) {
        let now = self.now;
        let Some((_, connection)) = self.at(index) else { return };
        let old = connection.request_bytes + connection.answer_bytes;
        change(connection);
        let new = connection.request_bytes + connection.answer_bytes;
        if old == 0 {
            connection.holds_since = now;
        }
        let holding = &mut self.holding;
        holding.bytes = holding.bytes - old + new;
        self.check_room(CHECK);
    }

    /// Shows the unconsumed input again after a few milliseconds, and reads no more before.
    pub fn wait_for_room(&mut self, conn: ConnId) {
        if let Some(connection) = self.get_mut(conn)
            && !connection.waits_for_room
        {
            connection.waits_for_room = true;
            self.holding.waiting.push(conn);
            self.shared.room.waiting.fetch_add(1, Ordering::Relaxed);
            self.check_room(RETRY);
        }
    }

    /// Sets the timer of the next check, unless an earlier one is set.
    fn check_room(&mut self, pause: Duration) {
        let at = self.now + pause;
        if self.holding.due.is_none_or(|due| at < due) {
            self.holding.due = Some(at);
            self.timer(at, crate::event_loop::ROOM);
        }
    }

    /// Closes connections of this thread that hold memory and stand still, if others wait for room. Then lets the
    /// waiting connections try again.
    pub(crate) fn on_room_timer(&mut self) {
        let now = self.now;
        if self.holding.due.is_none_or(|due| now < due) {
            return;
        }
        self.holding.due = None;
        if self.shared.room.is_waited_for() && self.holding.bytes > 0 {
            let open: Vec<ConnId> = self.ids().map(|(conn, _)| conn).collect();
            for conn in open {
                if self.get(conn).is_some_and(|connection| connection.stands_still(now)) {
                    self.close_because(conn, Close::Still);
                }
            }
        }
        for conn in std::mem::take(&mut self.holding.waiting) {
            if let Some(connection) = self.get_mut(conn)
                && std::mem::take(&mut connection.waits_for_room)
            {
                connection.show_again = true;
                self.shared.room.waiting.fetch_sub(1, Ordering::Relaxed);
                self.enqueue(conn.index);
            }
        }
        if self.pool.dropped >= TRIMMED_BYTES_MIN {
            self.pool.dropped = 0;
            trim();
        }
        if self.holding.bytes > 0 {
            self.check_room(CHECK);
        }
    }
}

/// Gives free memory back to the system. After many large buffers were freed, glibc would keep most of it.
fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
