//! A descriptor that becomes readable at an instant.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// A `timerfd`: exact to a few microseconds, where the time-outs of `epoll_wait`, and of what is
/// built on them, are rounded to whole milliseconds.
///
/// It is never read: the poll waits for it edge-triggered, and setting it resets it.
#[derive(Debug)]
pub struct Alarm(OwnedFd);

impl Alarm {
    /// An alarm that is not set.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn new() -> io::Result<Alarm> {
        // SAFETY: timerfd_create has no memory preconditions; its result is checked before use.
        let raw = unsafe {
            libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC)
        };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: raw is a descriptor that was just created; nothing else owns it.
        Ok(Alarm(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    /// Sets it to `at`, at once if that has passed; it is set to nothing else then.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set(&self, at: Instant) -> io::Result<()> {
        // A zero duration would disarm.
        let wait = at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let spec = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec {
                tv_sec: libc::time_t::try_from(wait.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_nsec: wait.subsec_nanos().into(),
            },
        };
        // SAFETY: spec outlives the call, the old value is not asked for.
        let status = unsafe {
            libc::timerfd_settime(self.as_raw_fd(), 0, &raw const spec, std::ptr::null_mut())
        };
        if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsRawFd for Alarm {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
