//! What a reader has for as long as it reads.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Something that is dropped when nobody uses it for too long. A stream that is not read is not run
/// either, and so cannot end itself; and a connection whose reader hangs answers pings all the same.
#[derive(Debug)]
pub struct Lease<T> {
    held: Arc<Mutex<Option<T>>>,
    used: Arc<Notify>,
    watch: Option<AbortHandle>,
}

impl<T: Send + 'static> Lease<T> {
    /// Lets somebody have it until nothing is done with it for `idle_max`, if there is such a time,
    /// and `give_up` says that nothing else is to be expected.
    pub fn new(held: T, idle_max: Option<Duration>, give_up: fn(&mut T) -> bool) -> Lease<T> {
        let held = Arc::new(Mutex::new(Some(held)));
        let used = Arc::new(Notify::new());
        let (watched, noticed) = (Arc::clone(&held), Arc::clone(&used));
        let watch = |idle_max| async move {
            loop {
                if tokio::time::timeout(idle_max, noticed.notified()).await.is_ok() {
                    continue;
                }
                // Whoever has it locked uses it.
                let mut unused = match watched.try_lock() {
                    Ok(unused) => unused,
                    Err(TryLockError::Poisoned(unused)) => unused.into_inner(),
                    Err(TryLockError::WouldBlock) => continue,
                };
                if unused.as_mut().is_none_or(give_up) {
                    *unused = None;
                    return;
                }
            }
        };
        let watch = idle_max.map(|idle_max| tokio::spawn(watch(idle_max)).abort_handle());
        Lease { held, used, watch }
    }

    /// Uses it; nothing comes of what is not held any more.
    pub fn with<R>(&self, run: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = held.as_mut().map(run);
        self.used.notify_one();
        outcome
    }
}

impl<T> Drop for Lease<T> {
    fn drop(&mut self) {
        self.watch.iter().for_each(AbortHandle::abort);
    }
}
