//! What is said of work that nobody asks for, and that fails: who asks is told by his answer, of this nobody is.

use std::collections::HashSet;
use std::fmt;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::database::Failure;

/// For how long nothing must have failed until it is said to be over: what fails now and then is not said
/// anew each time.
const QUIET: Duration = Duration::from_secs(2);
/// What is said until all works again, at most: a reason that is another one each time would never end.
const SAID_MAX: usize = 8;
/// What waits to be told, at most: what comes then, while nobody reads it, is lost.
const WAITING_MAX: usize = 32;
/// For how long the last words are waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What is done though nobody asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Job {
    Leases,
    Floors,
    Rounds,
    Arrivals,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Job::Leases => "messages whose lease is over do not come back",
            Job::Floors => "removing may become slow",
            Job::Rounds => "what is too old, or was left by deleted queues, stays",
            Job::Arrivals => "who waits at another knee-queue is not told of what is sent here",
        })
    }
}

/// What is the matter, if anything is.
#[derive(Debug)]
pub(crate) struct Trouble {
    /// To the thread that tells, so that nobody waits for whoever reads it; there until this is dropped.
    teller: Option<SyncSender<String>>,
    /// Of that thread, which says nothing: it has ended when its sender is gone.
    ended: Mutex<Receiver<()>>,
    spell: Mutex<Option<Spell>>,
}

/// From the first failure until all works again.
#[derive(Debug)]
struct Spell {
    begun: Instant,
    last: Instant,
    /// What has not worked since it failed.
    failing: HashSet<Job>,
    /// What was said: each reason once for each job.
    said: HashSet<(Job, String)>,
}

impl Trouble {
    /// The thread that tells ends with this.
    pub(crate) fn new(tell: fn(&str)) -> Result<Trouble, Failure> {
        let (teller, told) = mpsc::sync_channel::<String>(WAITING_MAX);
        let (ends, ended) = mpsc::channel();
        thread::Builder::new()
            .name("trouble".to_owned())
            .spawn(move || {
                let _ends = ends;
                told.iter().for_each(|text| tell(&text));
            })
            .map_err(|error| Failure::Unavailable(format!("cannot start a thread: {error}")))?;
        let (teller, ended) = (Some(teller), Mutex::new(ended));
        Ok(Trouble { teller, ended, spell: Mutex::default() })
    }

    /// Says what is new about it.
    pub(crate) fn after(&self, job: Job, done: Result<(), Failure>) {
        let mut spell = self.spell.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = news(&mut spell, job, done, Instant::now()) {
            self.say(text);
        }
    }

    /// Says something else. Where nobody reads what was told before, it is lost.
    pub(crate) fn say(&self, text: String) {
        if let Some(teller) = &self.teller {
            let _ = teller.try_send(text);
        }
    }

    /// Has told what there was, unless nobody reads it for so long.
    fn end(&mut self, patience: Duration) {
        self.teller = None;
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(patience);
    }
}

impl Drop for Trouble {
    fn drop(&mut self) {
        self.end(LAST_WORDS);
    }
}

fn news(
    spell: &mut Option<Spell>,
    job: Job,
    done: Result<(), Failure>,
    now: Instant,
) -> Option<String> {
    let Err(failure) = done else {
        let Spell { begun, last, failing, .. } = spell.as_mut()?;
        failing.remove(&job);
        if !failing.is_empty() || now.duration_since(*last) < QUIET {
            return None;
        }
        let text = format!("upkeep works again, {:.0?} after it began to fail", now - *begun);
        *spell = None;
        return Some(text);
    };
    let Spell { last, failing, said, .. } = spell.get_or_insert_with(|| Spell {
        begun: now,
        last: now,
        failing: HashSet::new(),
        said: HashSet::new(),
    });
    *last = now;
    failing.insert(job);
    if said.len() >= SAID_MAX || !said.insert((job, failure.to_string())) {
        return None;
    }
    Some(format!("upkeep fails, and is tried again until it works: {job}: {failure}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn failed(reason: &str) -> Result<(), Failure> {
        Err(Failure::Unavailable(reason.to_owned()))
    }

    #[test]
    fn each_reason_is_said_once_until_all_works_again() {
        let (start, mut spell) = (Instant::now(), None);
        let mut after = |ms, job, done| {
            news(&mut spell, job, done, start + Duration::from_millis(ms)).unwrap_or_default()
        };
        assert_eq!(after(0, Job::Leases, Ok(())), "");
        let begins = after(1000, Job::Leases, failed("cannot connect"));
        assert!(begins.ends_with("lease is over do not come back: cannot connect"), "{begins}");
        assert_eq!(after(1010, Job::Leases, failed("cannot connect")), "");
        assert!(
            after(1020, Job::Floors, failed("cannot connect")).contains("removing may become slow")
        );
        assert!(after(1030, Job::Rounds, failed("it took too long")).contains("too old"));
        // Now and then it works.
        assert_eq!(after(2000, Job::Leases, Ok(())), "");
        assert_eq!(after(2010, Job::Leases, failed("cannot connect")), "");
        // All have to, and for a while.
        for (ms, job) in [(5000, Job::Leases), (5010, Job::Floors), (5020, Job::Arrivals)] {
            assert_eq!(after(ms, job, Ok(())), "");
        }
        let over = "upkeep works again, 4s after it began to fail";
        assert_eq!(after(5250, Job::Rounds, Ok(())), over);
        assert_eq!(after(5500, Job::Rounds, Ok(())), "");
        assert!(after(6000, Job::Leases, failed("cannot connect")).contains("cannot connect"));
        assert_eq!(after(7500, Job::Leases, Ok(())), "", "it has just failed");
        assert!(after(8000, Job::Leases, Ok(())).contains("works again"));
    }

    #[test]
    fn nobody_waits_for_whoever_reads_it() {
        let trouble = Trouble::new(|_| {
            assert_eq!(thread::current().name(), Some("trouble"));
            loop {
                thread::park();
            }
        })
        .unwrap();
        for n in 0..10 * WAITING_MAX {
            // Each a spell of its own.
            *trouble.spell.lock().unwrap() = None;
            trouble.after(Job::Leases, failed(&n.to_string()));
        }
    }

    #[test]
    fn who_ends_has_told_what_there_was() {
        static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let mut trouble = Trouble::new(|text| {
            // As whoever reads it takes his time.
            thread::sleep(Duration::from_millis(10));
            TOLD.lock().unwrap().push(text.to_owned());
        })
        .unwrap();
        for text in ["first", "last"] {
            trouble.say(text.to_owned());
        }
        trouble.end(Duration::from_secs(60));
        assert_eq!(*TOLD.lock().unwrap(), ["first", "last"]);
    }

    #[test]
    fn reasons_that_are_never_the_same_are_said_some_times() {
        let (now, mut spell) = (Instant::now(), None);
        let said = (0..100)
            .filter_map(|n| news(&mut spell, Job::Leases, failed(&n.to_string()), now))
            .count();
        assert_eq!(said, SAID_MAX);
    }
}
