//! Histories: threads do random operations, and record the beginning and end of each.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use knee_kv_cache::engine::Version;
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use todc_utils::linearizability::history::{Action, History};
use todc_utils::{Specification, WGLChecker};

use crate::linearizability::model::{
    Change, Condition, KEYS, NUMBERS, Operation, Outcome, Seen, Write,
};

const THREADS: usize = 4;

/// Keys of one object of a history, see [`Mix`].
pub(crate) type Group = &'static [usize];

/// A store that does the operations of a history.
pub(crate) trait Operations: Sync {
    fn read(&self, key: usize) -> Seen;
    fn scan(&self) -> Vec<(usize, Seen)>;
    fn write(&self, writes: &[Write]) -> Outcome;
}

/// The operations of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mix {
    /// All operations on all keys.
    Any,
    /// Reads and writes of one key at a time.
    Single,
    /// Operations on one key at a time, with only the writes for which memcached has a command.
    Commands,
    /// Writes put all the keys of a group; reads are of one key, scans of all.
    Whole(&'static [Group]),
}

#[derive(Debug)]
pub(crate) struct Recorded {
    thread: usize,
    began: u64,
    over: u64,
    operation: Operation,
}

/// Lets threads do `operations` each, and returns all of them. Threads share the subjects in turn.
pub(crate) fn record(
    subjects: &[(&dyn Operations, Mix)],
    operations: usize,
    seed: u64,
) -> Vec<Recorded> {
    let (clock, start) = (AtomicU64::new(0), Barrier::new(THREADS));
    thread::scope(|scope| {
        let threads = (0..THREADS).map(|thread| {
            let (clock, start) = (&clock, &start);
            let (subject, mix) = subjects[thread % subjects.len()];
            scope.spawn(move || {
                let mut client = Client::new(mix, seed, thread);
                let mut recorded = Vec::with_capacity(operations);
                start.wait();
                for _ in 0..operations {
                    let asked = client.ask();
                    let began = clock.fetch_add(1, Ordering::SeqCst);
                    let operation = asked.of(subject);
                    let over = clock.fetch_add(1, Ordering::SeqCst);
                    client.learn(&operation);
                    recorded.push(Recorded { thread, began, over, operation });
                }
                recorded
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("it ends")).collect()
    })
}

/// Whether some order of the operations explains their outcomes, and keeps the order of operations that did not
/// overlap.
pub(crate) fn is_linearizable<S: Specification<Operation = Operation>>(
    recorded: &[Recorded],
) -> bool {
    let mut actions: Vec<_> = recorded
        .iter()
        .flat_map(|Recorded { thread, began, over, operation }| {
            let (call, response) = (operation.clone(), operation.clone());
            [(began, *thread, Action::Call(call)), (over, *thread, Action::Response(response))]
        })
        .collect();
    actions.sort_unstable_by_key(|(at, ..)| **at);
    let actions: Vec<_> = actions.into_iter().map(|(_, thread, action)| (thread, action)).collect();
    actions.is_empty() || WGLChecker::<S>::is_linearizable(History::from_actions(actions))
}

/// The number of operations during which another began.
pub(crate) fn overlapped(recorded: &[Recorded]) -> usize {
    let began: BTreeSet<u64> = recorded.iter().map(|recorded| recorded.began).collect();
    let overlapped = recorded
        .iter()
        .filter(|recorded| began.range(recorded.began + 1..recorded.over).next().is_some());
    overlapped.count()
}

/// The part of a history that concerns some keys. It omits operations on other keys, and other keys in scans.
pub(crate) fn part(recorded: &[Recorded], group: &[usize]) -> Vec<Recorded> {
    let of_group = |operation: &Operation| match operation {
        Operation::Read(key, _) => group.contains(key).then(|| operation.clone()),
        Operation::Scan(seen) => {
            let part = seen.iter().filter(|(key, _)| group.contains(key)).cloned().collect();
            Some(Operation::Scan(part))
        }
        Operation::Write(writes, _) => {
            let inside = writes.iter().filter(|write| group.contains(&write.key)).count();
            assert!(inside == 0 || inside == writes.len(), "a write belongs to one object");
            (inside > 0).then(|| operation.clone())
        }
    };
    let recorded =
        recorded.iter().filter_map(|&Recorded { thread, began, over, ref operation }| {
            of_group(operation).map(|operation| Recorded { thread, began, over, operation })
        });
    recorded.collect()
}

/// An operation before it is done.
enum Asked {
    Read(usize),
    Scan,
    Write(Vec<Write>),
}

impl Asked {
    fn of(self, subject: &dyn Operations) -> Operation {
        match self {
            Asked::Read(key) => Operation::Read(key, subject.read(key)),
            Asked::Scan => Operation::Scan(subject.scan()),
            Asked::Write(writes) => {
                let outcome = subject.write(&writes);
                Operation::Write(writes, outcome)
            }
        }
    }
}

/// Draws operations, and remembers versions for conditions.
struct Client {
    mix: Mix,
    random: TestRng,
    thread: usize,
    writes: usize,
    versions: [Version; KEYS],
}

impl Client {
    fn new(mix: Mix, seed: u64, thread: usize) -> Client {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8] = thread as u8 + 1;
        let random = TestRng::from_seed(RngAlgorithm::XorShift, &bytes);
        Client { mix, random, thread, writes: 0, versions: [0; KEYS] }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.next_u32() as usize % bound
    }

    fn ask(&mut self) -> Asked {
        let kind = self.below(10);
        match self.mix {
            Mix::Single | Mix::Commands if kind < 4 => Asked::Read(self.below(KEYS)),
            Mix::Any | Mix::Whole(_) if kind < 2 => Asked::Read(self.below(KEYS)),
            Mix::Any | Mix::Whole(_) if kind < 5 => Asked::Scan,
            Mix::Any if kind < 7 => {
                let first = self.below(KEYS);
                let others = self.below(KEYS - 1) + 1;
                let keys = (0..=others).map(|step| (first + step) % KEYS);
                Asked::Write(keys.map(|key| self.write(key)).collect())
            }
            Mix::Any | Mix::Single => {
                let key = self.below(KEYS);
                Asked::Write(vec![self.write(key)])
            }
            Mix::Commands => {
                let key = self.below(KEYS);
                Asked::Write(vec![self.command(key)])
            }
            Mix::Whole(groups) => {
                let group = groups[self.below(groups.len())];
                let number = self.number();
                let put = |&key| {
                    let (condition, change) = (Condition::Always, Change::Put(number));
                    Write { key, condition, change }
                };
                Asked::Write(group.iter().map(put).collect())
            }
        }
    }

    fn write(&mut self, key: usize) -> Write {
        let condition = match self.below(10) {
            0 => Condition::Absent,
            1 => Condition::Present,
            2..5 if self.versions[key] > 0 => Condition::Version(self.versions[key]),
            _ => Condition::Always,
        };
        let change = match self.below(10) {
            0..4 => Change::Put(self.number()),
            4..8 => Change::Append(self.number()),
            _ => Change::Delete,
        };
        Write { key, condition, change }
    }

    fn command(&mut self, key: usize) -> Write {
        let (number, version) = (self.number(), self.versions[key]);
        let (condition, change) = match self.below(10) {
            0 => (Condition::Absent, Change::Put(number)),
            1 => (Condition::Present, Change::Put(number)),
            2..4 if version > 0 => (Condition::Version(version), Change::Put(number)),
            2..4 => (Condition::Always, Change::Put(number)),
            4..7 => (Condition::Present, Change::Append(number)),
            7..9 => (Condition::Present, Change::Increment(1 + number % 3)),
            _ => (Condition::Present, Change::Delete),
        };
        Write { key, condition, change }
    }

    /// A number that no other write of the history has, except sums.
    fn number(&mut self) -> u16 {
        self.writes += 1;
        NUMBERS.start + (self.writes * THREADS + self.thread) as u16
    }

    fn learn(&mut self, operation: &Operation) {
        let mut saw = |key: usize, seen: &Seen| {
            if let Some((version, _)) = seen {
                self.versions[key] = *version;
            }
        };
        match operation {
            Operation::Read(key, seen) => saw(*key, seen),
            Operation::Scan(seen) => seen.iter().for_each(|(key, seen)| saw(*key, seen)),
            Operation::Write(writes, Outcome::Committed(version)) => {
                // In a sequential store, the version belongs to one of them only.
                if let [write] = &writes[..] {
                    self.versions[write.key] = *version;
                }
            }
            Operation::Write(writes, Outcome::Refused(index, there)) => {
                self.versions[writes[*index].key] = there.unwrap_or(0);
            }
            Operation::Write(_, Outcome::Rejected | Outcome::Done | Outcome::Made(_)) => {}
        }
    }
}
