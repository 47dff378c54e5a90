//! Segments made before they are needed: to make one takes the disk some milliseconds.
//!
//! The last [`RESERVED`] spares are a reserve. Puts use none of them, deletes may use one, moves may use both. So a
//! full disk still accepts deletes, and reclaims their space. Writers are refused while some of them
//! are missing.

use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::versioned::segment::Segment;
use crate::versioned::types::{Unwritable, lock};

/// Segments that puts do not use: one for deletes and one for moves. Without the second, a full disk would stay full.
pub(crate) const RESERVED: usize = 2;

/// Writers are refused for so long after the disk had no room, without asking it again. The keeper asks as often.
const PAUSE: Duration = Duration::from_millis(50);

/// Whether the disk has no room.
pub(super) fn is_full(error: &io::Error) -> bool {
    let full =
        [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
    full.contains(&error.kind())
}

/// An error that has cost nothing, for the caller.
pub(super) fn refused(error: &io::Error) -> Unwritable {
    let why = error.to_string();
    if is_full(error) { Unwritable::NoSpace(why) } else { Unwritable::Failed(why) }
}

#[derive(Debug, Default)]
pub(super) struct Spares {
    segments: Mutex<VecDeque<Segment>>,
    /// How many there are: commits lock nothing more.
    ready: AtomicUsize,
    /// So many are kept for a move, which may be more than [`RESERVED`].
    kept: AtomicUsize,
    /// Locked while one is made: their numbers are in the order of their use.
    making: Mutex<()>,
    /// Why the last one was not made.
    failure: Mutex<Option<Failure>>,
}

#[derive(Debug)]
struct Failure {
    why: Unwritable,
    /// When the disk refused; `None` once space was freed.
    at: Option<Instant>,
}

impl Failure {
    fn new(error: &io::Error) -> Failure {
        Failure { why: refused(error), at: Some(Instant::now()) }
    }
}

/// Segments kept for a move until this is dropped.
#[derive(Debug)]
pub(crate) struct Kept<'a>(&'a Spares);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.0.kept.store(0, Ordering::Relaxed);
    }
}

impl Spares {
    /// Those that a recovery found, and why the next one could not be made.
    pub(super) fn new(segments: VecDeque<Segment>, failure: Option<&io::Error>) -> Spares {
        Spares {
            ready: AtomicUsize::new(segments.len()),
            segments: Mutex::new(segments),
            failure: Mutex::new(failure.map(Failure::new)),
            ..Spares::default()
        }
    }

    /// How many there are.
    pub(super) fn ready(&self) -> usize {
        self.ready.load(Ordering::Relaxed)
    }

    /// How many are kept for a move.
    pub(super) fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }

    fn change<R>(&self, change: impl FnOnce(&mut VecDeque<Segment>) -> R) -> R {
        let mut segments = lock(&self.segments);
        let changed = change(&mut segments);
        self.ready.store(segments.len(), Ordering::Relaxed);
        changed
    }

    /// Makes segments until there are so many. Unless the caller `insists`, it is refused at once where the disk had
    /// no room just now.
    pub(super) fn fill(
        &self,
        count: usize,
        insists: bool,
        make: impl Fn() -> io::Result<Segment>,
    ) -> Result<(), Unwritable> {
        while self.ready() < count {
            if let Some(why) = self.refusal().filter(|_| !insists) {
                return Err(why);
            }
            let _making = lock(&self.making);
            if self.ready() < count && (insists || self.refusal().is_none()) {
                let made = make();
                *lock(&self.failure) = made.as_ref().err().map(Failure::new);
                let made = made.map_err(|error| refused(&error))?;
                self.change(|segments| segments.push_back(made));
            }
        }
        Ok(())
    }

    /// Makes as many as a move needs, and keeps them for it; `None` where the disk has no room for them.
    pub(super) fn keep(
        &self,
        count: usize,
        make: impl Fn() -> io::Result<Segment>,
    ) -> Option<Kept<'_>> {
        while self.ready() < count {
            let _making = lock(&self.making);
            if self.ready() < count {
                let made = make().ok()?;
                self.change(|segments| segments.push_back(made));
            }
        }
        self.kept.store(count, Ordering::Relaxed);
        Some(Kept(self))
    }

    /// Takes a spare; leaves at least `left`.
    pub(super) fn take(
        &self,
        left: usize,
        insists: bool,
        make: impl Fn() -> io::Result<Segment>,
    ) -> Result<Segment, Unwritable> {
        loop {
            self.fill(left + 1, insists, &make)?;
            let take = |segments: &mut VecDeque<_>| {
                if segments.len() > left { segments.pop_front() } else { None }
            };
            if let Some(taken) = self.change(take) {
                if left == 0 {
                    let less = |kept: usize| Some(kept.saturating_sub(1));
                    let _ = self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
                }
                return Ok(taken);
            }
        }
    }

    /// Gives back some that were taken and not used.
    pub(super) fn give_back(&self, fresh: Vec<Segment>) {
        self.change(|segments| {
            fresh.into_iter().rev().for_each(|segment| segments.push_front(segment));
        });
    }

    /// Why writers do not ask the disk now.
    pub(super) fn refusal(&self) -> Option<Unwritable> {
        let failure = lock(&self.failure);
        let Failure { why, at } = failure.as_ref()?;
        at.is_some_and(|at| at.elapsed() < PAUSE).then(|| why.clone())
    }

    /// The disk may have room again.
    pub(super) fn freed(&self) {
        if let Some(failure) = &mut *lock(&self.failure) {
            failure.at = None;
        }
    }

    /// Whether the disk had no room for the last one: freeing space helps then.
    pub(super) fn is_short(&self) -> bool {
        lock(&self.failure).as_ref().is_some_and(|failure| failure.why.is_full())
    }

    /// Whether the last one was not made.
    pub(super) fn is_wanted(&self) -> bool {
        lock(&self.failure).is_some()
    }

    /// Why the last one was not made, and what that means.
    pub(super) fn shortage(&self) -> Option<String> {
        let failure = lock(&self.failure);
        let why = &failure.as_ref()?.why;
        let what = match why.is_full() {
            true => "no room for another segment of the log",
            false => "another segment of the log cannot be made",
        };
        Some(format!(
            "{what}: {why}; writes are refused until there is one, reads and deletes go on"
        ))
    }

    /// No further segment is needed, so the last failure no longer counts.
    pub(super) fn forget_shortage(&self) {
        *lock(&self.failure) = None;
    }

    /// All of them but the first few.
    pub(super) fn drain(&self, kept: usize) -> VecDeque<Segment> {
        self.change(|segments| segments.split_off(kept.min(segments.len())))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
        // The keeper asks all the same, and after it has freed space writers ask as well.
        let before = asked.load(Ordering::Relaxed);
        spares.fill(1, true, full).unwrap_err();
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
    fn segments_kept_for_a_move_are_left_to_it() {
        let (spares, next) = (Spares::default(), AtomicU32::new(1));
        let made = || Segment::growing(next.fetch_add(1, Ordering::Relaxed), 0, 4096);
        let kept = spares.keep(5, made).unwrap();
        spares.take(spares.kept(), true, full).unwrap_err();
        for taken in 1..=5 {
            assert_eq!(spares.take(0, true, full).unwrap().id, taken);
            assert_eq!((spares.kept(), spares.ready()), (5 - taken as usize, 5 - taken as usize));
        }
        drop(kept);
        spares.forget_shortage();
        // A move that does not fit says nothing of writers, which need fewer.
        assert!(spares.keep(2, full).is_none());
        assert_eq!((spares.kept(), spares.shortage()), (0, None));
    }
}
