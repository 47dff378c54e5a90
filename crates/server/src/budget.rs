//! The limit of the memory for the messages of all calls together.
//!
//! A connection may take at most as many bytes as are then left for others. A single connection takes at most half of
//! the limit, two connections a third each. So some memory stays free for further connections (Choudhury and Hahne
//! 1998, "Dynamic queue length thresholds for shared-memory packet switches"). Counters are read before they are
//! raised, so simultaneous calls may exceed the limit by one message each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tonic::Status;

use crate::activity::Activity;

/// The memory of a call besides its messages: buffers for reading the request and writing the answer.
pub const CALL_BYTES: usize = 16 << 10;

/// The limit of the memory for a server's messages, and the bytes taken.
#[derive(Debug)]
pub struct Budget {
    taken: AtomicUsize,
    bytes_max: usize,
    /// The flag that sets the limit, named in errors.
    flag: &'static str,
}

/// The bytes that the calls of a connection have taken, and their activity.
#[derive(Debug)]
pub struct ConnectionMemory {
    budget: Arc<Budget>,
    taken: AtomicUsize,
    pub(crate) activity: Activity,
}

/// The bytes that a call has taken. Its drop gives them back.
#[derive(Debug)]
pub struct Share {
    connection: Arc<ConnectionMemory>,
    bytes: AtomicUsize,
    is_working: AtomicBool,
    is_metered: AtomicBool,
}

impl Budget {
    /// A budget of `bytes_max` bytes, set by the flag `flag`.
    pub fn new(bytes_max: usize, flag: &'static str) -> Arc<Budget> {
        Arc::new(Budget { taken: AtomicUsize::new(0), bytes_max, flag })
    }

    pub(crate) fn connection(self: &Arc<Budget>) -> Arc<ConnectionMemory> {
        let (taken, activity) = (AtomicUsize::new(0), Activity::begin());
        Arc::new(ConnectionMemory { budget: Arc::clone(self), taken, activity })
    }

    /// The share of a call without a connection, for tests of handlers.
    pub fn share(self: &Arc<Budget>) -> Share {
        self.connection().share()
    }

    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl ConnectionMemory {
    /// The share of a new call, which has taken no bytes yet.
    pub(crate) fn share(self: &Arc<ConnectionMemory>) -> Share {
        self.activity.call_begins();
        let (bytes, is_working, is_metered) = Default::default();
        Share { connection: Arc::clone(self), bytes, is_working, is_metered }
    }

    fn take(&self, bytes: usize) -> Result<(), Status> {
        let Budget { taken, bytes_max, flag } = &*self.budget;
        let own = self.taken.load(Ordering::Relaxed).saturating_add(bytes);
        let all = taken.load(Ordering::Relaxed).saturating_add(bytes);
        if own > bytes_max.saturating_sub(all) {
            return Err(Status::resource_exhausted(format!(
                "no room for {bytes} bytes: the messages of all calls take at most {bytes_max} bytes, \
                 those of a connection no more than it leaves to others; try again later, or raise {flag}"
            )));
        }
        self.overdraw(bytes);
        Ok(())
    }

    pub(crate) fn overdraw(&self, bytes: usize) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        self.budget.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Share {
    /// Takes `bytes` more.
    ///
    /// # Errors
    /// If the limit would be exceeded.
    pub fn take(&self, bytes: usize) -> Result<(), Status> {
        self.connection.take(bytes)?;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Takes `bytes` more even beyond the limit, for the answer to a finished change. Further calls are refused until
    /// these bytes are given back.
    pub fn overdraw(&self, bytes: usize) {
        self.connection.overdraw(bytes);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives back all but `bytes`.
    pub(crate) fn keep(&self, bytes: usize) {
        let had = self.bytes.fetch_min(bytes, Ordering::Relaxed);
        self.connection.give_back(had.saturating_sub(bytes));
    }

    pub(crate) fn connection(&self) -> &ConnectionMemory {
        &self.connection
    }

    /// Notes whether the call waits for the server or for the client.
    pub(crate) fn set_working(&self, works: bool) {
        if self.is_working.swap(works, Ordering::Relaxed) != works {
            let activity = &self.connection.activity;
            if works { activity.work_begins() } else { activity.work_ends() }
        }
    }

    /// Notes that the handler has the request, and will record the call.
    pub fn metered(&self) {
        self.is_metered.store(true, Ordering::Relaxed);
        self.set_working(true);
    }

    /// Whether a handler records the call.
    pub(crate) fn is_metered(&self) -> bool {
        self.is_metered.load(Ordering::Relaxed)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set_working(false);
        self.connection.activity.call_ends();
        self.connection.give_back(*self.bytes.get_mut());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn fifteen_greedy_connections_leave_room() {
        let budget = Budget::new(1 << 20, "--memory-mb");
        let shares: Vec<_> = (1..=15)
            .map(|connections| {
                let share = budget.share();
                while share.take(16).is_ok() {}
                let left = (1 << 20) - budget.taken();
                assert!(left >= (1 << 20 >> connections) - 16, "{connections} leave {left} bytes");
                share
            })
            .collect();
        assert!(budget.share().take(16).is_ok());
        drop(shares);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn connection_takes_no_more_than_it_leaves() {
        let budget = Budget::new(1000, "--memory-mb");
        let connection = budget.connection();
        let calls = [(); 2].map(|()| connection.share());
        calls[0].take(300).unwrap();
        calls[1].take(200).unwrap();
        assert_eq!(calls[1].take(1).unwrap_err().code(), tonic::Code::ResourceExhausted);
        // Another connection gets half of the rest.
        let other = budget.share();
        other.take(250).unwrap();
        other.take(1).unwrap_err();
        calls[0].keep(50);
        other.take(125).unwrap();
        drop(calls);
        drop(other);
        budget.share().take(500).unwrap();
    }

    #[test]
    fn overdrawn_share_refuses_others_until_it_shrinks() {
        let budget = Budget::new(100 << 10, "--memory-mb");
        let call = budget.share();
        call.take(CALL_BYTES).unwrap();
        call.overdraw(100 << 10);
        budget.share().take(1).unwrap_err();
        call.keep(CALL_BYTES);
        budget.share().take(1).unwrap();
        drop(call);
        assert_eq!(budget.taken(), 0);
    }
}
