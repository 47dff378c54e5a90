//! Random histories, also over restarts, against a map.

use knee_kv_store::{Action, Condition, Consistency, Write, WriteError};
use proptest::prelude::*;

use crate::store::{Directory, Model, in_memory, open, put, scanned, value};

/// One step of a history, on keys 0 to 5.
#[derive(Debug, Clone)]
enum Step {
    Put(u8, Vec<u8>),
    Append(u8, Vec<u8>),
    Delete(u8),
    Bulk(Vec<(u8, Vec<u8>)>),
    Snapshot,
    Forget,
    Reclaim,
    Compact,
    Reopen,
}

fn any_step() -> impl Strategy<Value = Step> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..300);
    prop_oneof![
        4 => (0..6_u8, bytes()).prop_map(|(key, value)| Step::Put(key, value)),
        3 => (0..6_u8, bytes()).prop_map(|(key, value)| Step::Append(key, value)),
        2 => (0..6_u8).prop_map(Step::Delete),
        2 => proptest::collection::btree_map(0..6_u8, bytes(), 1..6)
            .prop_map(|writes| Step::Bulk(writes.into_iter().collect())),
        1 => Just(Step::Snapshot),
        1 => Just(Step::Forget),
        1 => Just(Step::Reclaim),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16 * knee_testkit::soak(), ..ProptestConfig::default() })]

    #[test]
    fn store_behaves_as_a_map(
        steps in proptest::collection::vec(any_step(), 1..120),
        durable: bool,
        by_key: bool,
    ) {
        let directory = Directory::new("model");
        let consistency = if by_key { Consistency::Sequential } else { Consistency::Linearizable };
        let fresh = || if durable { open(&directory.0).expect("opens") } else { in_memory(consistency) };
        let mut store = fresh();
        let mut model = Model::new();
        let mut snapshots = Vec::new();
        for step in steps {
            let writes: Vec<(Vec<u8>, Option<Vec<u8>>)> = match step {
                Step::Put(key, value) => vec![(vec![key + 1], Some(value))],
                Step::Append(key, tail) => {
                    let key = vec![key + 1];
                    let grown = [model.get(&key).cloned().unwrap_or_default(), tail.clone()].concat();
                    let write = Write { key: &key, condition: Condition::Always, action: Action::Append(&tail) };
                    let written = store.write(&[write], None, 1);
                    if grown.len() > 2000 {
                        prop_assert_eq!(written, Err(WriteError::TooLarge { index: 0, bytes_max: 2000 }));
                    } else {
                        prop_assert!(written.is_ok());
                        model.insert(key, grown);
                    }
                    continue;
                }
                Step::Delete(key) => vec![(vec![key + 1], None)],
                Step::Bulk(writes) => {
                    writes.into_iter().map(|(key, value)| (vec![key + 1], Some(value))).collect()
                }
                Step::Snapshot => {
                    snapshots.push((store.snapshot(), model.clone()));
                    continue;
                }
                Step::Forget => {
                    snapshots.pop();
                    continue;
                }
                Step::Reclaim => {
                    store.reclaim().expect("there is room");
                    continue;
                }
                Step::Compact => {
                    store.compact().expect("there is room");
                    continue;
                }
                Step::Reopen => {
                    if durable {
                        store.sync(u64::MAX).expect("the disk takes it");
                        snapshots.clear();
                        drop(store);
                        store = fresh();
                    }
                    continue;
                }
            };
            let asked: Vec<Write<'_>> = writes
                .iter()
                .map(|(key, value)| Write {
                    key,
                    condition: Condition::Always,
                    action: value.as_deref().map_or(Action::Delete, put),
                })
                .collect();
            let committed = store.write(&asked, None, 1).expect("it is taken");
            store.sync(committed.sequence).expect("the disk takes it");
            for (key, value) in writes {
                match value {
                    Some(value) => model.insert(key, value),
                    None => model.remove(&key),
                };
            }
        }
        prop_assert_eq!(&scanned(&store, None), &model);
        for key in 1..=6_u8 {
            prop_assert_eq!(value(&store, &[key]), model.get(&vec![key]).cloned());
        }
        for (snapshot, then) in &snapshots {
            prop_assert_eq!(&scanned(&store, Some(snapshot)), then);
        }
    }
}
