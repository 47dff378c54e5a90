//! Histograms that the reporter returns to the recorders.

use std::sync::{Mutex, PoisonError};

use crate::requests::OpWindow;

/// Empty windows of one type of request each, for the next cut.
///
/// A window's histograms take 110 kB per stage. Fresh memory of that size costs a page fault every 4 kB, about a
/// millisecond for a whole cut. During this time an event loop would answer no request, so the memory is reused. The
/// lock is taken at cuts, never per request.
#[derive(Debug)]
pub(crate) struct Pool {
    stages: usize,
    free: Mutex<Vec<OpWindow>>,
}

impl Pool {
    pub(crate) fn new(stages: usize) -> Pool {
        Pool { stages, free: Mutex::new(Vec::new()) }
    }

    /// An empty window; a new one if none came back yet.
    pub(crate) fn take(&self) -> OpWindow {
        let returned = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        returned.unwrap_or_else(|| OpWindow::new(self.stages))
    }

    /// Empties a window and keeps it.
    pub(crate) fn give(&self, mut window: OpWindow) {
        window.clear();
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram;
    use crate::stage::STAGES_MAX;

    #[test]
    fn returned_window_is_given_out_empty() {
        let pool = Pool::new(1);
        let mut window = pool.take();
        let memory = window.histograms.as_ptr();
        window.counts.count = 1;
        window.sums_ns[0] = 5;
        histogram::record(&mut window.histograms[0], 5);
        pool.give(window);
        let again = pool.take();
        assert_eq!(again.histograms.as_ptr(), memory);
        assert_eq!(again.counts.count, 0);
        assert_eq!(again.sums_ns, [0; STAGES_MAX]);
        assert_eq!(again.histograms[0], histogram::empty::<u32>());
        assert_ne!(pool.take().histograms.as_ptr(), memory);
    }
}
