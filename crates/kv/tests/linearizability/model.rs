//! The store's promises, as a sequential state machine.

use std::marker::PhantomData;
use std::ops::Range;

use knee_kv_cache::engine::Version;
use todc_utils::Specification;

/// Keys of one history.
pub(crate) const KEYS: usize = 6;

/// A value: the number of the put, then the numbers of the appends. Each write of a history has its own number.
pub(crate) type Value = Vec<u16>;

/// The numbers of writes have three digits.
pub(crate) const NUMBERS: Range<u16> = 100..1000;
/// Longer values are no numbers for memcached's arithmetic of 64 bits.
const DIGITS_MAX: usize = 19;

/// A value in the store's form: its concatenated numbers, which are a number, too.
pub(crate) fn bytes_of(value: &[u16]) -> Vec<u8> {
    assert!(value.iter().all(|number| NUMBERS.contains(number)), "{value:?}");
    value.iter().flat_map(|number| number.to_string().into_bytes()).collect()
}

pub(crate) fn value_of(bytes: &[u8]) -> Value {
    let number =
        |digits: &[u8]| digits.iter().fold(0, |sum, digit| 10 * sum + u16::from(digit - b'0'));
    bytes.chunks(3).map(number).collect()
}

/// A key as an operation saw it.
pub(crate) type Seen = Option<(Version, Value)>;

/// The part of a write that concerns one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) key: usize,
    pub(crate) condition: Condition,
    pub(crate) change: Change,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Always,
    Absent,
    Present,
    Version(Version),
}

impl Condition {
    /// Whether the condition holds for the current version.
    pub(crate) fn holds(self, there: Option<Version>) -> bool {
        match self {
            Condition::Always => true,
            Condition::Absent => there.is_none(),
            Condition::Present => there.is_some(),
            Condition::Version(version) => there == Some(version),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Put(u16),
    Append(u16),
    Delete,
    /// Adds to a value that is a number, in memcached's protocol only.
    Increment(u16),
}

impl Change {
    /// Whether the change applies to a value.
    pub(crate) fn takes(self, value: Option<&Value>) -> bool {
        match self {
            Change::Increment(_) => value.is_some_and(|value| 3 * value.len() <= DIGITS_MAX),
            _ => true,
        }
    }

    /// The new value.
    pub(crate) fn of(self, value: Option<Value>) -> Option<Value> {
        match (self, value) {
            (Change::Delete, _) | (Change::Increment(_), None) => None,
            (Change::Put(number), _) | (Change::Append(number), None) => Some(vec![number]),
            (Change::Append(number), Some(mut value)) => {
                value.push(number);
                Some(value)
            }
            (Change::Increment(delta), Some(mut value)) => {
                // No carry: the last number keeps three digits.
                *value.last_mut().expect("no value is empty") += delta;
                Some(value)
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The write was done, in this version.
    Committed(Version),
    /// The write was done, in an unknown version.
    Done,
    /// The write was done, in an unknown version, with this value.
    Made(Value),
    /// The write was not done: this condition failed for the current version.
    Refused(usize, Option<Version>),
    /// The write was not done: some condition failed.
    Rejected,
}

/// An operation and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    Read(usize, Seen),
    Scan(Vec<(usize, Seen)>),
    Write(Vec<Write>, Outcome),
}

/// The meaning of versions.
pub(crate) trait Counts {
    /// The version that a commit gives to a key with version `before`.
    fn next(commits: u64, before: Version) -> Version;

    /// Whether a write without effect is a commit.
    const NOTHING_IS_ONE: bool = false;
}

/// The commits of the store: [`knee_kv_store::Consistency::Linearizable`].
#[derive(Debug)]
pub(crate) struct OfStore;

/// The same, if every write has a request id: writes without effect are remembered, too.
#[derive(Debug)]
pub(crate) struct OfRequests;

/// The writes of the key: [`knee_kv_store::Consistency::Sequential`].
#[derive(Debug)]
pub(crate) struct OfKey;

impl Counts for OfStore {
    fn next(commits: u64, _: Version) -> Version {
        commits + 1
    }
}

impl Counts for OfRequests {
    const NOTHING_IS_ONE: bool = true;

    fn next(commits: u64, _: Version) -> Version {
        commits + 1
    }
}

impl Counts for OfKey {
    fn next(_: u64, before: Version) -> Version {
        before + 1
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The last version, even while the key is deleted.
    version: Version,
    value: Option<Value>,
}

impl Key {
    fn shown(&self) -> Option<Version> {
        self.value.is_some().then_some(self.version)
    }

    fn is(&self, seen: &Seen) -> bool {
        seen.as_ref().map(|(version, value)| (*version, value))
            == self.value.as_ref().map(|value| (self.version, value))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    commits: u64,
    keys: [Key; KEYS],
}

impl State {
    /// Does a write.
    fn write<C: Counts>(&mut self, writes: &[Write]) -> Outcome {
        for (index, write) in writes.iter().enumerate() {
            let there = self.keys[write.key].shown();
            let value = self.keys[write.key].value.as_ref();
            if !write.condition.holds(there) || !write.change.takes(value) {
                return Outcome::Refused(index, there);
            }
        }
        let mut last = 0;
        for write in writes {
            let key = &mut self.keys[write.key];
            // A delete of a missing key is no version.
            if write.change == Change::Delete && key.value.is_none() {
                continue;
            }
            let value = write.change.of(key.value.take());
            *key = Key { version: C::next(self.commits, key.version), value };
            last = last.max(key.version);
        }
        self.commits += u64::from(last > 0 || C::NOTHING_IS_ONE);
        Outcome::Committed(last)
    }
}

/// The store, or a part of it that is an independent object.
#[derive(Debug)]
pub(crate) struct Object<C>(PhantomData<C>);

impl<C: Counts> Specification for Object<C> {
    type State = State;
    type Operation = Operation;

    fn init() -> State {
        State::default()
    }

    fn apply(operation: &Operation, state: &State) -> (bool, State) {
        let mut after = state.clone();
        let valid = match operation {
            Operation::Read(key, seen) => state.keys[*key].is(seen),
            Operation::Scan(seen) => seen.iter().all(|(key, seen)| state.keys[*key].is(seen)),
            Operation::Write(writes, outcome) => {
                let made = after.write::<C>(writes);
                match (&made, outcome) {
                    (Outcome::Refused(..), Outcome::Rejected) => true,
                    (Outcome::Committed(version), Outcome::Done) => *version > 0,
                    (Outcome::Committed(version), Outcome::Made(value)) => {
                        let is =
                            |write: &Write| after.keys[write.key].value.as_ref() == Some(value);
                        *version > 0 && writes.iter().all(is)
                    }
                    _ => made == *outcome,
                }
            }
        };
        (valid, if valid { after } else { state.clone() })
    }
}
