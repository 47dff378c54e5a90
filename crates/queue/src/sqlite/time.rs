//! Times in the file: whole microseconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Microseconds since 1970.
pub(super) fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}
