//! Counts what connections hold of the room, and closes those that stand still.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::id::ConnId;
use crate::io::{Close, Connection, Io, Origin};
use crate::room::{FREE_BYTES, replace};

/// The key of the room's timer.
pub(crate) const ROOM: u64 = u64::MAX - 3;
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
/// After a check that comes later than this, no connection is closed for as long.
const LATE: Duration = Duration::from_millis(250);
/// Largest number of waiting connections that try again at once.
const RETRIES_MAX: usize = 64;
/// After freeing this much in large buffers, a thread gives free memory back to the system.
const TRIMMED_BYTES_MIN: usize = 8 * 1024 * 1024;

impl Connection {
    /// Whether the connection's input counts, or has to be counted.
    pub(crate) fn has_long_input(&self) -> bool {
        self.request_bytes > 0 || self.wanted.max(self.input.len() - self.consumed) > FREE_BYTES
    }

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
    /// Whether the loop may read more of the connection's request. If not, the connection waits for room. It holds none
    /// then: connections that wait for each other would wait for ever.
    pub(crate) fn reserve(&mut self, index: u32) -> bool {
        let request_bytes_max = self.config.request_bytes_max;
        let Some((conn, connection)) = self.at(index) else { return true };
        if connection.origin != Origin::Accepted {
            return true;
        }
        let rest = connection.input.len() - connection.consumed;
        // A line has no known length before its end.
        let is_line = connection.wanted <= rest + 1;
        let needed = if is_line { request_bytes_max } else { connection.wanted };
        let needed = needed.min(request_bytes_max);
        let held = connection.request_bytes;
        if rest.max(connection.wanted) <= FREE_BYTES || needed <= held {
            return true;
        }
        self.set_request_bytes(index, 0);
        let reserved = self.shared.room.reserve(needed);
        if reserved {
            self.hold(index, |connection| connection.request_bytes = needed);
        } else {
            self.wait_for_room(conn);
        }
        reserved
    }

    /// Counts the input of a connection after the handler has seen it. A consumed request gives its room back. The next
    /// one reserves its own, unless a pause holds it back: then its bytes count.
    pub(crate) fn count_input(&mut self, index: u32, consumed: bool) {
        let now = self.now;
        let Some((_, connection)) = self.at(index) else { return };
        if connection.origin != Origin::Accepted {
            return;
        }
        if consumed {
            connection.holds_since = now;
        }
        let rest = connection.input.len() - connection.consumed;
        let needed = rest.max(connection.wanted);
        if connection.paused {
            let counted = if rest > FREE_BYTES { rest } else { 0 };
            self.set_request_bytes(index, counted);
        } else {
            if consumed || needed <= FREE_BYTES {
                self.set_request_bytes(index, 0);
            }
            self.reserve(index);
        }
    }

    fn set_request_bytes(&mut self, index: u32, new: usize) {
        let Some((_, connection)) = self.at(index) else { return };
        let old = connection.request_bytes;
        if new != old {
            replace(&self.shared.room.requests, old, new);
            self.hold(index, |connection| connection.request_bytes = new);
        }
    }

    /// Counts the unsent output of an accepted connection.
    pub(crate) fn count_output(&mut self, index: u32) {
        let now = self.now;
        let Some((_, connection)) = self.at(index) else { return };
        let long = connection.origin == Origin::Accepted && connection.output.len() > FREE_BYTES;
        let new = if long { connection.output.capacity() } else { 0 };
        let old = connection.answer_bytes;
        if connection.sent_since >= old {
            // The peer has read as much as was held.
            (connection.holds_since, connection.sent_since) = (now, 0);
        }
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

    /// Whether a handler may begin a long answer.
    pub fn has_room_for_long_answers(&self) -> bool {
        self.shared.room.answers.load(Ordering::Relaxed) < self.shared.room.third
    }

    /// Whether a handler may begin an answer of unknown length to `conn`. A connection without unread answers has more
    /// room.
    pub fn has_room_for_answer(&self, conn: ConnId) -> bool {
        let has_read = self.get(conn).is_none_or(|connection| connection.answer_bytes == 0);
        self.has_room_for_long_answers() || has_read && self.has_room_for_answers()
    }

    /// Whether a handler may begin any answer of unknown length. If not, a timer ends a batch within 5 ms, and the handler
    /// can ask again.
    pub fn may_answer(&mut self) -> bool {
        let may = self.has_room_for_answers();
        if may == self.shared.room.handler_waits.load(Ordering::Relaxed) {
            self.shared.room.handler_waits.store(!may, Ordering::Relaxed);
        }
        if !may {
            self.check_room(RETRY);
        }
        may
    }

    fn has_room_for_answers(&self) -> bool {
        self.shared.room.answers.load(Ordering::Relaxed) < 2 * self.shared.room.third
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
            self.holding.waiting.push_back(conn);
            self.shared.room.waiting.fetch_add(1, Ordering::Relaxed);
            self.check_room(RETRY);
        }
    }

    /// Sets the timer of the next check, unless an earlier one is set.
    fn check_room(&mut self, pause: Duration) {
        let at = self.now + pause;
        if self.holding.due.is_none_or(|due| at < due) {
            self.holding.due = Some(at);
            self.timer(at, ROOM);
        }
    }

    /// Closes connections of this thread that hold memory and stand still, if others wait for room. Then lets waiting
    /// connections try again.
    pub(crate) fn on_room_timer(&mut self) {
        let now = self.now;
        let Some(due) = self.holding.due.filter(|&due| due <= now) else { return };
        self.holding.due = None;
        if now > due + LATE {
            // The process has paused: first read the input that has arrived.
            self.holding.look = Some(now + LATE);
        }
        if self.holding.bytes > 0 && self.holding.look.is_none_or(|look| look <= now) {
            self.holding.look = Some(now + CHECK);
            self.close_still_connections();
        }
        let count = self.holding.waiting.len();
        for conn in self.holding.waiting.drain(..count.min(RETRIES_MAX)).collect::<Vec<_>>() {
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
        if !self.holding.waiting.is_empty() {
            self.check_room(RETRY);
        } else if self.holding.bytes > 0 {
            self.check_room(CHECK);
        }
    }

    fn close_still_connections(&mut self) {
        if !self.shared.room.is_waited_for() {
            return;
        }
        let (now, open) = (self.now, self.ids().map(|(conn, _)| conn).collect::<Vec<_>>());
        for conn in open {
            // The kernel announces free room late: not before a third of its buffer is free.
            if let Some(connection) = self.get_mut(conn)
                && connection.answer_bytes > 0
                && !connection.writable
            {
                connection.writable = true;
                if self.flush(conn.index) {
                    self.drained.push(conn);
                }
            }
            if self.get(conn).is_some_and(|connection| connection.stands_still(now)) {
                self.close_because(conn, Close::Still);
            }
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
