//! Commands of several clients on a full log.

use std::thread;

use knee_kv::MemcachedSettings;
use knee_kv_store::{Consistency, StoreOptions};

use crate::harness::{Store, settings};

const SEGMENT_BYTES: usize = 64 << 10;
const CLIENTS: usize = 3;

/// Each touch writes a record as large as the item, and the log has room for one at a time.
#[test]
fn touch_in_a_full_log_answers_once_and_succeeds() {
    let options = StoreOptions {
        consistency: Consistency::Linearizable,
        stripes: 4,
        value_bytes_max: 40_000,
        segment_bytes: SEGMENT_BYTES,
    };
    let store = knee_kv_store::Store::in_memory(options, 24 * SEGMENT_BYTES as u64).unwrap();
    let store = Store::kept(&store, MemcachedSettings { threads: CLIENTS, ..settings() });
    let value = "x".repeat(20_000);
    assert_eq!(store.client().answer(&format!("set k 0 0 20000\r\n{value}\r\n")), "STORED\r\n");
    let classic = format!("VALUE k 0 20000\r\n{value}\r\nEND\r\n");
    let meta = format!("VA 20000\r\n{value}\r\n");
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (store, classic, meta) = (&store, &classic, &meta);
            scope.spawn(move || {
                let mut connection = store.client();
                for number in 0..500 {
                    let exptime = 1000 + (CLIENTS * number + client) % 1000;
                    let (request, expected) = match number % 2 {
                        0 => (format!("gat {exptime} k\r\n"), classic),
                        _ => (format!("mg k v T{exptime}\r\n"), meta),
                    };
                    let answer = connection.answer(&request);
                    assert!(answer == *expected, "{request}: {}", &answer[..answer.len().min(80)]);
                }
            });
        }
    });
}
