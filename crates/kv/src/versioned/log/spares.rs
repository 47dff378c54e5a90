//! Segments made before they are needed: to make one takes the disk some milliseconds.
//!
//! One is made at a time, for their numbers are to be in the order of their use, and nothing is locked
//! meanwhile: whoever finds as many as it needs goes on, and who does not waits for the next one, not
//! for all that somebody else has made.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{RESERVED, Segment, Unwritable, lock};

/// Where the disk had no room for a segment, who writes is refused for so long without asking it again,
/// which takes some milliseconds, too: the keeper asks as often.
const PAUSE: Duration = Duration::from_millis(50);

/// Whether the disk has no room.
pub(super) fn is_full(error: &io::Error) -> bool {
    let full =
        [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
    full.contains(&error.kind())
}

/// What is told of an error that has cost nothing.
pub(super) fn refused(error: &io::Error) -> Unwritable {
    let why = error.to_string();
    if is_full(error) { Unwritable::NoSpace(why) } else { Unwritable::Failed(why) }
}

/// How many segments somebody takes, and how many are to be left then, for whom they are reserved.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    pub(super) taken: usize,
    /// Who leaves none at all takes also those that are earmarked.
    pub(super) left: usize,
}

impl Share {
    /// So many, whosever they are.
    pub(super) fn of_all(taken: usize) -> Share {
        Share { taken, left: 0 }
    }
}

#[derive(Debug)]
pub(super) struct Spares {
    state: Mutex<State>,
    made: Condvar,
    /// How many there are to be left while some of the reserved ones are missing that had been taken; else
    /// `usize::MAX`. For who commits: that is not to lock anything more.
    left: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    segments: VecDeque<Segment>,
    /// So many are for what moves now, which may be more than are reserved for that always.
    earmarked: usize,
    /// Whether one that is reserved was taken, and was not replaced yet.
    is_lent: bool,
    is_making: bool,
    /// Of the last one that was asked for, unless it was made.
    shortage: Option<Shortage>,
    /// The same of the last one that was to be earmarked: who asks for less may find it.
    unmovable: Option<Shortage>,
}

#[derive(Debug)]
struct Shortage {
    why: Unwritable,
    /// When the system said so, unless it may make one by now.
    since: Option<Instant>,
}

impl Shortage {
    fn new(error: &io::Error) -> Shortage {
        Shortage { why: refused(error), since: Some(Instant::now()) }
    }

    /// Why the disk is not to be asked now.
    fn refusal(&self) -> Option<Unwritable> {
        let is_fresh = self.since.is_some_and(|since| since.elapsed() < PAUSE);
        is_fresh.then(|| self.why.clone())
    }
}

/// For whom a segment is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    /// Who only writes is refused at once where the disk had no room just now.
    Writing,
    /// What frees space asks all the same.
    Freeing,
    /// What asks for so much that it says nothing of who asks for less.
    Moving,
}

impl State {
    /// See [`Spares::left`].
    fn left(&mut self) -> usize {
        let there = self.segments.len();
        self.is_lent &= there < self.earmarked.max(RESERVED);
        match self.is_lent {
            true if there < self.earmarked => 0,
            true => there,
            false => usize::MAX,
        }
    }

    /// How many there have to be.
    fn needed(&self, Share { taken, left }: Share) -> usize {
        taken + if left == 0 { 0 } else { left.max(self.earmarked) }
    }

    /// Why nobody who only writes is to ask the disk now.
    fn refusal(&self) -> Option<Unwritable> {
        self.shortage.as_ref()?.refusal()
    }
}

/// Nobody makes one any more, if only because it panicked.
struct Making<'a>(&'a Spares);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).is_making = false;
        self.0.made.notify_all();
    }
}

/// What moves now has segments of its own, until this is dropped.
#[derive(Debug)]
pub(crate) struct Earmark<'a>(&'a Spares);

impl Earmark<'_> {
    /// From now on no more than so many are needed. Returns whether that leaves some to others who had none.
    pub(crate) fn lower(&self, count: usize) -> bool {
        let mut state = lock(&self.0.state);
        let was_short = state.segments.len() < state.earmarked;
        let earmarked = state.earmarked.min(count);
        self.0.note_earmarked(&mut state, earmarked);
        was_short && state.segments.len() >= state.earmarked
    }
}

impl Drop for Earmark<'_> {
    fn drop(&mut self) {
        self.0.note_earmarked(&mut lock(&self.0.state), 0);
    }
}

impl Spares {
    /// Those that were made before, and why there are no more, unless there may be. Of a log that `is_begun`
    /// already, reserved ones that are missing had been taken.
    pub(super) fn new(
        segments: VecDeque<Segment>,
        shortage: Option<&io::Error>,
        is_begun: bool,
    ) -> Spares {
        let shortage = shortage.map(Shortage::new);
        let is_lent = is_begun || shortage.is_some();
        let mut state =
            State { segments, earmarked: 0, is_lent, is_making: false, shortage, unmovable: None };
        let left = AtomicUsize::new(state.left());
        Spares { state: Mutex::new(state), made: Condvar::new(), left }
    }

    /// To be called whenever there are more or fewer.
    fn note_left(&self, state: &mut State) {
        self.left.store(state.left(), Ordering::Relaxed);
    }

    fn note_earmarked(&self, state: &mut State, earmarked: usize) {
        state.earmarked = earmarked;
        self.note_left(state);
    }

    /// Whether some of the reserved ones were taken, and there are fewer than are to be left.
    pub(super) fn are_fewer_than(&self, left: usize) -> bool {
        self.left.load(Ordering::Relaxed) < left
    }

    /// Sees to it that this can be taken. Who does not `insist` is refused at once where the disk had no
    /// room just now.
    pub(super) fn fill(
        &self,
        share: Share,
        insists: bool,
        make: impl Fn() -> io::Result<Segment>,
    ) -> Result<(), Unwritable> {
        let whom = if insists { For::Freeing } else { For::Writing };
        self.filled(share, whom, make).map(drop)
    }

    /// Sees to it that there are so many, and that whoever leaves any leaves these. One at a time earmarks some.
    /// Those that were made where the disk has no room for all of them stay, for whoever needs some.
    pub(super) fn earmark(
        &self,
        count: usize,
        make: impl Fn() -> io::Result<Segment>,
    ) -> Result<Earmark<'_>, Unwritable> {
        let mut state = self.filled(Share::of_all(count), For::Moving, make)?;
        if count > 0 {
            state.unmovable = None;
        }
        self.note_earmarked(&mut state, count);
        Ok(Earmark(self))
    }

    fn filled(
        &self,
        share: Share,
        whom: For,
        make: impl Fn() -> io::Result<Segment>,
    ) -> Result<MutexGuard<'_, State>, Unwritable> {
        let mut state = lock(&self.state);
        while state.segments.len() < state.needed(share) {
            let refusal = match whom {
                For::Writing => state.refusal(),
                For::Freeing => None,
                For::Moving => state.unmovable.as_ref().and_then(Shortage::refusal),
            };
            if let Some(refusal) = refusal {
                return Err(refusal);
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
            // It is put where it belongs before another one is begun.
            std::mem::forget(making);
            state.is_making = false;
            self.made.notify_all();
            let shortage = made.as_ref().err().map(Shortage::new);
            match whom {
                For::Moving if shortage.is_some() => state.unmovable = shortage,
                _ => state.shortage = shortage,
            }
            state.segments.push_back(made.map_err(|error| refused(&error))?);
            self.note_left(&mut state);
        }
        Ok(state)
    }

    /// Takes one, where so many are left.
    pub(super) fn take(
        &self,
        left: usize,
        insists: bool,
        make: impl Fn() -> io::Result<Segment>,
    ) -> Result<Segment, Unwritable> {
        let whom = if insists { For::Freeing } else { For::Writing };
        let mut state = self.filled(Share { taken: 1, left }, whom, make)?;
        let taken = state.segments.pop_front().expect("there is one at least");
        state.is_lent |= insists;
        self.note_left(&mut state);
        Ok(taken)
    }

    /// Gives back some that were taken and not used.
    pub(super) fn give_back(&self, segments: Vec<Segment>) {
        let mut state = lock(&self.state);
        segments.into_iter().rev().for_each(|segment| state.segments.push_front(segment));
        self.note_left(&mut state);
    }

    /// Whether this can be taken.
    pub(super) fn has(&self, share: Share) -> bool {
        let state = lock(&self.state);
        state.segments.len() >= state.needed(share)
    }

    /// Whether who only writes and needs another one is refused at once.
    pub(super) fn refuses(&self) -> bool {
        lock(&self.state).refusal().is_some()
    }

    /// The disk may have room again.
    pub(super) fn freed(&self) {
        let mut state = lock(&self.state);
        let State { shortage, unmovable, .. } = &mut *state;
        for shortage in [shortage, unmovable].into_iter().flatten() {
            shortage.since = None;
        }
    }

    /// Whether there was no room for the last one that was asked for: what frees some helps then.
    pub(super) fn is_short(&self) -> bool {
        let state = lock(&self.state);
        state.shortage.as_ref().is_some_and(|short| short.why.is_full())
    }

    /// Whether the last one that was asked for was not made.
    pub(super) fn is_wanted(&self) -> bool {
        lock(&self.state).shortage.is_some()
    }

    /// Why the last one that was asked for was not made, or those to move what is alive, unless they were, and
    /// what that means.
    pub(super) fn shortage(&self) -> Option<String> {
        let State { shortage, unmovable, .. } = &*lock(&self.state);
        let refused = "what needs one is refused until there is, reads and deletes go on";
        match (shortage, unmovable) {
            (Some(Shortage { why, .. }), _) if why.is_full() => {
                Some(format!("no room for another segment of the log: {why}; {refused}"))
            }
            (Some(Shortage { why, .. }), _) => {
                Some(format!("another segment of the log cannot be made: {why}; {refused}"))
            }
            (None, Some(Shortage { why, .. })) => Some(format!(
                "what is alive in a segment that is larger than others cannot be moved: {why}; its \
                 space is not had back until it can"
            )),
            (None, None) => None,
        }
    }

    /// One is gone that was larger: it needs no room any more.
    pub(super) fn forget_unmovable(&self) {
        lock(&self.state).unmovable = None;
    }

    /// Nobody needs another one: whether there would be room is no longer known.
    pub(super) fn forget_shortage(&self) {
        lock(&self.state).shortage = None;
    }

    /// All of them but so many, at the end.
    pub(super) fn drain(&self, kept: usize) -> VecDeque<Segment> {
        let mut state = lock(&self.state);
        let kept = kept.min(state.segments.len());
        let drained = state.segments.split_off(kept);
        self.note_left(&mut state);
        drained
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn who_needs_one_does_not_wait_for_all_that_somebody_else_makes() {
        let (spares, next) = (Spares::new(VecDeque::new(), None, false), AtomicU32::new(1));
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
                spares.fill(Share::of_all(5), false, make)
            });
            third_begun.wait();
            // Two are there, and the third one is being made.
            assert!(spares.has(Share::of_all(2)) && !spares.has(Share::of_all(3)));
            assert_eq!(spares.take(1, false, made).unwrap().id, 1);
            assert_eq!(spares.take(0, false, made).unwrap().id, 2);
            third_goes_on.wait();
            slow.join().unwrap().unwrap();
        });
        let ids: Vec<_> = spares.drain(0).iter().map(|segment| segment.id).collect();
        assert_eq!(ids, [3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_disk_that_has_no_room_is_not_asked_by_each_who_writes() {
        let (spares, asked) = (Spares::new(VecDeque::new(), None, false), AtomicU32::new(0));
        let full = || {
            asked.fetch_add(1, Ordering::Relaxed);
            Err(io::ErrorKind::StorageFull.into())
        };
        let began = Instant::now();
        for _ in 0..1000 {
            spares.take(0, false, full).unwrap_err();
        }
        let pauses = began.elapsed().as_nanos() / PAUSE.as_nanos();
        assert!(u128::from(asked.load(Ordering::Relaxed)) <= 1 + pauses, "{asked:?} in {pauses}");
        assert!(spares.shortage().is_some());
        // The keeper asks all the same, and who has freed some lets others ask.
        let before = asked.load(Ordering::Relaxed);
        spares.fill(Share::of_all(1), true, full).unwrap_err();
        spares.freed();
        spares.take(0, false, full).unwrap_err();
        assert_eq!(asked.load(Ordering::Relaxed), before + 2);
        spares.freed();
        spares.take(0, false, || Segment::growing(1, 0, 4096)).unwrap();
        assert_eq!(spares.shortage(), None);
    }

    #[test]
    fn what_is_no_want_of_room_is_not_told_as_one() {
        let spares = Spares::new(VecDeque::new(), None, false);
        let no_file = || Err(io::Error::from_raw_os_error(libc::EMFILE));
        let refused = spares.take(0, false, no_file).unwrap_err();
        assert!(matches!(refused, Unwritable::Failed(_)), "{refused:?}");
        assert_eq!(spares.take(0, false, no_file).unwrap_err(), refused);
        assert!(spares.shortage().is_some() && !spares.is_short());
        let full = || Err(io::Error::from_raw_os_error(libc::ENOSPC));
        let refused = spares.take(0, true, full).unwrap_err();
        assert!(matches!(refused, Unwritable::NoSpace(_)), "{refused:?}");
        assert!(spares.is_short());
    }

    #[test]
    fn who_panics_while_it_makes_one_stops_nobody() {
        let spares = Spares::new(VecDeque::new(), None, false);
        std::thread::scope(|scope| {
            let panics =
                scope.spawn(|| spares.fill(Share::of_all(1), false, || panic!("as is asked for")));
            panics.join().unwrap_err();
        });
        assert_eq!(spares.take(0, false, || Segment::growing(1, 0, 4096)).unwrap().id, 1);
    }

    #[test]
    fn what_is_earmarked_is_taken_by_what_it_is_for_alone() {
        let (spares, next) = (Spares::new(VecDeque::new(), None, false), AtomicU32::new(1));
        let made = || Segment::growing(next.fetch_add(1, Ordering::Relaxed), 0, 4096);
        let full = || Err(io::ErrorKind::StorageFull.into());
        let earmark = spares.earmark(5, made).unwrap();
        // Who only writes, and who deletes.
        for left in [RESERVED, 1] {
            assert!(!spares.are_fewer_than(left) && spares.has(Share { taken: 0, left }));
            assert!(!spares.has(Share { taken: 1, left }));
            spares.take(left, true, full).unwrap_err();
        }
        for taken in 1..=5 {
            assert_eq!(spares.take(0, true, full).unwrap().id, taken);
            // Nor does anybody write into what was taken, before as many are there again.
            assert!([RESERVED, 1].into_iter().all(|left| spares.are_fewer_than(left)));
            assert!(!spares.are_fewer_than(0));
        }
        spares.fill(Share { taken: 0, left: 1 }, true, made).unwrap();
        assert!(!spares.are_fewer_than(RESERVED) && !spares.has(Share::of_all(6)));
        spares.take(0, true, full).unwrap();
        assert!(spares.are_fewer_than(1));
        // What is left to be moved needs no more: so much is there.
        assert!(earmark.lower(4));
        assert!(!spares.are_fewer_than(RESERVED) && !spares.has(Share { taken: 1, left: 1 }));
        assert!(!earmark.lower(5));
        assert!(!spares.are_fewer_than(RESERVED));
        spares.take(0, true, full).unwrap();
        drop(earmark);
        // Those that are reserved always are there still.
        assert!(!spares.are_fewer_than(RESERVED));
        spares.take(RESERVED, false, full).unwrap();
    }

    #[test]
    fn a_move_that_does_not_fit_says_nothing_of_who_asks_for_less() {
        let (spares, asked) = (Spares::new(VecDeque::new(), None, false), AtomicU32::new(0));
        let few = || match asked.fetch_add(1, Ordering::Relaxed) {
            made @ 0..4 => Segment::growing(made + 1, 0, 4096),
            _ => Err(io::ErrorKind::StorageFull.into()),
        };
        let refused = spares.earmark(6, few).unwrap_err();
        assert!(refused.is_full() && !spares.is_short() && !spares.is_wanted());
        let told = spares.shortage().unwrap();
        assert!(told.starts_with("what is alive"), "{told}");
        // One that needs none says nothing of that.
        drop(spares.earmark(0, few).unwrap());
        assert_eq!(spares.shortage(), Some(told));
        spares.take(RESERVED, false, few).unwrap();
        assert!(!spares.is_short());
        // Nor does it ask again at once.
        let before = asked.load(Ordering::Relaxed);
        let began = Instant::now();
        (0..1000).for_each(|_| drop(spares.earmark(6, few).unwrap_err()));
        let pauses = began.elapsed().as_nanos() / PAUSE.as_nanos();
        assert!(u128::from(asked.load(Ordering::Relaxed) - before) <= 1 + pauses);
    }
}
