//! The clock's resolution, and the delay of a sleep.

use std::thread;
use std::time::{Duration, Instant};

const SLEEP: Duration = Duration::from_micros(100);

/// What the clock and the scheduler allow.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    /// The time that one reading of the clock takes.
    pub read_ns: f64,
    /// The smallest difference above zero between two readings.
    pub step_ns: f64,
    /// The mean delay of a thread that sleeps for 100 µs.
    pub late_us: f64,
}

/// Reads the clock for `seconds`, and then sleeps for `seconds`, at least once.
pub fn timer(seconds: f64) -> Timer {
    let limit = Duration::from_secs_f64(seconds);
    let begun = Instant::now();
    let (mut last, mut reads, mut step) = (begun, 0_u64, Duration::MAX);
    while last - begun < limit {
        let now = Instant::now();
        if now > last {
            step = step.min(now - last);
        }
        (last, reads) = (now, reads + 1);
    }
    let read_ns = (last - begun).as_secs_f64() * 1e9 / reads.max(1) as f64;

    let (begun, mut sleeps) = (Instant::now(), 0);
    while sleeps == 0 || begun.elapsed() < limit {
        thread::sleep(SLEEP);
        sleeps += 1;
    }
    let late = begun.elapsed() / sleeps - SLEEP;
    Timer { read_ns, step_ns: step.as_nanos() as f64, late_us: late.as_secs_f64() * 1e6 }
}
