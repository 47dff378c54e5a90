//! Who begins to wait: the database has to know that his queue is watched, and those who are sending there and may
//! not have seen that have to end. One task sees to all queues, with one call for many of them, in which nobody is
//! waited for: whatever holds up some, others are told in the same time.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio::time::sleep_until;

use super::calls::{queue_number, senders, watch};
use super::failure::done_nothing;
use super::pool::Pool;
use super::{Inner, ended};
use crate::database::{Failure, WATCHED};
use crate::operation::QueueId;

/// How long it is paused before a queue is looked at again, at first and at last.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(100)];
/// Queues of one call.
const QUEUES_MAX: usize = 1000;

/// Queues in which somebody begins to wait.
#[derive(Debug)]
pub(super) struct Watching {
    pool: Arc<Pool>,
    /// The pauses in which those who are sending are waited for, at most.
    sending_max: Duration,
    begun: Mutex<Begun>,
    /// There is one more.
    more: Notify,
}

#[derive(Debug, Default)]
struct Begun {
    queues: HashMap<QueueId, Watch>,
    /// Whether a task sees to them.
    is_seen_to: bool,
}

/// One of them, until all who wait for it have an answer.
#[derive(Debug)]
struct Watch {
    number: i32,
    answer: watch::Sender<Option<Result<(), Failure>>>,
    /// Since the database was told.
    told: Option<Instant>,
    /// Those who were sending by then and are still, once that has been looked at.
    unaware: Option<HashSet<String>>,
    /// The pauses in which they have been waited for, so far.
    paused: Duration,
    /// The last pause, and when it is over.
    pause: Duration,
    due: Instant,
}

impl Watching {
    pub(super) fn new(pool: Arc<Pool>, sending_max: Duration) -> Watching {
        let (begun, more) = Default::default();
        Watching { pool, sending_max, begun, more }
    }

    fn lock(&self) -> MutexGuard<'_, Begun> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When to look next; where nobody waits any more, the task ends.
    fn next(&self) -> Option<Instant> {
        let mut begun = self.lock();
        begun.queues.retain(|_, watch| watch.is_wanted());
        let next = begun.queues.values().map(|watch| watch.due).min();
        begun.is_seen_to = next.is_some();
        next
    }

    /// The queues that are to be looked at now, each with its number and whether the database knows.
    fn due(&self) -> Vec<(QueueId, i32, bool)> {
        let (begun, now) = (self.lock(), Instant::now());
        let is_due = |(_, watch): &(_, &Watch)| watch.due <= now && watch.is_wanted();
        let mut due: Vec<_> = begun.queues.iter().filter(is_due).collect();
        due.sort_unstable_by_key(|(_, watch)| watch.due);
        due.truncate(QUEUES_MAX);
        due.into_iter().map(|(&queue, watch)| (queue, watch.number, watch.told.is_some())).collect()
    }

    fn fail(&self, failure: &Failure) {
        for (_, watch) in self.lock().queues.drain() {
            watch.answer.send_replace(Some(Err(failure.clone())));
        }
    }
}

impl Watch {
    fn new(number: i32) -> Watch {
        let (paused, pause) = Default::default();
        let (answer, told, unaware, due) = (watch::Sender::default(), None, None, Instant::now());
        Watch { number, answer, told, unaware, paused, pause, due }
    }

    fn is_wanted(&self) -> bool {
        self.answer.receiver_count() > 0
    }

    /// Those who are sending now have been looked at. Whether nobody is waited for any more.
    fn is_known(&mut self, senders: HashSet<String>, sending_max: Duration) -> bool {
        // A call may take its time, which is none in which they were given any.
        let unaware = match self.unaware.take() {
            Some(unaware) => {
                self.paused += self.pause;
                &unaware & &senders
            }
            None => {
                self.pause = Duration::ZERO;
                senders
            }
        };
        let is_known = unaware.is_empty() || self.paused >= sending_max;
        self.unaware = Some(unaware);
        is_known
    }

    fn looks_again(&mut self) {
        let [first, last] = PAUSES;
        self.pause = (2 * self.pause).clamp(first, last);
        self.due = Instant::now() + self.pause;
    }
}

/// Waits until the database knows that a queue is watched, and all who were sending there do.
pub(super) async fn watched(database: &Arc<Inner>, queue: QueueId) -> Result<(), Failure> {
    let number = queue_number(queue)?;
    let mut answer = {
        let mut begun = database.watching.lock();
        let watch = begun.queues.entry(queue).or_insert_with(|| Watch::new(number));
        let answer = watch.answer.subscribe();
        if !std::mem::replace(&mut begun.is_seen_to, true) {
            tokio::spawn(see_to_all(Arc::clone(database)));
        }
        answer
    };
    database.watching.more.notify_one();
    let answer = answer.wait_for(Option::is_some).await;
    answer.ok().and_then(|answer| answer.clone()).unwrap_or_else(|| {
        Err(Failure::Unavailable("nobody says that the queue is watched".to_owned()))
    })
}

/// As long as anybody waits.
async fn see_to_all(database: Arc<Inner>) {
    let watching = &database.watching;
    while let Some(due) = watching.next() {
        tokio::select! {
            () = sleep_until(due.into()) => {
                let look = async || ended(tokio::spawn(look(Arc::clone(&database))).await);
                let mut looked = look().await;
                if matches!(looked, Err(Failure::Unknown(_))) {
                    // The connection was lost. Whatever was done may be done again.
                    looked = look().await;
                }
                if let Err(failure) = looked {
                    watching.fail(&done_nothing(failure));
                }
            }
            () = watching.more.notified() => {}
        }
    }
}

/// Looks at those that are due.
async fn look(database: Arc<Inner>) -> Result<(), Failure> {
    let watching = &database.watching;
    let held = watching.pool.take().await?;
    let due = watching.due();
    let new: Vec<i32> =
        due.iter().filter(|(.., told)| !told).map(|(_, number, _)| *number).collect();
    // Twice as long as it is remembered here.
    let seconds = i32::try_from(2 * WATCHED.as_secs()).unwrap_or(i32::MAX);
    let since = Instant::now();
    let there = if new.is_empty() { HashMap::new() } else { watch(&held, &new, seconds).await? };
    let is_told = |number: &i32| there.get(number).is_none_or(|there| *there == Some(true));
    let told: Vec<i32> = due.iter().map(|(_, number, _)| *number).filter(is_told).collect();
    // Those who did not see that yet may be about to commit.
    let mut senders = if told.is_empty() { HashMap::new() } else { senders(&held, &told).await? };
    drop(held);
    let mut begun = watching.lock();
    for (queue, number, _) in due {
        let Some(watch) = begun.queues.get_mut(&queue) else { continue };
        let answer = match there.get(&number) {
            Some(Some(false)) => Some(Err(Failure::no_queue(queue))),
            Some(None) => None,
            Some(Some(true)) | None => {
                let since = *watch.told.get_or_insert(since);
                let is_known = watch
                    .is_known(senders.remove(&number).unwrap_or_default(), watching.sending_max);
                is_known.then(|| {
                    database.listener.watched(queue, since);
                    Ok(())
                })
            }
        };
        // Who comes later begins anew: nobody comes to it but under the lock.
        match answer {
            Some(answer) => {
                watch.answer.send_replace(Some(answer));
                begun.queues.remove(&queue);
            }
            None => watch.looks_again(),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_were_sending_are_waited_for_and_nobody_else_and_not_for_ever() {
        let senders = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let sending_max = Duration::from_secs(5);
        let mut watch = Watch::new(1);
        // Somebody had the queue's row before it was told: that is no part of it.
        (0..1000).for_each(|_| watch.looks_again());
        for (sending, is_known) in [(["a", "b"], false), (["b", "c"], false), (["c", "d"], true)] {
            assert_eq!(watch.is_known(senders(&sending), sending_max), is_known, "{sending:?}");
            watch.looks_again();
        }
        let mut watch = Watch::new(1);
        let mut paused = Duration::ZERO;
        while !watch.is_known(senders(&["a"]), sending_max) {
            watch.looks_again();
            paused += watch.pause;
        }
        assert!(paused >= sending_max && paused < sending_max + PAUSES[1], "{paused:?}");
        assert!(Watch::new(1).is_known(senders(&[]), sending_max));
    }
}
