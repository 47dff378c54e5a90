//! The workload that all clients of a run share, and the check of values.

use std::str::FromStr;
use std::sync::Arc;

use knee_random::Random;
use knee_telemetry::Op;

use super::mix::Mix;
use crate::items::Items;
use crate::keys::{KeyChoice, KeyPicker};
use crate::values::Difference;

/// The largest number of keys in one bulk put.
pub(crate) const BULK_KEYS_MAX: u32 = 1000;

const DRAWS_STREAM: u64 = 1 << 61;

/// The part of the keys that belongs to one of several processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// The number of this part, from 0.
    pub(crate) number: u64,
    /// The number of parts.
    pub(crate) of: u64,
}

impl Part {
    /// All keys.
    pub(crate) const WHOLE: Part = Part { number: 0, of: 1 };

    fn first(self, keys: u64) -> u64 {
        (u128::from(keys) * u128::from(self.number) / u128::from(self.of)) as u64
    }

    /// The number of keys that every part of `keys` has at least.
    fn length(self, keys: u64) -> u64 {
        keys / self.of
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let numbers = text
            .split_once('/')
            .and_then(|(number, of)| Some((number.parse::<u32>().ok()?, of.parse::<u32>().ok()?)));
        match numbers {
            Some((number, of)) if (1..=of).contains(&number) => {
                Ok(Part { number: u64::from(number) - 1, of: u64::from(of) })
            }
            _ => Err(format!("expected I/N, such as 1/3 for the first of three, not {text:?}")),
        }
    }
}

/// The flags about the clients' operations.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) mix: Mix,
    pub(crate) choice: KeyChoice,
    /// The number of keys that are drawn once, and that every client repeats.
    pub(crate) key_draws: Option<u32>,
    /// Each client has its own keys, within this part.
    pub(crate) own_keys: Option<Part>,
    pub(crate) scan_keys: u32,
    pub(crate) bulk_keys: u32,
    /// A read of a value with at least this length is a large read.
    pub(crate) large_bytes: Option<u64>,
    pub(crate) seed: u64,
    /// The seed of `key_draws`. Processes of one measurement may share it.
    pub(crate) draws_seed: u64,
}

/// The workload that all clients share.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) items: Items,
    pub(crate) shape: Shape,
    /// The number of keys that a client chooses from.
    pub(crate) keys_each: u64,
    /// The keys of `key_draws`, relative to a client's first key.
    pub(crate) draws: Option<Arc<[u32]>>,
    /// Whether the mix has appends, so that a key may hold its value several times.
    grows: bool,
}

impl Workload {
    /// The workload of this number of `clients`.
    ///
    /// # Errors
    /// When a bulk put needs more keys than a client has.
    pub(crate) fn new(items: Items, shape: Shape, clients: u64) -> Result<Workload, String> {
        let keys_each = match shape.own_keys {
            Some(part) => (part.length(items.keys.count()) / clients).max(1),
            None => items.keys.count(),
        };
        if shape.mix.names(Op::BulkPut) && u64::from(shape.bulk_keys) > keys_each {
            return Err(format!(
                "a bulk put of {} keys is too large: a client has {keys_each} keys",
                shape.bulk_keys
            ));
        }
        let draws = shape.key_draws.map(|count| {
            let mut random = Random::stream(shape.draws_seed, DRAWS_STREAM);
            let mut picker = KeyPicker::new(shape.choice, keys_each, 0, 1);
            (0..count).map(|_| picker.pick(&mut random)).collect()
        });
        let grows = shape.mix.names(Op::Append);
        Ok(Workload { items, shape, keys_each, draws, grows })
    }

    pub(crate) fn own_keys_of(&self, client: u64) -> u32 {
        let part = self.shape.own_keys.unwrap_or(Part::WHOLE);
        (part.first(self.items.keys.count()) + client * self.keys_each) as u32
    }

    /// The operation of a read that found a value with this length.
    #[inline]
    pub(crate) fn found(&self, value_bytes: usize) -> Op {
        match self.shape.large_bytes {
            Some(large) if value_bytes as u64 >= large => Op::ReadLarge,
            _ => Op::Read,
        }
    }

    /// The difference between a received value and its key's value, if they differ.
    ///
    /// An append adds the key's value once more. So with appends in the mix, any number of copies is right.
    pub(crate) fn differs(&self, key: u32, flags: u32, content: &[u8]) -> Option<Difference> {
        let expected = self.items.value(key);
        let once = expected.bytes as usize;
        if !self.grows || once == 0 || content.is_empty() {
            return expected.differs(flags, content);
        }
        // Over gRPC, an append to an absent key creates the key without flags.
        let flags = if flags == 0 { expected.flags() } else { flags };
        if !content.len().is_multiple_of(once) {
            return Some(Difference::Length { expected: expected.bytes, found: content.len() });
        }
        content.chunks(once).enumerate().find_map(|(index, part)| {
            match expected.differs(flags, part) {
                Some(Difference::Content { offset }) => {
                    Some(Difference::Content { offset: index * once + offset })
                }
                other => other,
            }
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::keys::{KeyFormat, KeySpace};
    use crate::values::ValueSize;

    /// A workload with this number of `keys`, uniformly chosen, with values of 20 bytes.
    pub(crate) fn workload(
        mix: &str,
        keys: u64,
        clients: u64,
        change: impl FnOnce(&mut Shape),
    ) -> Workload {
        let mut shape = Shape {
            mix: mix.parse().unwrap(),
            choice: KeyChoice::Uniform,
            key_draws: None,
            own_keys: None,
            scan_keys: 10,
            bulk_keys: 5,
            large_bytes: None,
            seed: 8,
            draws_seed: 8,
        };
        change(&mut shape);
        let keys = KeySpace::new("t-", KeyFormat::Padded, keys).unwrap();
        let items = Items { keys, value_size: ValueSize::Fixed { bytes: 20 }, ttl_s: 0 };
        Workload::new(items, shape, clients).unwrap()
    }

    #[test]
    fn value_may_repeat_where_mix_appends() {
        let (fixed, growing) =
            (workload("read:1,put:1", 9, 1, |_| {}), workload("read:1,append:0", 9, 1, |_| {}));
        let value = fixed.items.value(3);
        let mut content = Vec::new();
        value.append(&mut content);
        assert_eq!(fixed.differs(3, value.flags(), &content), None);
        assert_eq!(growing.differs(3, value.flags(), &content), None);
        assert!(fixed.differs(3, 0, &content).is_some());
        assert_eq!(growing.differs(3, 0, &content), None);
        value.append(&mut content);
        value.append(&mut content);
        assert!(fixed.differs(3, value.flags(), &content).is_some());
        assert_eq!(growing.differs(3, value.flags(), &content), None);
        assert!(growing.differs(4, value.flags(), &content).is_some());
        content[45] ^= 1;
        let difference = growing.differs(3, value.flags(), &content);
        assert_eq!(difference, Some(Difference::Content { offset: 45 }));
        content.pop();
        let difference = growing.differs(3, value.flags(), &content);
        assert_eq!(difference, Some(Difference::Length { expected: 20, found: 59 }));
        assert!(growing.differs(3, value.flags(), b"").is_some());
    }

    #[test]
    fn bulk_put_of_too_many_keys_is_refused() {
        let workload = workload("read:1", 9, 2, |_| {});
        let shape = Shape { mix: "bulk_put:1".parse().unwrap(), ..workload.shape.clone() };
        let new = |own_keys| {
            Workload::new(workload.items.clone(), Shape { own_keys, ..shape.clone() }, 2)
        };
        assert!(new(None).is_ok());
        let message = new(Some(Part::WHOLE)).unwrap_err();
        assert_eq!(message, "a bulk put of 5 keys is too large: a client has 4 keys");
    }

    #[test]
    fn wrong_parts_are_refused() {
        assert_eq!("1/1".parse(), Ok(Part::WHOLE));
        assert_eq!("3/7".parse(), Ok(Part { number: 2, of: 7 }));
        for wrong in ["", "1", "0/3", "4/3", "1/0", "-1/3", "1/3/5", "a/b"] {
            assert!(wrong.parse::<Part>().is_err(), "{wrong}");
        }
    }
}
