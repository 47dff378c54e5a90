//! A descriptor that becomes readable at a set time.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// A `timerfd`, exact to a few microseconds. The time-outs of `epoll_wait`, and of timers built on it, are rounded to
/// whole milliseconds.
///
/// The descriptor is never read: the poll is edge-triggered, and setting the alarm resets the descriptor.
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

    /// Sets the alarm to `at` instead of an earlier setting. If `at` has passed, the alarm fires at once.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set(&self, at: Instant) -> io::Result<()> {
        // A zero duration would disarm the alarm.
        let wait = at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let spec = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec {
                tv_sec: libc::time_t::try_from(wait.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_nsec: wait.subsec_nanos().into(),
            },
        };
        // SAFETY: spec outlives the call; a null pointer declines the old value.
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
