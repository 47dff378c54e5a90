//! Brings the windows of all threads together, second by second.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::clock::NS_PER_S;
use crate::op::Op;
use crate::role::{Reading as _, Role};
use crate::window::{OpWindows, Window, add_ops};

/// How long a second waits for the threads that have not reported it.
pub(crate) const GRACE: Duration = Duration::from_millis(500);

/// One second of the whole process.
#[derive(Debug)]
pub(crate) struct Second<R: Role> {
    /// The wall-clock second.
    pub(crate) second: u64,
    /// Its beginning, on the wall clock; later than `second` where the process began within it.
    pub(crate) from_unix_ns: u64,
    /// How much of it the process lived through.
    pub(crate) seconds: f64,
    pub(crate) ops: OpWindows,
    pub(crate) reading: R::Reading,
    pub(crate) connections: u64,
    /// CPU time of the threads that reported, by index.
    pub(crate) cpu: Vec<(usize, Duration)>,
}

/// Collects windows into seconds, and gives the seconds out in ascending order.
///
/// A second is complete when every thread has reported it or a later one, or has ended. An
/// incomplete one is given out after [`GRACE`]; what arrives for it afterwards counts in the
/// earliest second that is still open, so that nothing is lost and nothing counts twice.
#[derive(Debug)]
pub(crate) struct Collator<R: Role> {
    threads: Vec<Progress>,
    open: BTreeMap<u64, Open<R>>,
    /// The last second given out, and the wall-clock time that the seconds so far reach to.
    given: Option<(u64, u64)>,
}

#[derive(Clone, Debug, Default)]
struct Progress {
    reached: Option<u64>,
    ended: bool,
}

#[derive(Debug)]
struct Open<R: Role> {
    /// When the first of its windows arrived.
    since: Instant,
    /// By thread.
    windows: BTreeMap<usize, Window<R>>,
}

impl<R: Role> Collator<R> {
    pub(crate) fn new(threads: usize) -> Collator<R> {
        Collator { threads: vec![Progress::default(); threads], open: BTreeMap::new(), given: None }
    }

    /// Takes in a window that arrived at `now`.
    pub(crate) fn push(&mut self, window: Window<R>, now: Instant) {
        let earliest = self.given.map_or(0, |(second, _)| second + 1);
        let second = window.second().max(earliest);
        let progress = &mut self.threads[window.thread];
        progress.reached = progress.reached.max(Some(second));
        progress.ended |= window.last;
        let open = self
            .open
            .entry(second)
            .or_insert_with(|| Open { since: now, windows: BTreeMap::new() });
        match open.windows.get_mut(&window.thread) {
            Some(earlier) => earlier.then(window),
            None => {
                open.windows.insert(window.thread, window);
            }
        }
    }

    /// When the earliest open second will have waited long enough.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let (_, open) = self.open.first_key_value()?;
        Some(open.since + GRACE)
    }

    /// The earliest open second, if it is complete or has waited long enough by `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Second<R>> {
        let (&second, _) = self.open.first_key_value()?;
        let complete =
            self.threads.iter().all(|thread| thread.ended || thread.reached >= Some(second));
        (complete || self.deadline()? <= now).then(|| self.pop_first())?
    }

    /// The earliest open second, complete or not.
    pub(crate) fn pop_first(&mut self) -> Option<Second<R>> {
        let (second, open) = self.open.pop_first()?;
        let mut windows = open.windows.into_values();
        let first = windows.next()?;
        let mut from_unix_ns = first.from_unix_ns;
        let mut to_unix_ns = first.to_unix_ns;
        let mut merged = Second::<R> {
            second,
            from_unix_ns,
            seconds: 0.0,
            ops: first.ops,
            reading: first.reading,
            connections: first.connections,
            cpu: vec![(first.thread, first.cpu)],
        };
        for window in windows {
            from_unix_ns = from_unix_ns.min(window.from_unix_ns);
            to_unix_ns = to_unix_ns.max(window.to_unix_ns);
            add_ops(&mut merged.ops, window.ops);
            merged.reading.beside(&window.reading);
            merged.connections += window.connections;
            merged.cpu.push((window.thread, window.cpu));
        }
        // A late window reaches back over seconds that were given out already: their time must
        // not count twice. (A wall clock that was set back is no such case.)
        if let Some((_, reached_ns)) = self.given
            && (from_unix_ns..to_unix_ns).contains(&reached_ns)
        {
            from_unix_ns = reached_ns;
        }
        merged.from_unix_ns = from_unix_ns;
        merged.seconds = to_unix_ns.saturating_sub(from_unix_ns) as f64 / NS_PER_S as f64;
        self.given = Some((second, to_unix_ns));
        Some(merged)
    }
}

impl<R: Role> Second<R> {
    /// The types of request that occurred, in printing order.
    pub(crate) fn ops(&self) -> impl Iterator<Item = (Op, &crate::window::OpWindow)> {
        Op::ALL.into_iter().zip(&self.ops).filter_map(|(op, window)| Some((op, window.as_deref()?)))
    }
}
