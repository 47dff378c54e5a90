//! Answers about damaged items.

use std::os::unix::fs::FileExt;

use crate::harness::{Directory, Store, settings};

const DAMAGED: &str = "SERVER_ERROR the stored item is damaged\r\n";

/// A store with a flipped bit in the file of item `bad`; `good` and `n` are whole.
fn damaged(directory: &Directory) -> Store {
    damaged_behind(directory, "")
}

/// The same, after further requests.
fn damaged_behind(directory: &Directory, requests: &str) -> Store {
    let store = Store::over(&directory.open(&settings()), settings());
    let mut client = store.client();
    let set = "set good 0 0 4\r\ngood\r\nset bad 0 0 9\r\n123456789\r\nset n 0 0 1\r\n1\r\n";
    assert_eq!(client.answer(set), "STORED\r\nSTORED\r\nSTORED\r\n");
    // Full segments are read from their files.
    let value = "v".repeat(1 << 20);
    for number in 0..3 {
        let set = format!("set fill{number} 0 0 {}\r\n{value}\r\n", value.len());
        assert_eq!(client.answer(&set), "STORED\r\n");
    }
    assert_eq!(client.answer(requests), "STORED\r\n".repeat(requests.matches("append").count()));
    let path = directory.0.join("00000001.log");
    let bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(12).position(|window| window == b"bad123456789").unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"4", at as u64 + 5).unwrap();
    store
}

#[test]
fn damage_is_an_error_and_no_part_of_an_answer() {
    let directory = Directory::new();
    let store = damaged(&directory);
    let mut client = store.client();
    let requests = [
        "get bad\r\n",
        // The begun answer is dropped.
        "get good bad n\r\n",
        "gets good bad\r\n",
        "gat 100 good bad\r\n",
        "touch bad 100\r\n",
        "delete bad\r\n",
        "incr bad 1\r\n",
        "append bad 0 0 1\r\nx\r\n",
        "cas bad 0 0 1 7\r\nx\r\n",
        "mg bad v q\r\n",
        "mg bad N30 v\r\n",
        "ms bad 1 MA\r\nx\r\n",
        "md bad q\r\n",
        "md bad I\r\n",
        "ma bad N0 J1 q\r\n",
        "me bad\r\n",
    ];
    for request in requests {
        assert_eq!(client.answer(request), DAMAGED, "{request}");
        // The requests around it are answered.
        let answer = client.answer(&format!("get good\r\n{request}get n\r\n"));
        let good = "VALUE good 0 4\r\ngood\r\nEND\r\n";
        assert_eq!(answer, format!("{good}{DAMAGED}VALUE n 0 1\r\n1\r\nEND\r\n"), "{request}");
    }
    assert_eq!(client.answer("delete bad noreply\r\n"), "");
    // A refused value removes the old value, which is impossible here.
    let value = "x".repeat(1 << 21);
    let set = format!("set bad 0 0 {}\r\n{value}\r\n", value.len());
    assert_eq!(client.answer(&set), DAMAGED);
    let answer = client.answer("stats\r\n");
    for count in ["STAT delete_hits 0\r\n", "STAT touch_hits 0\r\n", "STAT get_misses 0\r\n"] {
        assert!(answer.contains(count), "{answer}");
    }
    // Other keys can be flushed; the damaged one is no miss then.
    assert_eq!(client.answer("flush_all\r\n"), "OK\r\n");
    assert_eq!(client.answer("get good n fill0\r\n"), "END\r\n");
    assert_eq!(client.answer("get bad\r\n"), DAMAGED);
}

#[test]
fn retrieval_that_meets_damage_late_has_no_end() {
    let directory = Directory::new();
    let store = damaged(&directory);
    let mut client = store.client();
    // The answer is too long to be sent at once.
    let answer = client.answer("get fill0 fill1 fill2 fill0 fill1 bad good\r\n");
    assert!(answer.starts_with("VALUE fill0 0 1048576\r\nvvv"));
    assert!(answer.ends_with(&format!("vvv\r\n{DAMAGED}")));
    assert!(!answer.contains("END\r\n"));
    assert_eq!(client.answer("get n\r\n"), "VALUE n 0 1\r\n1\r\nEND\r\n");
}

/// An append or a set does not read the older pieces of a value.
#[test]
fn write_after_a_damaged_piece_succeeds() {
    let directory = Directory::new();
    let store = damaged_behind(&directory, &"append bad 0 0 1\r\nx\r\n".repeat(3));
    let mut client = store.client();
    assert_eq!(client.answer("get bad\r\n"), DAMAGED);
    assert_eq!(client.answer("append bad 0 0 1\r\nx\r\n"), "STORED\r\n");
    assert_eq!(client.answer("ms bad 1 MA\r\nx\r\n"), "HD\r\n");
    assert_eq!(client.answer("get bad\r\n"), DAMAGED);
    assert_eq!(client.answer("add bad 0 0 1\r\nx\r\n"), "NOT_STORED\r\n");
    assert_eq!(client.answer("set bad 0 0 4\r\nback\r\n"), "STORED\r\n");
    assert_eq!(client.answer("get bad\r\n"), "VALUE bad 0 4\r\nback\r\nEND\r\n");
}
