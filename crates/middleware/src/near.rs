//! The near cache, which all threads share: values of recent reads. Pure, no sockets.
//!
//! A read may be answered from here if no write of its key is in flight through this middleware. A write first marks
//! its key, then removes the value, and only then goes to the servers. An answer of a server is kept if no write was in
//! flight when its read began, and none has begun since. A write in flight therefore leaves no older value behind.
//!
//! Writes that pass another middleware, or go to a server directly, leave no mark. Neither do expiries and evictions at
//! a server. So each value ends some time after the beginning of its read (`lifetime`), however often it is read.
//!
//! Items and eviction are those of `knee-kv` in memory: CLOCK, or FIFO with reinsertion, by segments. Its stripes have
//! locks, which only this switch pays for. Without locks, each request would pass to the thread that owns its key, which
//! may have to wake up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use knee_kv_cache::engine::{Change, Engine, Expiry, Item, Second};
use knee_kv_cache::{KeyHash, MemoryLimits, Stripes};
use knee_proto::{Value, encode};

/// Keys share marks. While a write is in flight, values of other keys with its mark are not kept.
const MARKS: usize = 1 << 14;
/// A larger part of the memory is never one value.
const LARGEST_SHARE: usize = 64;
/// The unit of the engine's times. Later than 2^32 of them, after two years, no value is found any more.
const TICK_MS: u128 = 16;

/// A write in flight adds 1 until its end; every write adds `BEGUN` for ever.
#[derive(Debug, Default)]
struct Mark(AtomicU64);

const BEGUN: u64 = 1 << 32;

impl Mark {
    fn begin(&self) {
        self.0.fetch_add(BEGUN + 1, Ordering::AcqRel);
    }

    fn end(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// The state of a mark without writes in flight.
    fn rests(&self) -> Option<u64> {
        Some(self.now()).filter(|state| state % BEGUN == 0)
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

#[derive(Debug)]
struct Marks {
    of_flushes: Mark,
    of_keys: Box<[Mark]>,
}

/// The marks of a key when a read of it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sight {
    key: u64,
    flush: u64,
}

/// A thread's handle to the cache.
#[derive(Debug, Clone)]
pub(crate) struct Near {
    items: Stripes,
    hash: KeyHash,
    marks: Arc<Marks>,
    lifetime: Duration,
    made: Instant,
}

impl Near {
    /// An empty cache for `threads` threads, at least 1 MiB. The largest value has at most `value_bytes_max`, and a
    /// 64th of the memory.
    pub(crate) fn new(
        bytes_max: usize,
        lifetime: Duration,
        value_bytes_max: usize,
        threads: usize,
    ) -> Near {
        let marks_bytes = MARKS * size_of::<Mark>();
        let limits = MemoryLimits {
            memory_bytes_max: bytes_max.saturating_sub(marks_bytes),
            value_bytes_max: value_bytes_max.min(bytes_max / LARGEST_SHARE),
        };
        Near {
            items: Stripes::new(threads, limits).expect("1 MiB has room for its largest values"),
            hash: KeyHash::random(),
            marks: Arc::new(Marks {
                of_flushes: Mark::default(),
                of_keys: (0..MARKS).map(|_| Mark::default()).collect(),
            }),
            lifetime,
            made: Instant::now(),
        }
    }

    /// Milliseconds since the cache was made.
    fn ms(&self, at: Instant) -> u128 {
        at.saturating_duration_since(self.made).as_millis()
    }

    fn tick(&self, at: Instant) -> Second {
        Second::try_from(self.ms(at) / TICK_MS).unwrap_or(Second::MAX)
    }

    fn place(&self, key: &[u8]) -> usize {
        self.hash.hash(key) as usize % MARKS
    }

    /// Appends the value of `key` as an answer to `get` has it, without `END`. Returns whether it is there.
    pub(crate) fn get(&mut self, key: &[u8], now: Instant, out: &mut Vec<u8>) -> bool {
        let now_ms = self.ms(now);
        let found = self.items.get(key, self.tick(now), |item| {
            let last_tick = |item: &Item<'_>| item.expiry.second().unwrap_or(Second::MAX) - 1;
            let item = item.filter(|item| {
                now_ms < u128::from(last_tick(item)) * TICK_MS + u128::from(item.marks)
            })?;
            encode::value(key, item.flags, item.value, None, out);
            Some(())
        });
        matches!(found, Ok(Some(())))
    }

    /// The marks before a read is sent; `None` if its value cannot be kept.
    pub(crate) fn sight(&self, key: &[u8]) -> Option<Sight> {
        let flush = self.marks.of_flushes.rests()?;
        let key = self.marks.of_keys[self.place(key)].rests()?;
        Some(Sight { key, flush })
    }

    /// Keeps a value that a server gave to a read begun at `begun`, unless a write has begun since `sight`.
    pub(crate) fn keep(&mut self, value: &Value<'_>, sight: Sight, begun: Instant) {
        // The engine keeps the value for the whole tick in which it ends; its marks are the milliseconds in this tick.
        let end = begun + self.lifetime;
        let expiry = Expiry::at(self.tick(end).saturating_add(1));
        let end_ms = (self.ms(end) % TICK_MS) as u8;
        let (now, place) = (self.tick(begun), self.place(value.key));
        let marks = Arc::clone(&self.marks);
        // The decision has the stripe's lock. A write that marks its key later removes the value that is put here.
        let (_too_large, ()) = self.items.update(value.key, now, |_| {
            let seen = Sight { key: marks.of_keys[place].now(), flush: marks.of_flushes.now() };
            let put = Change::Put { flags: value.flags, expiry, marks: end_ms, value: value.value };
            (if seen == sight { put } else { Change::Keep }, ())
        });
    }

    /// A write of `key` begins; it must not be sent before. Returns its place, for [`Near::end`].
    pub(crate) fn begin(&mut self, key: &[u8], now: Instant) -> u32 {
        let place = self.place(key);
        self.marks.of_keys[place].begin();
        let now = self.tick(now);
        let _ = self.items.update(key, now, |_| (Change::Remove, ()));
        place as u32
    }

    /// A write ends: every server that is in has executed it, or it has failed.
    pub(crate) fn end(&self, place: u32) {
        self.marks.of_keys[place as usize].end();
    }

    /// A `flush_all` begins. Before a delayed one takes effect, values may be kept again.
    pub(crate) fn begin_flush(&mut self, now: Instant) {
        self.marks.of_flushes.begin();
        let now = self.tick(now);
        // Only engines on a disk fail.
        let _ = self.items.clear(now, now);
    }

    pub(crate) fn end_flush(&self) {
        self.marks.of_flushes.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use knee_kv_cache::engine::Figures;

    const MIB: usize = 1 << 20;
    const SECOND: Duration = Duration::from_secs(1);

    fn near() -> Near {
        Near::new(MIB, SECOND, MIB, 2)
    }

    fn value<'a>(key: &'a [u8], value: &'a [u8]) -> Value<'a> {
        Value { key, flags: 7, cas: None, value, raw: b"" }
    }

    fn found(near: &mut Near, key: &[u8], now: Instant) -> Option<String> {
        let mut out = Vec::new();
        near.get(key, now, &mut out).then(|| String::from_utf8(out).expect("ASCII"))
    }

    #[test]
    fn value_of_an_undisturbed_read_is_kept_for_its_lifetime() {
        let (mut near, begun) = (near(), Instant::now());
        let sight = near.sight(b"a").expect("no write");
        near.keep(&value(b"a", b"xy"), sight, begun);
        let early = begun + SECOND - Duration::from_millis(40);
        assert_eq!(found(&mut near, b"a", early).as_deref(), Some("VALUE a 7 2\r\nxy\r\n"));
        // Reads do not prolong it.
        assert_eq!(found(&mut near, b"a", begun + SECOND), None);
    }

    #[test]
    fn lifetime_below_a_tick_ends_on_time() {
        for lifetime_ms in [1, 5, 15, 17] {
            let lifetime = Duration::from_millis(lifetime_ms);
            let mut near = Near::new(MIB, lifetime, MIB, 2);
            for begun_ms in [0, 3, 33, 47] {
                let begun = near.made + Duration::from_millis(begun_ms);
                let sight = near.sight(b"a").expect("no write");
                near.keep(&value(b"a", b"x"), sight, begun);
                let last = begun + lifetime - Duration::from_millis(1);
                assert!(found(&mut near, b"a", last).is_some(), "{lifetime_ms}, {begun_ms}");
                assert_eq!(found(&mut near, b"a", begun + lifetime), None);
            }
        }
    }

    #[test]
    fn write_during_a_read_keeps_its_value_out() {
        let (mut near, now) = (near(), Instant::now());
        let before = near.sight(b"a").expect("no write");
        let place = near.begin(b"a", now);
        assert_eq!(near.sight(b"a"), None);
        near.keep(&value(b"a", b"old"), before, now);
        assert_eq!(found(&mut near, b"a", now), None);
        near.end(place);
        // The write has ended, but the read began before it.
        near.keep(&value(b"a", b"old"), before, now);
        assert_eq!(found(&mut near, b"a", now), None);
        let after = near.sight(b"a").expect("no write");
        near.keep(&value(b"a", b"new"), after, now);
        assert_eq!(found(&mut near, b"a", now).as_deref(), Some("VALUE a 7 3\r\nnew\r\n"));
        near.begin(b"a", now);
        assert_eq!(found(&mut near, b"a", now), None);
    }

    #[test]
    fn flush_empties_the_cache_and_keeps_running_reads_out() {
        let (mut near, now) = (near(), Instant::now());
        let before = near.sight(b"a").expect("no write");
        near.keep(&value(b"a", b"x"), before, now);
        near.begin_flush(now);
        assert_eq!((found(&mut near, b"a", now), near.sight(b"b")), (None, None));
        near.end_flush();
        near.keep(&value(b"a", b"x"), before, now);
        assert_eq!(found(&mut near, b"a", now), None);
        assert!(near.sight(b"a").is_some());
    }

    #[test]
    fn racing_handles_never_keep_a_value_older_than_a_write() {
        let near = near();
        let newest = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (mut near, newest) = (near.clone(), &newest);
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let now = Instant::now();
                        let sight = near.sight(b"a");
                        let read = newest.load(Ordering::SeqCst).to_string();
                        if let Some(sight) = sight {
                            near.keep(&value(b"a", read.as_bytes()), sight, now);
                        }
                    }
                });
            }
            let mut near = near.clone();
            for number in 1..=2_000_u64 {
                let now = Instant::now();
                let place = near.begin(b"a", now);
                newest.store(number, Ordering::SeqCst);
                near.end(place);
                let mut out = Vec::new();
                if near.get(b"a", now, &mut out) {
                    let text = String::from_utf8(out).expect("ASCII");
                    assert_eq!(text.lines().nth(1), Some(number.to_string().as_str()));
                }
            }
        });
    }

    #[test]
    fn memory_stays_below_its_limit() {
        let (mut near, now) = (near(), Instant::now());
        let bytes = vec![b'x'; 1000];
        for number in 0..5_000 {
            let key = format!("key{number}");
            let sight = near.sight(key.as_bytes()).expect("no write");
            near.keep(&value(key.as_bytes(), &bytes), sight, now);
        }
        let Figures { memory_bytes, memory_bytes_max, items, evictions, .. } = near.items.figures();
        assert!(memory_bytes <= memory_bytes_max && memory_bytes_max < MIB as u64);
        assert!(items > 500 && evictions > 3_000, "{items} items, {evictions} evictions");
        let large = vec![b'x'; MIB / LARGEST_SHARE + 1];
        let sight = near.sight(b"large").expect("no write");
        near.keep(&value(b"large", &large), sight, now);
        assert_eq!(found(&mut near, b"large", now), None);
    }
}
