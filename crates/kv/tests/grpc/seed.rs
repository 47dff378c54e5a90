//! The six tests of seed 003, with the seed's names. The seed slowed its store down to see intermediate states; here
//! many clients run at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use knee_rpc::kv::ScanRequest;
use tokio::task::JoinSet;
use tonic::transport::Endpoint;

use crate::grpc::serving::{
    Directory, Random, Store, begin, begin_atomic, bulk_put, changed, delete, everything, inserted,
    joined, key, options, put, read, rest, settings, update, write,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn simple_read_write() {
    let store = Store::start();
    let mut model = inserted(&store, 50, |number| number.to_string().into_bytes());
    let mut client = store.client().await;
    let (mut random, mut last) = (Random(1), 0);
    for round in 0..100 {
        let key = key(random.below(50));
        let bytes = format!("update {round}").into_bytes();
        let version = update(&mut client, &key, &bytes).await.unwrap();
        assert!(version > last, "version {version} behind {last}");
        last = version;
        model.insert(key.clone(), bytes.clone());
        assert_eq!(read(&mut client, &key).await.unwrap(), (bytes, version));
    }
    assert_eq!(rest(begin(&mut client, everything()).await).await.unwrap(), model);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn multi_read() {
    let store = Store::start();
    let model = Arc::new(inserted(&store, 100, |number| vec![number as u8; number * 10]));
    let mut clients = JoinSet::new();
    for seed in 1..=8 {
        let (mut client, model) = (store.client().await, Arc::clone(&model));
        clients.spawn(async move {
            let mut random = Random(seed);
            for _ in 0..30 {
                let key = key(random.below(100));
                assert_eq!(&read(&mut client, &key).await.unwrap().0, &model[&key]);
            }
        });
    }
    joined(clients).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn multi_read_write() {
    let directory = Directory::new("multi-read-write");
    let store = Store::of(directory.open(options()), settings());
    inserted(&store, 40, |_| b"0".to_vec());
    // Lower bounds of the values, which count up: the acknowledged ones.
    let acknowledged: Arc<Vec<AtomicU64>> = Arc::new((0..40).map(|_| AtomicU64::new(0)).collect());
    let mut clients = JoinSet::new();
    for seed in 1..=8 {
        let (mut client, acknowledged) = (store.client().await, Arc::clone(&acknowledged));
        clients.spawn(async move {
            let mut random = Random(seed as u64);
            for round in 1..=8_u64 {
                // Each client writes its own keys, and reads all keys.
                let own = 5 * (seed - 1) + random.below(5);
                let next = acknowledged[own].load(Ordering::SeqCst) + round;
                let bytes = next.to_string().into_bytes();
                update(&mut client, &key(own), &bytes).await.unwrap();
                acknowledged[own].store(next, Ordering::SeqCst);
                for _ in 0..5 {
                    let number = random.below(40);
                    let least = acknowledged[number].load(Ordering::SeqCst);
                    let (bytes, _) = read(&mut client, &key(number)).await.unwrap();
                    let found: u64 = String::from_utf8(bytes).unwrap().parse().unwrap();
                    assert!(found >= least, "key {number}: {found} after {least} was acknowledged");
                }
            }
        });
    }
    joined(clients).await;
    // A reopened store has all values.
    drop(store);
    let store = Store::of(directory.open(options()), settings());
    let found = rest(begin(&mut store.client().await, everything()).await).await.unwrap();
    for (number, value) in acknowledged.iter().enumerate() {
        let value = value.load(Ordering::SeqCst).to_string().into_bytes();
        assert_eq!(found[&key(number)], value);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn atomic_update() {
    let store = Store::start();
    let of = |number: u64| number.to_le_bytes().repeat(8 << 10);
    put(&mut store.client().await, b"key", &of(0)).await.unwrap();
    let acknowledged = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let (mut client, acknowledged) = (store.client().await, Arc::clone(&acknowledged));
        clients.spawn(async move {
            loop {
                let least = acknowledged.load(Ordering::SeqCst);
                let (bytes, _) = read(&mut client, b"key").await.unwrap();
                let found = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                assert!(bytes == of(found), "part of update {found}");
                assert!(found >= least, "{found} after {least} was acknowledged");
                if least == 50 {
                    return;
                }
            }
        });
    }
    let mut client = store.client().await;
    for number in 1..=50 {
        update(&mut client, b"key", &of(number)).await.unwrap();
        acknowledged.store(number, Ordering::SeqCst);
    }
    joined(clients).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scan() {
    const KEYS: usize = 100;
    let store = Store::start();
    let before = inserted(&store, KEYS, |number| format!("old{number:0>20000}").into_bytes());
    let old = || ScanRequest {
        predicate: "string(value).startsWith('old')".to_owned(),
        ..ScanRequest::default()
    };
    let small = |endpoint: Endpoint| {
        endpoint.initial_stream_window_size(1 << 16).initial_connection_window_size(1 << 16)
    };
    let mut scanner = store.client_with(small).await;
    let mut writer = store.client().await;
    for deletes in [false, true] {
        // Both scans have begun, and wait for their readers.
        let mut plain = begin(&mut scanner, old()).await;
        let first = plain.message().await.unwrap().unwrap().entries.len();
        let mut other = store.client_with(small).await;
        let atomic = begin_atomic(&mut other, old()).await;
        for number in (0..KEYS).rev() {
            if deletes {
                assert!(delete(&mut writer, &key(number)).await.unwrap() > 0);
            } else {
                update(&mut writer, &key(number), b"new").await.unwrap();
            }
        }
        let late = rest(plain).await.unwrap().len();
        assert!(first > 0 && first + late < KEYS, "{first} and {late} of {KEYS}");
        assert!(
            rest(atomic).await.unwrap() == before,
            "an atomic scan sees what was written later"
        );
        assert!(rest(begin_atomic(&mut scanner, old()).await).await.unwrap().is_empty());
        write(&store, &before);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_put_is_seen_whole_or_not_at_all() {
    const KEYS: usize = 1000;
    let store = Store::start();
    let of = |round: usize| round.to_string().into_bytes();
    let all = |round: usize| (0..KEYS).map(|number| changed(&key(number), &of(round))).collect();
    let mut writer = store.client().await;
    bulk_put(&mut writer, all(0)).await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for seed in 1..=3 {
        let (mut client, over) = (store.client().await, Arc::clone(&over));
        clients.spawn(async move {
            let (mut random, mut last) = (Random(seed), 0);
            while !over.load(Ordering::SeqCst) {
                if seed == 1 {
                    // An atomic scan shows the state at a single moment.
                    let found = rest(begin_atomic(&mut client, everything()).await).await.unwrap();
                    let values: std::collections::BTreeSet<_> = found.values().collect();
                    assert_eq!((found.len(), values.len()), (KEYS, 1));
                } else {
                    // Once a value of a round is there, no value of an earlier one is.
                    let (bytes, _) = read(&mut client, &key(random.below(KEYS))).await.unwrap();
                    let round: u64 = String::from_utf8(bytes).unwrap().parse().unwrap();
                    assert!(round >= last, "round {round} after round {last}");
                    last = round;
                }
            }
        });
    }
    for round in 1..=8 {
        let version = bulk_put(&mut writer, all(round)).await.unwrap();
        assert_eq!(read(&mut writer, &key(round)).await.unwrap(), (of(round), version));
    }
    over.store(true, Ordering::SeqCst);
    joined(clients).await;
}
