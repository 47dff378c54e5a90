//! The load and its server count the same, for all operations and kinds of keys.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use knee_testkit::wait_until;

use super::store::{ALL, READS, Store, WRITES, finished, load, run, sum};
use crate::program::{count, errors};

#[test]
fn grpc_counts_are_those_of_the_server() {
    let rows = [
        ("--consistency linearizable", "--clients 7 --threads 2"),
        ("--consistency sequential", "--clients 4 --own-keys --key-choice zipf:0.8"),
        ("--consistency linearizable", "--clients 3 --key-draws 20 --think-ms 1"),
        ("--consistency linearizable", "--clients 3 --rate 100 --arrivals constant"),
    ];
    for (server, flags) in rows {
        let store = Store::start(&server.split(' ').collect::<Vec<_>>());
        store.populate("--keys 500 --populate 0.9 --value-bytes uniform:1:900");
        let before = store.stats();
        let flags = format!(
            "{flags} --mix {ALL} --keys 500 --value-bytes uniform:1:900 --scan-keys 20 --verify"
        );
        let end = store.loaded_until(&flags, |now| {
            now.reads > before.reads + 20 && now.scans > before.scans + 3
        });
        let (line, stats) = (end.summary(), store.stats());
        assert_eq!(end.errors, "", "{flags}");
        assert_eq!(sum(line, &READS, "count"), stats.reads - before.reads, "{flags}");
        assert_eq!(sum(line, &WRITES, "count"), stats.writes - before.writes, "{flags}");
        let scans = sum(line, &["scan", "atomic_scan"], "count");
        assert_eq!(scans, stats.scans - before.scans, "{flags}");
        let items = sum(line, &["scan", "atomic_scan"], "items");
        assert_eq!(items, stats.scan_entries - before.scan_entries, "{flags}");
        assert_eq!(count(line, "bulk_put", "items"), 10 * count(line, "bulk_put", "count"));
        assert_eq!(count(line, "put", "hits"), count(line, "put", "count"));
        assert_eq!(line["wrong_values"], 0, "{flags}");
        assert_eq!(line["in_flight"], 0, "{flags}");
        assert_eq!(errors(line), 0, "{flags}");
        let written: u64 = end.windows().map(|line| sum(line, &WRITES, "count")).sum();
        assert_eq!(written, sum(line, &WRITES, "count"), "{flags}");
    }
}

#[test]
fn memcached_counts_are_those_of_the_server() {
    let store = Store::start(&[]);
    let address = store.program.address();
    run(&format!("--server {address} --protocol memcached --keys 300 --populate 0.9")).summary();
    let end = finished(load(&format!(
        "--server {address} --protocol memcached --clients 5 --keys 300 --seconds 0.6 --verify \
         --mix read:40,insert:5,update:5,put:10,append:5,delete:5 --rate 1000 --arrivals constant"
    )));
    let line = end.summary();
    assert_eq!((end.errors.as_str(), errors(line)), ("", 0));
    assert_eq!(line["wrong_values"], 0);
    store.program.signal(libc::SIGTERM);
    let served = store.program.end();
    let served = served.summary();
    let stored = sum(line, &["insert", "update", "put", "append"], "count");
    // Populating set 270.
    assert_eq!(count(served, "set", "count"), stored + 270);
    assert_eq!(count(served, "get", "count"), sum(line, &READS, "count"));
    assert_eq!(count(served, "get", "misses"), count(line, "read_missing", "count"));
    assert_eq!(count(served, "delete", "count"), count(line, "delete", "count"));
    assert_eq!(count(served, "delete", "hits"), count(line, "delete", "hits"));
    assert!(stored > 20 && count(line, "insert", "misses") > 0, "{line}");
}

#[test]
fn populate_of_a_share_leaves_the_rest_missing() {
    let stores = [Store::start(&[]), Store::start(&["--consistency", "sequential"])];
    let servers = format!("--server {},{}", stores[0].grpc, stores[1].grpc);
    let end = run(&format!("{servers} --keys 5000 --populate 0.99 --value-bytes exponential:900"));
    assert_eq!(end.summary()["populate"]["servers"][1]["stored"], 4950);
    assert_eq!(stores.map(|store| store.stats().keys), [4950, 4950]);
}

#[test]
fn open_loop_asks_for_every_key_of_a_walk() {
    let store = Store::start(&[]);
    store.populate("--keys 200 --populate 0.9");
    // Each client walks through all keys in order, so 40 of the 400 requests are for missing keys.
    let end = store.loaded(
        "--clients 4 --keys 200 --key-choice sequential --mix read:1 --verify --rate 400 \
         --arrivals constant --seconds 1",
    );
    let line = end.summary();
    assert_eq!(sum(line, &READS, "count"), 400);
    assert_eq!(count(line, "read_missing", "count"), 40, "{line}");
    assert_eq!(count(line, "read_missing", "misses"), 40);
    assert_eq!((&line["wrong_values"], errors(line)), (&0.into(), 0));
}

#[test]
fn open_loop_counts_the_wait_for_a_stopped_server() {
    let store = Store::start(&[]);
    let mut load = store.load("--clients 4 --rate 150 --arrivals constant --seconds 5");
    assert_eq!(load.line()["type"], "window");
    store.program.signal(libc::SIGSTOP);
    let stopped = Instant::now();
    sleep(Duration::from_millis(400));
    let stopped = stopped.elapsed();
    store.program.signal(libc::SIGCONT);
    let end = finished(load);
    let line = end.summary();
    let ops = ["read_missing", "read", "put"];
    assert_eq!(sum(line, &ops, "count"), 750);
    assert_eq!((&line["unsent"], errors(line)), (&0.into(), 0));
    // While the server was stopped, a request became due every 7 ms, and waited for the server's return.
    let slowest = line["histograms"].as_array().unwrap().iter().map(|line| &line["max"]);
    let slowest = slowest.map(|max| max.as_u64().unwrap()).max().unwrap();
    assert!(slowest >= stopped.as_nanos() as u64 - 10_000_000, "{stopped:?}: {line}");
    let waited_s = sum(line, &ops, "response_sum_ns") as f64 / 1e9;
    let stopped_s = stopped.as_secs_f64();
    assert!(waited_s >= 0.9 * 150.0 * stopped_s * stopped_s / 2.0, "{stopped:?}: {line}");
}

#[test]
fn reads_of_a_graph_count_by_size_of_the_user() {
    let store = Store::start(&[]);
    store.set("3", &[b'7'; 200_000]);
    store.set("10", b"7\n");
    let end = store.loaded(
        "--clients 2 --keys 12 --mix read:3,scan:1 --key-format plain --key-choice zipf:0.8 \
         --rate 300 --arrivals constant --seconds 0.5 --large-bytes 100000 --scan-keys 1 --key-prefix=",
    );
    let line = end.summary();
    assert_eq!(errors(line), 0, "{}", end.errors);
    assert!(READS.iter().all(|op| count(line, op, "count") > 0), "{line}");
    assert!(count(line, "read_large", "bytes_in") > 200_000 * count(line, "read_large", "count"));
    assert_eq!(count(line, "read_large", "hits"), count(line, "read_large", "count"));
    // No user follows the last one in byte order.
    assert!(count(line, "scan", "items") <= count(line, "scan", "count"), "{line}");
    assert!(count(line, "scan", "items") > 0, "{line}");
}

#[test]
fn init_loads_a_list_once_on_every_server() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let list = format!("kv-load-{}.txt", std::process::id());
    std::fs::write(directory.join(&list), "3\t10\n3\t11\n12\t3\n").unwrap();
    let flags = ["--init-dir", directory.to_str().unwrap()];
    let stores = [Store::start(&flags), Store::start(&flags)];
    let servers = format!("--server {},{}", stores[0].grpc, stores[1].grpc);
    for resumed in [0, 3] {
        let end = run(&format!("{servers} --init {list}"));
        let loaded = end.summary()["init"]["servers"].as_array().unwrap();
        for (store, loaded) in stores.iter().zip(loaded) {
            assert_eq!(loaded["address"], store.grpc);
            assert_eq!((&loaded["edges"], &loaded["resumed_edges"]), (&3.into(), &resumed.into()));
        }
    }
    std::fs::remove_file(directory.join(&list)).unwrap();
    let end = stores[0].loaded(
        "--clients 2 --keys 13 --mix read:1 --key-format plain --key-choice sequential --rate 260 \
         --arrivals constant --seconds 0.1 --key-prefix=",
    );
    // Both walked over all 13 users, and 3 and 12 have followers.
    assert_eq!(count(end.summary(), "read", "count"), 4);
    let elsewhere = Store::start(&[]);
    for (store, file) in [(&stores[0], "nothing-of-this-name"), (&elsewhere, &*list)] {
        let end = run(&format!("--server {} --init {file}", store.grpc));
        let failed = format!("loading at {} failed: ", store.grpc);
        assert!(end.code == Some(1) && end.errors.contains(&failed), "{end:?}");
    }
}

#[test]
fn expired_values_count_as_missing() {
    let store = Store::start(&["--consistency", "sequential"]);
    for (protocol, server) in [("grpc", &*store.grpc), ("memcached", store.program.address())] {
        let flags = format!(
            "--server {server} --protocol {protocol} --keys 40 --value-bytes 100 --key-prefix {protocol}-"
        );
        let populated = |ttl_s: u32| {
            run(&format!("{flags} --populate 1 --ttl-s {ttl_s}")).summary();
        };
        let read = || {
            let end = finished(load(&format!(
                "{flags} --mix read:1 --key-choice sequential --rate 400 --arrivals constant \
                 --seconds 0.1 --verify"
            )));
            let line = end.summary().clone();
            assert_eq!((&line["wrong_values"], errors(&line)), (&0.into(), 0), "{}", end.errors);
            assert_eq!(sum(&line, &READS, "count"), 40);
            count(&line, "read_missing", "count")
        };
        populated(3600);
        assert_eq!(read(), 0, "{protocol}");
        populated(1);
        wait_until("all have expired", || read() == 40);
        // Later writes have newer versions.
        let mut load = load(&format!(
            "{flags} --mix read:2,put:1,insert:1 --ttl-s 1 --rate 100 --arrivals constant \
             --seconds 60 --verify"
        ));
        let (mut inserted, mut missed) = (0, 0);
        while inserted <= 40 || missed == 0 {
            let line = load.line();
            inserted += count(&line, "insert", "hits");
            missed += count(&line, "read_missing", "count");
        }
        load.signal(libc::SIGTERM);
        let end = finished(load);
        let line = end.summary();
        assert_eq!((&line["wrong_values"], errors(line)), (&0.into(), 0), "{}", end.errors);
    }
}

#[test]
fn processes_side_by_side_have_their_own_keys() {
    let store = Store::start(&[]);
    for (part, keys) in [("1/2", 50), ("2/2", 100)] {
        let end = store.loaded(&format!(
            "--keys 100 --clients 5 --own-keys --part {part} --mix put:1 --key-choice sequential \
             --rate 500 --arrivals constant --seconds 0.2"
        ));
        assert_eq!(count(end.summary(), "put", "count"), 100);
        assert_eq!(store.stats().keys, keys);
    }
}

#[test]
fn writes_without_ids_are_done() {
    let store = Store::start(&[]);
    let end = store.loaded(&format!(
        "--mix {ALL} --keys 50 --no-request-ids --rate 300 --arrivals constant --seconds 0.5"
    ));
    let line = end.summary();
    assert_eq!((errors(line), sum(line, &WRITES, "count")), (0, store.stats().writes));
}
