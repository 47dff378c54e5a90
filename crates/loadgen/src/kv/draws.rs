//! One client's stream of operations.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use knee_random::{Random, mix};
use knee_telemetry::Op;

use super::workload::Workload;
use crate::keys::KeyPicker;

/// The number of deleted keys that a client remembers, to insert them again.
const TAKEN_MAX: usize = 1 << 16;

/// An operation and its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Drawn {
    pub(crate) op: Op,
    /// The key; the first one of a scan, or of a bulk put.
    pub(crate) key: u32,
    /// The other keys of a bulk put, each once.
    pub(crate) others: Vec<u32>,
}

/// One client's stream of operations.
///
/// It depends only on the workload and the client's number, not on answers, time or threads.
#[derive(Debug)]
pub(crate) struct Draws {
    random: Random,
    first: u32,
    way: Way,
    /// Deleted keys that were not inserted again, oldest first.
    taken: VecDeque<u32>,
    bulk: HashSet<u32, BuildHasherDefault<KeyHasher>>,
}

/// A cheap hash of a key's number, good enough for the 1,000 keys of a bulk put.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write_u32(&mut self, key: u32) {
        self.0 = mix(u64::from(key));
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are numbers of 32 bits")
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Debug)]
enum Way {
    /// Each key is drawn anew.
    Anew(KeyPicker),
    /// These keys are used over and over.
    Over { keys: Arc<[u32]>, next: usize },
}

impl Draws {
    pub(crate) fn new(workload: &Workload, client: u64, clients: u64) -> Draws {
        let shape = &workload.shape;
        let own = shape.own_keys.is_some();
        let (place, of) = if own { (0, 1) } else { (client, clients) };
        let way = match &workload.draws {
            Some(keys) => Way::Over { keys: Arc::clone(keys), next: 0 },
            None => Way::Anew(KeyPicker::new(shape.choice, workload.keys_each, place, of)),
        };
        Draws {
            random: Random::stream(shape.seed, client),
            first: if own { workload.own_keys_of(client) } else { 0 },
            way,
            taken: VecDeque::new(),
            bulk: HashSet::default(),
        }
    }

    #[inline]
    pub(crate) fn next(&mut self, workload: &Workload) -> Drawn {
        let op = workload.shape.mix.draw(&mut self.random);
        let mut others = Vec::new();
        let key = match op {
            Op::Insert => self.taken.pop_front().unwrap_or_else(|| self.key()),
            Op::Delete => {
                let key = self.key();
                if self.taken.len() == TAKEN_MAX {
                    self.taken.pop_front();
                }
                self.taken.push_back(key);
                key
            }
            _ => self.key(),
        };
        if op == Op::BulkPut {
            let count = workload.shape.bulk_keys as usize - 1;
            self.bulk.clear();
            self.bulk.insert(key);
            while others.len() < count {
                // If the bulk put already has the key, take the next one.
                let mut other = self.key();
                while !self.bulk.insert(other) {
                    other = self.after(other, workload.keys_each);
                }
                others.push(other);
            }
        }
        Drawn { op, key, others }
    }

    #[inline]
    fn key(&mut self) -> u32 {
        let key = match &mut self.way {
            Way::Anew(picker) => picker.pick(&mut self.random),
            Way::Over { keys, next } => {
                let key = keys[*next];
                *next = if *next + 1 == keys.len() { 0 } else { *next + 1 };
                key
            }
        };
        self.first + key
    }

    /// The key after `key` among the client's keys. After the last key comes the first.
    fn after(&self, key: u32, keys_each: u64) -> u32 {
        let next = u64::from(key - self.first) + 1;
        self.first + if next == keys_each { 0 } else { next as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::tests::workload;
    use super::*;
    use crate::keys::KeyChoice;
    use crate::kv::Part;
    use proptest::prelude::*;

    fn drawn(workload: &Workload, client: u64, clients: u64, count: usize) -> Vec<Drawn> {
        let mut draws = Draws::new(workload, client, clients);
        (0..count).map(|_| draws.next(workload)).collect()
    }

    const ALL: &str = "read:9,insert:2,update:2,put:2,append:2,delete:2,scan:1,bulk_put:3";

    #[test]
    fn stream_repeats_and_differs_between_clients() {
        let workload = workload(ALL, 1000, 4, |_| {});
        assert_eq!(drawn(&workload, 2, 4, 200), drawn(&workload, 2, 4, 200));
        assert_ne!(drawn(&workload, 2, 4, 200), drawn(&workload, 3, 4, 200));
    }

    #[test]
    fn key_draws_repeat_for_all_clients() {
        let of_process = |seed| {
            workload("read:1,put:1", 1000, 3, |shape| {
                shape.key_draws = Some(25);
                shape.seed = seed;
            })
        };
        let (here, elsewhere) = (of_process(1), of_process(2));
        let keys = |client| -> Vec<u32> {
            drawn(&here, client, 3, 75).iter().map(|drawn| drawn.key).collect()
        };
        assert_eq!(keys(0), keys(2));
        let theirs: Vec<u32> = drawn(&elsewhere, 0, 3, 25).iter().map(|drawn| drawn.key).collect();
        assert_eq!(keys(0)[..25], theirs);
        assert_eq!(keys(0)[..25], keys(0)[25..50]);
        assert_eq!(keys(0)[..25], keys(0)[50..]);
        let mut distinct = keys(0);
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() > 15, "{distinct:?}");
    }

    #[test]
    fn inserts_take_deleted_keys_first() {
        let workload = workload("insert:1,delete:1", 1_000_000, 1, |_| {});
        let mut gone = VecDeque::new();
        let mut put_back = 0;
        for Drawn { op, key, .. } in drawn(&workload, 0, 1, 10_000) {
            match (op, gone.pop_front()) {
                (Op::Insert, Some(oldest)) => {
                    assert_eq!(key, oldest);
                    put_back += 1;
                }
                (Op::Insert, None) => {}
                (Op::Delete, oldest) => {
                    if let Some(oldest) = oldest {
                        gone.push_front(oldest);
                    }
                    gone.push_back(key);
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(put_back > 4000, "{put_back}");
    }

    proptest! {
        #[test]
        fn clients_with_own_keys_share_no_key(
            keys in 5_u64..200, clients in 1_u64..9, parts in 1_u64..4, seed: u64,
            over in any::<bool>(), theta in 0.0..1.5,
        ) {
            prop_assume!(keys / parts / clients >= 5);
            let mut owners = vec![None; keys as usize];
            for (number, client) in (0..parts).flat_map(|part| (0..clients).map(move |c| (part, c))) {
                let workload = workload(ALL, keys, clients, |shape| {
                    shape.own_keys = Some(Part { number, of: parts });
                    shape.seed = seed;
                    shape.choice = KeyChoice::Zipf { theta };
                    shape.key_draws = over.then_some(7);
                });
                for Drawn { key, others, .. } in drawn(&workload, client, clients, 50) {
                    for key in others.into_iter().chain([key]) {
                        let owner = owners[key as usize].get_or_insert((number, client));
                        prop_assert_eq!(*owner, (number, client));
                    }
                }
            }
        }

        #[test]
        fn keys_of_a_bulk_put_are_distinct(
            keys in 1_u64..60, share in 0.0..=1.0, theta in 0.0..3.0, seed: u64,
        ) {
            let bulk = ((keys as f64 * share) as u32).max(1);
            let workload = workload("read:1", keys, 1, |shape| {
                shape.mix = "bulk_put:1".parse().expect("a mix");
                shape.bulk_keys = bulk;
                shape.choice = KeyChoice::Zipf { theta };
                shape.seed = seed;
            });
            for Drawn { key, mut others, .. } in drawn(&workload, 0, 1, 20) {
                others.push(key);
                prop_assert!(others.iter().all(|key| u64::from(*key) < keys));
                others.sort_unstable();
                others.dedup();
                prop_assert_eq!(others.len(), bulk as usize);
            }
        }
    }
}
