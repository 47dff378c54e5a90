//! `knee-load nbd` against the servers of a space.

use knee_testkit::free_address;

use super::manager::{MIB, addresses, manager};
use super::store::store;
use crate::program::{LOAD, count, refused, run_load};

#[test]
fn load_counts_what_the_manager_counts_and_finds_no_wrong_data() {
    let stores = [store(MIB, &[]), store(MIB, &[])];
    let manager = manager(&addresses(&stores), &[]);
    // Some blocks lie on both stores.
    let flags = "--clients 4 --threads 2 --block-bytes 300000 --writes 0.5 --think-ms 2 --verify";
    let mut given =
        vec!["nbd", "--server", manager.address(), "--seconds", "0.5", "--drain-s", "30"];
    given.extend(flags.split(' '));
    let load = run_load(&given);
    let summary = load.summary();
    assert_eq!((summary["wrong_values"].as_u64(), load.errors.as_str()), (Some(0), ""));
    manager.signal(libc::SIGTERM);
    let end = manager.end();
    for op in ["read", "write"] {
        let asked = count(summary, op, "count");
        assert!(asked > 0);
        assert_eq!(count(summary, op, "errors"), 0);
        assert_eq!(count(end.summary(), op, "count"), asked);
    }
    let (reads, writes) = (count(summary, "read", "count"), count(summary, "write", "count"));
    assert_eq!(count(summary, "read", "bytes_in"), reads * (300_000 + 16));
    assert_eq!(count(summary, "write", "bytes_out"), writes * (300_000 + 28));
}

#[test]
fn load_counts_a_failed_request_as_an_error() {
    let manager = manager(&[format!("{}=1M", free_address())], &[]);
    let load =
        run_load(&["nbd", "--server", manager.address(), "--seconds", "0.2", "--think-ms", "20"]);
    let errors = count(load.summary(), "read", "errors");
    assert!(errors > 0 && errors == count(load.summary(), "read", "count"));
    assert!(load.errors.contains("answered a read with error 5"), "{}", load.errors);
}

#[test]
fn disk_that_is_less_than_a_block_ends_the_load_with_the_reason() {
    let store = store(4095, &[]);
    let output = refused(LOAD, &["nbd", "--server", store.address(), "--seconds", "1"]);
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("the disk has 4095 bytes, less than a block"), "{message}");
}
