//! Ranges: scans show the same keys as a sorted map.

use std::ops::Bound;

use knee_rpc::kv::ScanRequest;
use tonic::Code;

use crate::grpc::serving::{
    Model, Random, Store, begin, begin_atomic, delete, options, put, rest, settings,
};

/// Short keys, so that bounds often equal a key, a neighbour or a prefix.
fn key(random: &mut Random, shortest: usize) -> Vec<u8> {
    let bytes = shortest + random.below(4 - shortest);
    (0..bytes).map(|_| [0, b'a', b'b', 0xff][random.below(4)]).collect()
}

/// The first key after all keys with this prefix; empty if there is none.
fn behind(mut prefix: Vec<u8>) -> Vec<u8> {
    while let Some(last) = prefix.pop() {
        if last < 0xff {
            prefix.push(last + 1);
            break;
        }
    }
    prefix
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scans_show_what_a_sorted_map_has() {
    let store = Store::with(options(), settings());
    let mut client = store.client().await;
    let (mut model, mut random) = (Model::new(), Random(11));
    let mut refused = 0;
    for round in 0..100 {
        let changed = key(&mut random, 1);
        if random.below(3) == 0 {
            let version = delete(&mut client, &changed).await.unwrap();
            assert_eq!(version > 0, model.remove(&changed).is_some());
        } else {
            put(&mut client, &changed, &[round as u8]).await.unwrap();
            model.insert(changed, vec![round as u8]);
        }
        let start = key(&mut random, 0);
        let end = match random.below(4) {
            0 => behind(start.clone()),
            1 => start.clone(),
            _ => key(&mut random, 0),
        };
        let limit = random.below(8) as u64;
        let request = ScanRequest {
            start: start.clone().into(),
            end: end.clone().into(),
            predicate: String::new(),
            limit,
        };
        let is_inverted = !end.is_empty() && start > end;
        let expected: Model = if is_inverted {
            Model::new()
        } else {
            let end = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(&end) };
            let most = if limit == 0 { usize::MAX } else { limit as usize };
            let there = model.range::<Vec<u8>, _>((Bound::Included(&start), end)).take(most);
            there.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        if is_inverted {
            refused += 1;
            let plain = client.scan(request.clone()).await.unwrap_err();
            let atomic = client.atomic_scan(request).await.unwrap_err();
            assert_eq!([plain.code(), atomic.code()], [Code::InvalidArgument; 2]);
        } else {
            let atomic = rest(begin_atomic(&mut client, request.clone()).await).await.unwrap();
            assert!(atomic == expected, "{request:?}: {atomic:?} of {model:?}");
            let plain = rest(begin(&mut client, request.clone()).await).await.unwrap();
            assert!(plain == expected, "{request:?}: {plain:?} of {model:?}");
        }
    }
    assert!((10..70).contains(&refused), "{refused} ranges were inverted");
}
