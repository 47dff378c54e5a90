//! Executes one request on the engine, and writes its answer.
//!
//! Each command is a decision on the item that the engine shows. The semantics are those of memcached 1.6.18;
//! a test compares the two.

mod classic;
mod meta;
mod meta_answer;
mod stats;

use std::sync::Arc;

use knee_kv_cache::engine::{Change, Engine, Expiry, Head, Item, Refused, Second, Version};
use knee_proto::{Request, encode};
use knee_telemetry::Op;

use crate::counters::{Counter, Counters, Facts};

/// Longer expiry times are seconds of the epoch.
const RELATIVE_EXPTIME_MAX: i64 = 30 * 24 * 60 * 60;

/// A mark of an item: a client declared its value outdated (meta flag `I`).
const STALE: u8 = 1;
/// A mark of an item: a client has the right to recache it.
const WON: u8 = 2;
/// A mark of an item: its key came in base64, so answers encode it in base64.
const BINARY_KEY: u8 = 4;

/// The answer to `version`. Clients derive the supported commands from the memcached version at its front.
const VERSION: &str = concat!("1.6.18-knee-", env!("CARGO_PKG_VERSION"));

/// Longer values are long answers.
const SHORT_VALUE_BYTES: usize = 4 * 1024;

const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
const OUT_OF_MEMORY: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
// Clients recognise the answer by its beginning.
const NO_SPACE: &[u8] = b"SERVER_ERROR out of memory storing object: the disk takes no more\r\n";
const FAILED: &[u8] = b"SERVER_ERROR the log takes nothing more at present\r\n";
const DAMAGED: &[u8] = b"SERVER_ERROR the stored item is damaged\r\n";
const BROKEN: &[u8] = b"SERVER_ERROR the log cannot be written\r\n";
const NON_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";

/// The result of a request, for the statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) op: Op,
    /// Number of keys looked up.
    pub(crate) items: u32,
    /// Number of keys found.
    pub(crate) hits: u32,
    /// Number of keys not found.
    pub(crate) misses: u32,
    /// Whether the answer is an error line.
    pub(crate) error: bool,
}

impl Answered {
    pub(crate) fn new(op: Op) -> Answered {
        Answered { op, items: 0, hits: 0, misses: 0, error: false }
    }

    fn looked_up(op: Op, hit: bool) -> Answered {
        Answered { op, items: 1, hits: u32::from(hit), misses: u32::from(!hit), error: false }
    }

    /// A look-up that the engine refused: neither a hit nor a miss.
    fn failed(op: Op) -> Answered {
        Answered { op, items: 1, hits: 0, misses: 0, error: true }
    }

    /// A write of one key. A failed condition counts as a miss, not an error.
    fn written(op: Op, refused: bool, held: bool) -> Answered {
        let misses = u32::from(!refused && !held);
        Answered { op, items: 1, hits: 0, misses, error: refused }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The whole answer was appended.
    Done(Answered),
    /// The answer is too long to be appended at once. Call again with the same request and [`Progress`], once its
    /// beginning has been sent.
    Suspended,
    Close,
}

/// The progress of a suspended retrieval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) keys: usize,
    pub(crate) hits: usize,
}

/// Answers requests from an engine.
pub(crate) struct Commands<E> {
    engine: E,
    counters: Arc<Counters>,
    facts: Arc<Facts>,
    thread: usize,
    /// Number of connections open now, over all threads; for `stats`.
    pub(crate) connections: usize,
    /// A binary key, decoded.
    key: Vec<u8>,
    /// A number padded to the length of the old number.
    padded: Vec<u8>,
}

impl<E: Engine> Commands<E> {
    pub(crate) fn new(
        engine: E,
        counters: Arc<Counters>,
        facts: Arc<Facts>,
        thread: usize,
    ) -> Commands<E> {
        Commands {
            engine,
            counters,
            facts,
            thread,
            connections: 0,
            key: Vec::new(),
            padded: Vec::new(),
        }
    }

    pub(crate) fn engine(&mut self) -> &mut E {
        &mut self.engine
    }

    #[inline]
    pub(crate) fn count(&self, counter: Counter, more: u64) {
        self.counters.add(self.thread, counter, more);
    }

    /// Answers `request`, appending to `out` at most about `budget` bytes at once.
    #[inline]
    pub(crate) fn answer(
        &mut self,
        request: &Request<'_>,
        progress: &mut Progress,
        budget: usize,
        now: Second,
        out: &mut Vec<u8>,
    ) -> Outcome {
        match request {
            Request::Get(get) => self.get(get, progress, budget, now, out),
            Request::Store(store) => Outcome::Done(self.store(store, now, out)),
            request => self.answer_others(request, now, out),
        }
    }

    /// Whether one of the values that the request still gets is longer than a page.
    pub(crate) fn is_long(&mut self, request: &Request<'_>, done: &Progress, now: Second) -> bool {
        let mut key = std::mem::take(&mut self.key);
        let length = |item: Option<Item<'_>>| item.map_or(0, |item| item.value.len());
        let mut is_long = |key: &[u8]| {
            self.engine.get(key, now, length).is_ok_and(|length| length > SHORT_VALUE_BYTES)
        };
        let long = match request {
            Request::Get(get) => get.keys().skip(done.keys).any(is_long),
            Request::MetaGet(meta) if meta.has(b'v') => is_long(meta.key_bytes(&mut key)),
            _ => false,
        };
        self.key = key;
        long
    }

    fn answer_others(&mut self, request: &Request<'_>, now: Second, out: &mut Vec<u8>) -> Outcome {
        let start = out.len();
        let mut answered = Answered::new(Op::Other);
        match *request {
            Request::Get(_) | Request::Store(_) => unreachable!("answered by the caller"),
            Request::Delete { key, .. } => answered = self.delete(key, now, out),
            Request::Arith { verb, key, delta, .. } => {
                answered = self.arith(verb, key, delta, now, out);
            }
            Request::Touch { key, exptime, .. } => answered = self.touch(key, exptime, now, out),
            Request::FlushAll { delay, .. } => answered.error = !self.flush_all(delay, now, out),
            Request::Stats { args } => answered.error = !self.stats(args, now, out),
            Request::Version => encode::version_line(VERSION, out),
            // Accepted, as clients send it; there is no log.
            Request::Verbosity { .. } => out.extend_from_slice(encode::OK),
            Request::CacheMemlimit { megabytes, .. } => {
                self.cache_memlimit(megabytes, now, out);
            }
            Request::Shutdown { .. } => {
                out.extend_from_slice(encode::SHUTDOWN_DISABLED);
                answered.error = true;
            }
            Request::Quit => return Outcome::Close,
            Request::MetaGet(ref meta) => answered = self.meta_get(meta, now, out),
            Request::MetaSet(ref meta) => answered = self.meta_set(meta, now, out),
            Request::MetaDelete(ref meta) => answered = self.meta_delete(meta, now, out),
            Request::MetaArith(ref meta) => answered = self.meta_arith(meta, now, out),
            Request::MetaDebug(ref meta) => answered = self.meta_debug(meta, now, out),
            Request::MetaNoop => out.extend_from_slice(encode::META_NOOP),
        }
        let is_meta = matches!(
            request,
            Request::MetaGet(_)
                | Request::MetaSet(_)
                | Request::MetaDelete(_)
                | Request::MetaArith(_)
                | Request::MetaDebug(_)
        );
        // `noreply` silences every answer; the meta commands know which ones `q` leaves out.
        if !is_meta && request.is_quiet() {
            out.truncate(start);
        }
        Outcome::Done(answered)
    }

    /// Changes an item with [`Engine::update`]. If the item changed while the change waited for space, decides again.
    fn update<'c, R>(
        &mut self,
        key: &[u8],
        now: Second,
        mut decide: impl FnMut(Option<Item<'_>>) -> (Change<'c>, R),
    ) -> (Result<Version, Refused>, R) {
        loop {
            let (outcome, answer) = self.engine.update(key, now, &mut decide);
            if outcome != Err(Refused::Changed) {
                return (outcome, answer);
            }
        }
    }

    /// The same with [`Engine::update_by_head`].
    fn update_by_head<'c, R>(
        &mut self,
        key: &[u8],
        now: Second,
        mut decide: impl FnMut(Option<Head>) -> (Change<'c>, R),
    ) -> (Result<Version, Refused>, R) {
        loop {
            let (outcome, answer) = self.engine.update_by_head(key, now, &mut decide);
            if outcome != Err(Refused::Changed) {
                return (outcome, answer);
            }
        }
    }

    /// Deletes the old value after a too large new one was refused. If the engine also refuses the delete, returns the
    /// answer.
    pub(crate) fn drop_stale(&mut self, key: &[u8], now: Second) -> Option<&'static [u8]> {
        let (removed, ()) = self.update_by_head(key, now, |_| (Change::Remove, ()));
        self.count(Counter::StoreTooLarge, 1);
        removed.err().map(|refused| self.refused(refused))
    }

    /// Replaces the answer after `start` by an error.
    fn fail(&self, refused: Refused, start: usize, out: &mut Vec<u8>) {
        out.truncate(start);
        out.extend_from_slice(self.refused(refused));
    }

    /// The answer to an access that the engine refused.
    fn refused(&self, refused: Refused) -> &'static [u8] {
        match refused {
            Refused::TooLarge => {
                self.count(Counter::StoreTooLarge, 1);
                TOO_LARGE
            }
            Refused::Full | Refused::Changed => {
                self.count(Counter::StoreNoMemory, 1);
                OUT_OF_MEMORY
            }
            Refused::NoSpace => {
                self.count(Counter::StoreNoMemory, 1);
                NO_SPACE
            }
            Refused::Failed => FAILED,
            Refused::Damaged => DAMAGED,
            Refused::Broken => BROKEN,
        }
    }
}

/// Converts a protocol expiry time to an expiry.
fn expiry(exptime: i64, now: Second) -> Expiry {
    match exptime {
        0 => Expiry::NEVER,
        ..0 => Expiry::at(0),
        1..=RELATIVE_EXPTIME_MAX => Expiry::at(now.saturating_add(exptime as u32)),
        _ => Expiry::at(u32::try_from(exptime).unwrap_or(u32::MAX)),
    }
}

/// A value as a number, as C reads it. White space and a plus may precede the number. White space, and then any bytes,
/// may follow.
fn counter_value(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii_start();
    let digits = digits.strip_prefix(b"+").unwrap_or(digits);
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    if end == 0 || digits.get(end).is_some_and(|byte| !byte.is_ascii_whitespace()) {
        return None;
    }
    digits[..end].iter().try_fold(0u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_times_are_relative_up_to_thirty_days() {
        let now = 1_700_000_000;
        let rows = [
            (0, Expiry::NEVER),
            (1, Expiry::at(now + 1)),
            (2_592_000, Expiry::at(now + 2_592_000)),
            // Above 30 days, the number is a second of the epoch, here in January 1970.
            (2_592_001, Expiry::at(2_592_001)),
            (1_800_000_000, Expiry::at(1_800_000_000)),
        ];
        for (exptime, end) in rows {
            assert_eq!(expiry(exptime, now), end, "{exptime}");
        }
        assert!(expiry(-1, now).is_over(now));
        assert!(expiry(i64::from(i32::MIN), now).is_over(now));
    }

    #[test]
    fn numbers_are_read_as_memcached_reads_them() {
        let rows: [(&[u8], Option<u64>); 10] = [
            (b"0", Some(0)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"9 ", Some(9)), // the padding of a shorter result
            (b" +7", Some(7)),
            (b"7\r\nabc", Some(7)),
            (b"7x", None),
            (b"-7", None),
            (b"", None),
            (b"abc", None),
        ];
        for (value, number) in rows {
            assert_eq!(counter_value(value), number, "{}", value.escape_ascii());
        }
    }
}
