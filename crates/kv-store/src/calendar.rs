//! The current second, the same for every protocol and for the keeper.

use std::sync::OnceLock;
use std::time::Instant;

use knee_telemetry::Moment;

use knee_kv_cache::engine::Second;

/// Seconds since the epoch. The monotonic clock advances them, so that a change of the wall clock
/// neither expires items nor prolongs their lives.
#[derive(Debug, Clone, Copy)]
pub struct Calendar {
    started: Moment,
}

impl Calendar {
    /// The calendar of this process. All protocols share it, so an item expires at the same time for each.
    pub fn of_process() -> Calendar {
        static CALENDAR: OnceLock<Calendar> = OnceLock::new();
        *CALENDAR.get_or_init(|| Calendar { started: Moment::now() })
    }

    /// When the calendar was made.
    pub fn started(&self) -> Instant {
        self.started.mono
    }

    /// Converts an instant to a second.
    pub fn second(&self, now: Instant) -> Second {
        u32::try_from(self.unix_ns(now) / 1_000_000_000).unwrap_or(u32::MAX)
    }

    /// Nanoseconds from the epoch to an instant.
    pub fn unix_ns(&self, now: Instant) -> u64 {
        self.started.unix_ns_at(now)
    }
}

/// The current second.
pub fn now() -> Second {
    Calendar::of_process().second(Instant::now())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn seconds_ignore_a_set_wall_clock() {
        let now = Moment::now();
        let hour = Duration::from_secs(3600);
        let set_since =
            Calendar { started: Moment { unix_ns: now.unix_ns - hour.as_nanos() as u64, ..now } };
        let (first, later) = (set_since.second(now.mono), set_since.second(now.mono + hour));
        assert_eq!(later, first + 3600);
        assert!(Calendar::of_process().second(now.mono).abs_diff(later) <= 1);
        assert_eq!(Calendar::of_process().started(), Calendar::of_process().started());
    }
}
