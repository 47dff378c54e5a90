//! The contents of snapshots and scans, and the versions that are kept for them.

use std::ops::{Bound, ControlFlow};

use knee_kv_store::{Condition, Consistency, History, Keeper, Store, StoreOptions, Visited, Write};

use crate::store::{in_memory, options, put, scanned, set};

/// Transfers between accounts, by versions, from several threads: every snapshot has the same sum.
#[test]
fn snapshots_never_see_half_a_commit() {
    const ACCOUNTS: u64 = 8;
    const TRANSFERS: usize = 2000;
    for consistency in [Consistency::Linearizable, Consistency::Sequential] {
        let store = in_memory(consistency);
        let _keeper = Keeper::start(store.clone(), History::Seconds(0)).expect("a thread");
        let key = |account: u64| format!("account{account}").into_bytes();
        for account in 0..ACCOUNTS {
            set(&store, &key(account), &100_u64.to_le_bytes());
        }
        let read = |account| {
            let mut bytes = Vec::new();
            let shown = store.read(&key(account), 1, |piece| {
                bytes.extend_from_slice(piece);
                true
            });
            let version = shown.expect("nothing is damaged").found.expect("it is there").version;
            (u64::from_le_bytes(bytes.try_into().expect("eight bytes")), version)
        };
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let (store, read, key) = (&store, &read, &key);
                scope.spawn(move || {
                    let (mut made, mut draw) = (0, thread);
                    while made < TRANSFERS {
                        draw =
                            draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(thread + 1);
                        let (from, to) = (draw >> 33 & 7, draw >> 43 & 7);
                        let ((less, had), (more, has)) = (read(from), read(to));
                        if from == to || less == 0 {
                            continue;
                        }
                        let (less, more) = ((less - 1).to_le_bytes(), (more + 1).to_le_bytes());
                        let (from, to) = (key(from), key(to));
                        let writes = [
                            Write {
                                key: &from,
                                condition: Condition::Version(had),
                                action: put(&less),
                            },
                            Write {
                                key: &to,
                                condition: Condition::Version(has),
                                action: put(&more),
                            },
                        ];
                        made += usize::from(store.write(&writes, None, 1).is_ok());
                    }
                });
            }
            for _ in 0..300 {
                let snapshot = store.snapshot();
                let seen = scanned(&store, Some(&snapshot));
                let balance =
                    |value: &Vec<u8>| u64::from_le_bytes(value[..].try_into().expect("eight"));
                let sum: u64 = seen.values().map(balance).sum();
                assert_eq!((seen.len(), sum), (8, 800));
            }
        });
    }
}

#[test]
fn stopped_scan_resumes_at_its_key() {
    let one = StoreOptions { stripes: 1, ..options(Consistency::Linearizable) };
    let store = Store::in_memory(one, 1 << 20).expect("memory");
    for key in 0..10_u8 {
        set(&store, &[key], b"value");
    }
    let (mut seen, mut from) = (Vec::new(), Some(vec![0]));
    while let Some(first) = from {
        let before = seen.len();
        let visit = |visited: &Visited<'_>| {
            if seen.len() == before + 3 {
                return Ok(ControlFlow::Break(()));
            }
            seen.push(visited.key.to_vec());
            Ok(ControlFlow::Continue(()))
        };
        let range = (Bound::Included(&first[..]), Bound::Excluded(&[8][..]));
        let scanned = store.scan_stripe(0, None, range, usize::MAX, 1, visit);
        let scanned = scanned.expect("nothing is damaged");
        // The scan has also looked at the key at which it stopped.
        let last = scanned.next.as_ref().map_or(8, |next| u64::from(next[0]) + 1);
        assert_eq!(scanned.sequence, last);
        from = scanned.next;
    }
    assert_eq!(seen, (0..8).map(|key| vec![key]).collect::<Vec<_>>());
}
