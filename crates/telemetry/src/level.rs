//! A number that holds for a time: queue length, busy workers.

use std::time::Instant;

use crate::clock::NS_PER_S;
use crate::stage::elapsed_ns;

/// A gauge that is weighted by time: it integrates its value over the window.
///
/// The value may be negative, so that threads which share one queue can each keep their own
/// balance (put in − taken out): integrals add up over the threads, and so does the value. Only
/// the maximum does not; over several threads it is an upper bound.
#[derive(Debug)]
pub struct Level {
    value: i64,
    max: i64,
    /// Value times nanoseconds since the window began, up to `since`.
    area_ns: i128,
    since: Instant,
    began: Instant,
}

impl Level {
    /// A level of 0, counted from `now` on.
    pub fn new(now: Instant) -> Level {
        Level { value: 0, max: 0, area_ns: 0, since: now, began: now }
    }

    /// The value now.
    pub fn value(&self) -> i64 {
        self.value
    }

    /// The value is `value` from `now` on. A `now` before the last change counts as that change's.
    #[inline]
    pub fn set(&mut self, now: Instant, value: i64) {
        self.area_ns += i128::from(self.value) * i128::from(elapsed_ns(self.since, now));
        self.since = self.since.max(now);
        self.value = value;
        self.max = self.max.max(value);
    }

    /// The value changes by `change` at `now`.
    #[inline]
    pub fn add(&mut self, now: Instant, change: i64) {
        self.set(now, self.value + change);
    }

    /// Ends the window at `now`, begins the next one, and tells what the ended one saw.
    pub(crate) fn read(&mut self, now: Instant) -> LevelReading {
        self.set(now, self.value);
        let reading = LevelReading {
            area_s: self.area_ns as f64 / NS_PER_S as f64,
            seconds: elapsed_ns(self.began, self.since) as f64 / NS_PER_S as f64,
            end: self.value,
            max: self.max,
        };
        self.max = self.value;
        self.area_ns = 0;
        self.began = self.since;
        reading
    }
}

/// What a [`Level`] did within a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LevelReading {
    /// Integral of the value over time, in value · seconds.
    pub area_s: f64,
    /// Length of the window in seconds.
    pub seconds: f64,
    /// The value at the window's end.
    pub end: i64,
    /// The largest value within the window; over several threads an upper bound of it.
    pub max: i64,
}

impl LevelReading {
    /// The time average; over an empty window the value itself.
    pub fn mean(&self) -> f64 {
        if self.seconds > 0.0 { self.area_s / self.seconds } else { self.end as f64 }
    }

    /// Takes in a later window of the same level.
    pub(crate) fn then(&mut self, later: &LevelReading) {
        self.area_s += later.area_s;
        self.seconds += later.seconds;
        self.end = later.end;
        self.max = self.max.max(later.max);
    }

    /// Takes in another thread's share of the same level over the same time.
    pub(crate) fn beside(&mut self, other: &LevelReading) {
        self.area_s += other.area_s;
        self.seconds = self.seconds.max(other.seconds);
        self.end += other.end;
        self.max += other.max;
    }
}
