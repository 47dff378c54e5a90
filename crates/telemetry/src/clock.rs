//! Wall-clock seconds, the monotonic clock, and a thread's own CPU time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) const NS_PER_S: u64 = 1_000_000_000;

/// A timer that fires at most this early before a wall-clock second counts for that second. Timers run on the monotonic
/// clock, and the wall clock may be slewed against it.
const EARLY_NS: u64 = 100_000_000;

/// One instant, read on both clocks: durations come from `mono`, labels from `unix_ns`.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The wall clock: nanoseconds since the Unix epoch, and 0 before it.
    pub unix_ns: u64,
    /// The monotonic clock.
    pub mono: Instant,
}

impl Moment {
    /// Reads both clocks.
    pub fn now() -> Moment {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ns = u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX);
        Moment { unix_ns, mono: Instant::now() }
    }

    /// When the next window is due: the coming wall-clock second, on the monotonic clock.
    ///
    /// If a timer for this time fires a little early, the next call still returns the following second.
    pub fn next_second(&self) -> Instant {
        let early = self.unix_ns + EARLY_NS;
        let wait_ns = NS_PER_S - early % NS_PER_S + EARLY_NS;
        self.mono + Duration::from_nanos(wait_ns)
    }

    /// Converts an instant of the monotonic clock to nanoseconds of the Unix epoch. Setting the wall clock in between
    /// has no effect.
    #[inline]
    pub fn unix_ns_at(&self, instant: Instant) -> u64 {
        match instant.checked_duration_since(self.mono) {
            Some(behind) => self.unix_ns + behind.as_nanos() as u64,
            None => self.unix_ns.saturating_sub((self.mono - instant).as_nanos() as u64),
        }
    }

    /// The last second that had begun, in nanoseconds since the epoch. A second counts as begun [`EARLY_NS`] early.
    pub(crate) fn second_begun_ns(&self) -> u64 {
        second_begun_ns(self.unix_ns)
    }
}

/// Like [`Moment::second_begun_ns`], for a time in nanoseconds since the epoch.
pub(crate) fn second_begun_ns(unix_ns: u64) -> u64 {
    let early = unix_ns.saturating_add(EARLY_NS);
    early - early % NS_PER_S
}

/// CPU time (user and system) that the calling thread has used since its start.
pub(crate) fn thread_cpu() -> Duration {
    // The clock exists in every Linux that this builds for, so the call cannot fail.
    read_clock(libc::CLOCK_THREAD_CPUTIME_ID).expect("clock_gettime(CLOCK_THREAD_CPUTIME_ID)")
}

fn read_clock(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that the call only writes to, and outlives the call.
    let failed = unsafe { libc::clock_gettime(clock, &mut time) };
    (failed == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// A thread's CPU time (user and system), which other threads may read.
///
/// For threads that do not cut their own windows, such as the threads of an async runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuClock(libc::clockid_t);

impl CpuClock {
    /// The clock of the calling thread.
    pub fn of_this_thread() -> CpuClock {
        let mut clock = 0;
        // SAFETY: the calling thread exists; `clock` is only written to, and outlives the call.
        let failed = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) };
        assert_eq!(failed, 0, "pthread_getcpuclockid");
        CpuClock(clock)
    }

    /// The CPU time of the thread since its start; `None` once it has ended.
    pub fn read(self) -> Option<Duration> {
        read_clock(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(unix_ns: u64) -> Moment {
        Moment { unix_ns, mono: Instant::now() }
    }

    #[test]
    fn cpu_time_is_readable_from_another_thread() {
        let (send, clocks) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            while thread_cpu() < Duration::from_millis(20) {}
            send.send((CpuClock::of_this_thread(), thread_cpu())).expect("the test waits");
            ends.recv().expect_err("the sender is dropped");
        });
        let (clock, used) = clocks.recv().expect("its clock");
        assert!(clock.read().expect("it lives") >= used);
        assert!(
            CpuClock::of_this_thread().read().expect("it lives") < clock.read().expect("it lives")
        );
        drop(end);
        thread.join().expect("it ends");
        // The system may know the thread for a moment after the join.
        while clock.read().is_some() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn next_second_is_the_coming_boundary() {
        // (nanoseconds into the second, nanoseconds to wait)
        let rows = [
            (0, 1_000_000_000),
            (1, 999_999_999),
            (250_000_000, 750_000_000),
            (899_999_999, 100_000_001),
            // Within the early margin, the coming second counts as begun.
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
    fn early_timer_counts_for_its_second() {
        let second = 1_700_000_000 * NS_PER_S;
        assert_eq!(at(second - 300_000).second_begun_ns(), second);
        assert_eq!(at(second + 300_000).second_begun_ns(), second);
        assert_eq!(at(second + 899_999_999).second_begun_ns(), second);
    }

    #[test]
    fn cpu_time_is_of_its_thread_alone() {
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
