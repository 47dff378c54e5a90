//! Error answers, wrong servers, wrong flags, and signals.

use knee_testkit::free_address;

use super::store::{READS, Store, finished, run, sum};
use crate::program::{count, errors};

#[test]
fn error_answers_are_counted_and_printed_once() {
    let store = Store::start(&["--value-bytes-max", "2048"]);
    let end = store.loaded("--clients 3 --mix put:1 --value-bytes 4096 --seconds 0.3");
    let line = end.summary();
    assert!(count(line, "put", "count") > 0);
    assert_eq!(count(line, "put", "errors"), count(line, "put", "count"));
    assert!(end.errors.contains("refused a put: InvalidArgument: "), "{}", end.errors);
    assert_eq!(end.errors.lines().count(), 1, "{}", end.errors);
    let end = run(&format!("--server {} --keys 5 --value-bytes 4096 --populate 1", store.grpc));
    assert_eq!(end.code, Some(1));
    let message = &end.errors;
    assert!(message.contains(&store.grpc) && message.contains("InvalidArgument"), "{message}");
}

#[test]
fn absent_or_wrong_server_is_named() {
    let store = Store::start(&[]);
    let rows = [
        (free_address(), "--seconds 1 --clients 3"),
        (free_address(), "--populate 1"),
        (store.program.address().to_owned(), "--seconds 1"),
        (store.program.address().to_owned(), "--populate 1"),
        (free_address(), "--seconds 1 --protocol memcached"),
    ];
    for (address, flags) in rows {
        let end = run(&format!("--server {address} {flags}"));
        assert_eq!((end.code, end.lines.len()), (Some(1), 0), "{flags}");
        assert!(end.errors.contains(&address), "{flags}: {}", end.errors);
        assert_eq!(end.errors.lines().count(), 1, "{flags}: {}", end.errors);
    }
}

#[test]
fn signal_ends_a_load_with_a_summary() {
    let store = Store::start(&[]);
    for (signal, flags) in [(libc::SIGTERM, "--threads 2"), (libc::SIGINT, "--rate 200")] {
        let before = store.stats().reads;
        let mut load = store.load(&format!("--clients 4 --seconds 60 --mix read:1 {flags}"));
        assert_eq!(load.line()["type"], "window");
        load.signal(signal);
        let end = finished(load);
        let line = end.summary();
        assert_eq!(line["interrupted"], true);
        assert!(line["seconds"].as_f64().unwrap() < 30.0);
        assert_eq!(sum(line, &READS, "count"), store.stats().reads - before);
        assert_eq!(errors(line), 0);
    }
    // While the load waits for its start.
    let load = store.load("--seconds 60 --start-at 99999999999");
    load.signal(libc::SIGTERM);
    assert_eq!(finished(load).summary()["interrupted"], true);
}

#[test]
fn wrong_flag_exits_with_2_and_the_reason() {
    let rows = [
        ("", "--seconds"),
        ("--seconds 1 --mix get:1", "\"get\" is none of read"),
        ("--seconds 1 --mix read:0", "all weights are 0"),
        ("--seconds 1 --protocol memcached --mix read:1,scan:1", "has no scan: --protocol grpc"),
        ("--seconds 1 --protocol rest", "--protocol"),
        ("--seconds 1 --mix bulk_put:1 --keys 5", "a bulk put of 10 keys is too large"),
        ("--seconds 1 --keys 0", "there can be 1 to"),
        ("--seconds 1 --keys 0 --own-keys", "there can be 1 to"),
        ("--seconds 1 --scan-keys 0", "--scan-keys"),
        ("--seconds 1 --key-draws 0", "--key-draws"),
        ("--seconds 1 --rate 5 --think-ms 5", "--think-ms"),
        ("--populate 1 --seconds 1", "--populate"),
        ("--seconds 1 --set-get 1:1", "--set-get"),
        ("--seconds 1 --ttl-s 0", "--ttl-s"),
        ("--seconds 1 --part 1/2", "--own-keys"),
        ("--seconds 1 --own-keys --part 3/2", "expected I/N"),
        ("--seconds 1 --own-keys --part 1/2 --clients 5 --keys 9", "need --keys 10 or more, not 9"),
        ("--seconds 1 --draws-seed 1", "--key-draws"),
        ("--seconds 1 --mix append:1 --ttl-s 5", "leave out --ttl-s"),
        ("--seconds 1 --protocol memcached --no-request-ids", "has no request ids"),
        ("--init list.txt --protocol memcached", "needs gRPC"),
        ("--init list.txt --populate 1", "--init"),
    ];
    for (flags, why) in rows {
        let end = run(&format!("--server {} {flags}", free_address()));
        assert!(end.code == Some(2) && end.errors.contains(why), "{flags}: {end:?}");
    }
}
