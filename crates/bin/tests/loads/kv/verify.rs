//! `--verify` finds wrong values and versions.

use knee_testkit::wait_until;

use super::store::{Store, finished, load};

#[test]
fn changed_value_is_found() {
    let store = Store::start(&[]);
    store.populate("--keys 100 --populate 1");
    store.set("knee-0000000042", &[b'x'; 32]);
    let flags = "--keys 100 --key-choice sequential --mix read:1 --rate 500 --arrivals constant \
                 --seconds 0.4";
    for (protocol, server) in [("grpc", &*store.grpc), ("memcached", store.program.address())] {
        let flags = format!("--server {server} --protocol {protocol} {flags}");
        let end = finished(load(&format!("{flags} --verify")));
        assert_eq!(end.summary()["wrong_values"], 2, "{}", end.errors);
        let errors = &end.errors;
        assert!(errors.contains("wrong value") && errors.contains("knee-0000000042"), "{errors}");
        assert!(errors.contains(server) && errors.lines().count() == 1, "{errors}");
    }
    assert_eq!(store.loaded(flags).summary()["wrong_values"], 0);
}

#[test]
fn version_that_goes_back_is_found() {
    let store = Store::start(&[]);
    store.loaded("--keys 1 --mix put:1 --rate 100 --arrivals constant --seconds 0.2");
    let load = store.load("--keys 1 --mix read:1 --seconds 60 --think-ms 5 --verify");
    wait_until("it has read", || store.stats().reads > 0);
    let Store { program, grpc } = store;
    program.signal(libc::SIGKILL);
    program.end();
    // The new store has the right value in an older version.
    let store = Store::at(grpc, &[]);
    store.populate("--keys 1 --populate 1");
    let before = store.stats().reads;
    wait_until("it has read again", || store.stats().reads > before + 1);
    load.signal(libc::SIGTERM);
    let end = finished(load);
    assert!(end.summary()["wrong_values"].as_u64().unwrap() > 0, "{}", end.errors);
    assert!(end.errors.contains("its client has seen version"), "{}", end.errors);
}
