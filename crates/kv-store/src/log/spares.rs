//! Prepared segments: making one takes the disk some milliseconds.
//!
//! The last [`RESERVED`] spares are a reserve. Puts use none of them, deletes may use one, moves may use both. So a
//! full disk still accepts deletes and reclaims their space. Writes are refused while the reserve is incomplete.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::segment::Segment;
use crate::types::{Unwritable, lock};

/// Segments that puts must leave: one for deletes and one for moves. Without the latter, a full disk would stay full.
pub(crate) const RESERVED: usize = 2;

/// After the disk refused a segment, writers are refused for this time without another attempt. The keeper tries at the
/// same interval.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) fn is_full(error: &io::Error) -> bool {
    let full =
        [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
    full.contains(&error.kind())
}

/// Converts an error after which no data is lost.
pub(super) fn refused(error: &io::Error) -> Unwritable {
    let why = error.to_string();
    if is_full(error) { Unwritable::NoSpace(why) } else { Unwritable::Failed(why) }
}

#[derive(Debug, Default)]
pub(super) struct Spares {
    state: Mutex<State>,
    /// Notified when an attempt to make a segment ends.
    made: Condvar,
    /// Number of spares. Commits read it without a lock; it changes only under the lock of `state`.
    ready: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    segments: VecDeque<Segment>,
    /// Whether a thread is making a segment. Other threads wait: segments are used in the order of their numbers.
    is_making: bool,
    /// Why the last attempt failed.
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Failure {
    why: Unwritable,
    /// When the disk refused; `None` once space has been freed.
    at: Option<Instant>,
}

impl Failure {
    fn new(error: &io::Error) -> Failure {
        Failure { why: refused(error), at: Some(Instant::now()) }
    }

    /// The error to return without another attempt, during a [`PAUSE`].
    fn refusal(&self) -> Option<Unwritable> {
        self.at.is_some_and(|at| at.elapsed() < PAUSE).then(|| self.why.clone())
    }
}

/// Marks that a thread makes a segment. Its drop, only in a panic, releases the waiting threads.
struct Making<'a>(&'a Spares);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).is_making = false;
        self.0.made.notify_all();
    }
}

impl Spares {
    /// Takes the spares that a recovery found, and the failure to make another.
    pub(super) fn new(segments: VecDeque<Segment>, failure: Option<&io::Error>) -> Spares {
        Spares {
            ready: AtomicUsize::new(segments.len()),
            state: Mutex::new(State {
                segments,
                failure: failure.map(Failure::new),
                ..State::default()
            }),
            ..Spares::default()
        }
    }

    /// Number of spares.
    pub(super) fn ready(&self) -> usize {
        self.ready.load(Ordering::Relaxed)
    }

    fn note_ready(&self, state: &State) {
        self.ready.store(state.segments.len(), Ordering::Relaxed);
    }

    /// Makes segments until `count` can be taken and `left` remain. During a [`PAUSE`], it fails at once unless the
    /// caller `insists`.
    pub(super) fn fill(
        &self,
        count: usize,
        left: usize,
        insists: bool,
        make: impl Fn() -> io::Result<Segment>,
    ) -> Result<(), Unwritable> {
        self.filled(count, left, insists, make).map(drop)
    }

    fn filled(
        &self,
        count: usize,
        left: usize,
        insists: bool,
        make: impl Fn() -> io::Result<Segment>,
    ) -> Result<MutexGuard<'_, State>, Unwritable> {
        let mut state = lock(&self.state);
        while state.segments.len() < count + left {
            let failure = state.failure.as_ref().filter(|_| !insists);
            if let Some(why) = failure.and_then(Failure::refusal) {
                return Err(why);
            }
            if state.is_making {
                state = self.made.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_making = true;
            drop(state);
            let making = Making(self);
            let made = make();
            state = lock(&self.state);
            // The lock is held until this segment has its place: no other thread makes the next one before.
            std::mem::forget(making);
            state.is_making = false;
            self.made.notify_all();
            state.failure = made.as_ref().err().map(Failure::new);
            state.segments.push_back(made.map_err(|error| refused(&error))?);
            self.note_ready(&state);
        }
        Ok(state)
    }

    /// Takes a spare, and leaves at least `left` spares.
    pub(super) fn take(
        &self,
        left: usize,
        insists: bool,
        make: impl Fn() -> io::Result<Segment>,
    ) -> Result<Segment, Unwritable> {
        let mut state = self.filled(1, left, insists, make)?;
        let taken = state.segments.pop_front().expect("there is a spare");
        self.note_ready(&state);
        Ok(taken)
    }

    /// Returns unused spares.
    pub(super) fn give_back(&self, fresh: Vec<Segment>) {
        let mut state = lock(&self.state);
        fresh.into_iter().rev().for_each(|segment| state.segments.push_front(segment));
        self.note_ready(&state);
    }

    /// The error for writers, while a [`PAUSE`] lasts.
    pub(super) fn refusal(&self) -> Option<Unwritable> {
        lock(&self.state).failure.as_ref()?.refusal()
    }

    /// Notes that the disk may have space again: ends a [`PAUSE`].
    pub(super) fn freed(&self) {
        if let Some(failure) = &mut lock(&self.state).failure {
            failure.at = None;
        }
    }

    /// Whether the last attempt failed because the disk is full, so that reclaiming space would help.
    pub(super) fn is_short(&self) -> bool {
        lock(&self.state).failure.as_ref().is_some_and(|failure| failure.why.is_full())
    }

    /// Whether the last attempt failed.
    pub(super) fn is_wanted(&self) -> bool {
        lock(&self.state).failure.is_some()
    }

    /// Why the last attempt failed, and the consequence.
    pub(super) fn shortage(&self) -> Option<String> {
        let state = lock(&self.state);
        let Failure { why, .. } = state.failure.as_ref()?;
        let failed = match why.is_full() {
            true => "no room for another segment of the log",
            false => "another segment of the log cannot be made",
        };
        Some(format!(
            "{failed}: {why}; writes are refused until there is one, reads and deletes go on"
        ))
    }

    /// Forgets the last failure, as no further segment is needed.
    pub(super) fn forget_shortage(&self) {
        lock(&self.state).failure = None;
    }

    /// Removes all spares but the `first` ones.
    pub(super) fn drain(&self, first: usize) -> VecDeque<Segment> {
        let mut state = lock(&self.state);
        let first = first.min(state.segments.len());
        let drained = state.segments.split_off(first);
        self.note_ready(&state);
        drained
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn full() -> io::Result<Segment> {
        Err(io::ErrorKind::StorageFull.into())
    }

    #[test]
    fn full_disk_is_asked_by_writers_after_a_pause() {
        let (spares, asked) = (Spares::default(), AtomicU32::new(0));
        let full = || {
            asked.fetch_add(1, Ordering::Relaxed);
            full()
        };
        let began = Instant::now();
        for _ in 0..1000 {
            spares.take(0, false, full).unwrap_err();
        }
        let pauses = began.elapsed().as_nanos() / PAUSE.as_nanos();
        assert!(u128::from(asked.load(Ordering::Relaxed)) <= 1 + pauses, "{asked:?} in {pauses}");
        assert!(spares.shortage().is_some());
        // The keeper tries nevertheless; once it has freed space, writers try as well.
        let before = asked.load(Ordering::Relaxed);
        spares.fill(1, 0, true, full).unwrap_err();
        spares.freed();
        spares.take(0, false, full).unwrap_err();
        assert_eq!(asked.load(Ordering::Relaxed), before + 2);
        spares.freed();
        spares.take(0, false, || Segment::growing(1, 0, 4096)).unwrap();
        assert_eq!(spares.shortage(), None);
    }

    #[test]
    fn missing_descriptor_is_no_full_disk() {
        let spares = Spares::default();
        let no_file = || Err(io::Error::from_raw_os_error(libc::EMFILE));
        let refused = spares.take(0, false, no_file).unwrap_err();
        assert!(matches!(refused, Unwritable::Failed(_)), "{refused:?}");
        assert_eq!(spares.take(0, false, no_file).unwrap_err(), refused);
        assert!(spares.shortage().is_some() && !spares.is_short());
        let refused = spares.take(0, true, full).unwrap_err();
        assert!(matches!(refused, Unwritable::NoSpace(_)), "{refused:?}");
        assert!(spares.is_short());
    }

    #[test]
    fn taker_waits_for_one_segment_and_not_for_all() {
        let (spares, next) = (Spares::default(), AtomicU32::new(1));
        let made = || Segment::growing(next.fetch_add(1, Ordering::Relaxed), 0, 4096);
        let (third_begun, third_goes_on) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| {
                let make = || {
                    if next.load(Ordering::Relaxed) == 3 {
                        third_begun.wait();
                        third_goes_on.wait();
                    }
                    made()
                };
                spares.fill(5, 0, false, make)
            });
            third_begun.wait();
            assert_eq!(spares.ready(), 2);
            assert_eq!(spares.take(1, false, made).unwrap().id, 1);
            assert_eq!(spares.take(0, false, made).unwrap().id, 2);
            // This thread waits while the other one makes the third segment.
            let third = scope.spawn(|| spares.take(0, false, full));
            third_goes_on.wait();
            assert_eq!(third.join().unwrap().unwrap().id, 3);
            slow.join().unwrap().unwrap();
        });
        let ids: Vec<_> = spares.drain(0).iter().map(|segment| segment.id).collect();
        assert_eq!(ids[..4], [4, 5, 6, 7]);
    }

    #[test]
    fn panic_of_a_maker_stops_no_other() {
        let spares = Spares::default();
        std::thread::scope(|scope| {
            let panics =
                scope.spawn(|| spares.fill(1, 0, false, || panic!("while a segment is made")));
            panics.join().unwrap_err();
        });
        assert_eq!(spares.take(0, false, || Segment::growing(1, 0, 4096)).unwrap().id, 1);
    }
}
