//! Wall-clock seconds, the monotonic clock, and a thread's own CPU time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) const NS_PER_S: u64 = 1_000_000_000;

/// How early a timer may fire before a wall-clock second and still count as that second's.
/// Timers run on the monotonic clock, which the wall clock is slewed against.
const EARLY_NS: u64 = 100_000_000;

/// One instant, read on both clocks: durations come from `mono`, labels from `wall`.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The wall clock.
    pub wall: SystemTime,
    /// The monotonic clock.
    pub mono: Instant,
}

impl Moment {
    /// Reads both clocks.
    pub fn now() -> Moment {
        Moment { wall: SystemTime::now(), mono: Instant::now() }
    }

    /// When the next window is due: the coming wall-clock second, on the monotonic clock.
    ///
    /// A timer set to it and fired a little early still gets the second after it, not the same
    /// one again.
    pub fn next_second(&self) -> Instant {
        let early = self.unix_ns() + EARLY_NS;
        let wait_ns = NS_PER_S - early % NS_PER_S + EARLY_NS;
        self.mono + Duration::from_nanos(wait_ns)
    }

    /// Nanoseconds since the Unix epoch; 0 before it.
    pub(crate) fn unix_ns(&self) -> u64 {
        let since_epoch = self.wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The last second that had begun, in nanoseconds since the epoch, forgiving early timers.
    pub(crate) fn second_begun_ns(&self) -> u64 {
        second_begun_ns(self.unix_ns())
    }
}

/// As [`Moment::second_begun_ns`], of a time in nanoseconds since the epoch.
pub(crate) fn second_begun_ns(unix_ns: u64) -> u64 {
    let early = unix_ns.saturating_add(EARLY_NS);
    early - early % NS_PER_S
}

/// CPU time (user and system) that the calling thread has used since it was born.
pub(crate) fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that the call only writes to, and outlives the call.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    // The clock exists in every Linux that this builds for, so the call cannot fail.
    assert_eq!(failed, 0, "clock_gettime(CLOCK_THREAD_CPUTIME_ID)");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(unix_ns: u64) -> Moment {
        Moment { wall: UNIX_EPOCH + Duration::from_nanos(unix_ns), mono: Instant::now() }
    }

    #[test]
    fn the_next_second_is_the_coming_boundary() {
        // (nanoseconds into the second, nanoseconds to wait)
        let rows = [
            (0, 1_000_000_000),
            (1, 999_999_999),
            (250_000_000, 750_000_000),
            (899_999_999, 100_000_001),
            // Within the early margin the boundary just ahead counts as reached.
            (900_000_000, 1_100_000_000),
            (999_999_999, 1_000_000_001),
        ];
        for (into_ns, wait_ns) in rows {
            let moment = at(1_700_000_000 * NS_PER_S + into_ns);
            let wait = moment.next_second() - moment.mono;
            assert_eq!(wait, Duration::from_nanos(wait_ns), "at +{into_ns} ns");
        }
    }

    #[test]
    fn an_early_timer_belongs_to_the_second_it_was_set_for() {
        let second = 1_700_000_000 * NS_PER_S;
        assert_eq!(at(second - 300_000).second_begun_ns(), second);
        assert_eq!(at(second + 300_000).second_begun_ns(), second);
        assert_eq!(at(second + 899_999_999).second_begun_ns(), second);
    }

    #[test]
    fn cpu_time_grows_with_work_and_is_the_threads_own() {
        let before = thread_cpu();
        std::thread::spawn(|| {
            let mut x = 1_u64;
            while thread_cpu() < Duration::from_millis(30) {
                x = std::hint::black_box(x.wrapping_mul(31));
            }
        })
        .join()
        .expect("the spinning thread does not panic");
        assert!(thread_cpu() - before < Duration::from_millis(30));
        assert!(thread_cpu() > Duration::ZERO);
    }
}
