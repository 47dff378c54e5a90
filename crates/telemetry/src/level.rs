//! A value that changes over time: queue length, busy workers.

use std::time::Instant;

use crate::clock::NS_PER_S;
use crate::stage::elapsed_ns;

/// A gauge that is weighted by time: it integrates its value over the window.
///
/// The value may be negative, so that threads that share one queue can each keep their own balance (puts − takes).
/// Integrals and values add up over the threads. The sum of the maxima is only an upper bound.
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

    /// Sets the value from `now` on. If `now` is before the last change, the time of that change counts.
    #[inline]
    pub fn set(&mut self, now: Instant, value: i64) {
        // An event loop reads the clock once for a batch of events, so between most changes no time passes.
        if now > self.since {
            self.area_ns += i128::from(self.value) * i128::from(elapsed_ns(self.since, now));
            self.since = now;
        }
        self.value = value;
        self.max = self.max.max(value);
    }

    /// Changes the value by `change` at `now`.
    #[inline]
    pub fn add(&mut self, now: Instant, change: i64) {
        self.set(now, self.value + change);
    }

    /// Adds a change that happened at `from` but is reported at `now`. Corrects the area back to `from`, but not before
    /// this window's start.
    #[inline]
    pub fn add_from(&mut self, from: Instant, now: Instant, change: i64) {
        self.add(now, change);
        let late_ns = elapsed_ns(from.max(self.began), self.since);
        self.area_ns += i128::from(change) * i128::from(late_ns);
    }

    /// Ends the window at `now`, begins the next one, and returns the reading of the ended one.
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

/// The reading of a [`Level`] over a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LevelReading {
    /// Integral of the value over time, in value · seconds.
    pub area_s: f64,
    /// Length of the window in seconds.
    pub seconds: f64,
    /// The value at the window's end.
    pub end: i64,
    /// The largest value within the window; for several threads, an upper bound.
    pub max: i64,
}

impl LevelReading {
    /// The time average; over an empty window the value itself.
    pub fn mean(&self) -> f64 {
        if self.seconds > 0.0 { self.area_s / self.seconds } else { self.end as f64 }
    }

    /// Appends a later window of the same level.
    pub(crate) fn then(&mut self, later: &LevelReading) {
        self.area_s += later.area_s;
        self.seconds += later.seconds;
        self.end = later.end;
        self.max = self.max.max(later.max);
    }

    /// Adds another thread's reading of the same level over the same time.
    pub(crate) fn beside(&mut self, other: &LevelReading) {
        self.area_s += other.area_s;
        self.seconds = self.seconds.max(other.seconds);
        self.end += other.end;
        self.max += other.max;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The integral equals the sum over every nanosecond, wherever windows are cut.
        #[test]
        fn integral_equals_the_brute_force_sum(
            steps in prop::collection::vec((0_u64..50, -5_i64..20, any::<bool>()), 1..60),
        ) {
            let start = Instant::now();
            let mut level = Level::new(start);
            let mut total = LevelReading::default();
            let (mut now_ns, mut value) = (0_u64, 0_i64);
            let (mut sum, mut window_max, mut max) = (0_i64, 0_i64, 0_i64);
            for (wait_ns, next, cut) in steps {
                for _ in 0..wait_ns {
                    sum += value;
                }
                now_ns += wait_ns;
                let now = start + Duration::from_nanos(now_ns);
                if cut {
                    let reading = level.read(now);
                    prop_assert_eq!(reading.end, value);
                    prop_assert_eq!(reading.max, window_max);
                    total.then(&reading);
                    window_max = value;
                }
                level.set(now, next);
                value = next;
                window_max = window_max.max(value);
                max = max.max(value);
            }
            total.then(&level.read(start + Duration::from_nanos(now_ns)));
            prop_assert!((total.area_s * 1e9 - sum as f64).abs() < 1e-3);
            prop_assert!((total.seconds * 1e9 - now_ns as f64).abs() < 1e-3);
            prop_assert_eq!((total.end, total.max), (value, max));
        }
    }

    #[test]
    fn late_change_counts_from_its_time() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut level = Level::new(start);
        level.add_from(at(1), at(3), 2);
        assert_eq!(level.read(at(4)).area_s, 6.0);
        // Two of these seconds lie in the earlier window, which was already read.
        level.add_from(at(2), at(5), -1);
        let reading = level.read(at(6));
        assert_eq!((reading.area_s, reading.end), (2.0, 1));
        // A change cannot be later than `now`.
        level.add_from(at(8), at(7), 1);
        assert_eq!(level.read(at(8)).area_s, 3.0);
    }

    #[test]
    fn levels_of_a_shared_queue_add_up() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let (mut puts, mut takes) = (Level::new(start), Level::new(start));
        puts.add(at(1), 3);
        takes.add(at(2), -2);
        let mut queue = puts.read(at(4));
        queue.beside(&takes.read(at(4)));
        // 0 for 1 s, 3 for 1 s, 1 for 2 s.
        assert_eq!(queue.mean(), 5.0 / 4.0);
        assert_eq!((queue.end, queue.max), (1, 3));
    }

    #[test]
    fn change_before_the_last_one_subtracts_no_time() {
        let start = Instant::now();
        let mut level = Level::new(start);
        level.set(start + Duration::from_secs(2), 1);
        level.set(start + Duration::from_secs(1), 5);
        let reading = level.read(start + Duration::from_secs(3));
        assert_eq!(reading.area_s, 5.0);
        assert_eq!(reading.seconds, 3.0);
    }

    #[test]
    fn empty_window_has_the_value_as_mean() {
        let start = Instant::now();
        let mut level = Level::new(start);
        level.set(start, 7);
        assert_eq!(level.read(start).mean(), 7.0);
    }
}
