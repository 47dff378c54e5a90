//! Writes of several clients that wait for each other's company before a sync.

use std::time::Duration;

use knee_kv_store::Grouping;

use crate::grpc::serving;
use crate::harness::{Client, Directory, Store, settings};

/// Both writes of a group are answered although their sync would wait longer than the test.
const OF_TWO: Grouping = Grouping { dally: Duration::from_secs(600), commits_max: 2 };

#[test]
fn loop_of_one_thread_takes_other_clients_writes_while_it_dallies() {
    let directory = Directory::new();
    let store = directory.open(&settings());
    store.group_commits(OF_TWO);
    let served = Store::over(&store, settings());
    let (mut first, mut second): (Client, Client) = (served.client(), served.client());
    first.send("set a 0 0 1\r\n1\r\n");
    // The sync of the first write has not begun.
    assert_eq!(store.synced(), 0);
    assert_eq!(second.answer("set b 0 0 1\r\n2\r\n"), "STORED\r\n");
    assert_eq!(String::from_utf8(first.read_to(b"\r\n")).unwrap(), "STORED\r\n");
    assert_eq!((store.synced(), store.commit_figures().groups), (2, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_two_clients_share_a_sync() {
    let directory = serving::Directory::new("company");
    let store = directory.open(serving::options());
    store.group_commits(OF_TWO);
    let served = serving::Store::of(store.clone(), serving::settings());
    let (mut first, mut second) = (served.client().await, served.client().await);
    let (one, two) =
        tokio::join!(serving::put(&mut first, b"a", b"1"), serving::put(&mut second, b"b", b"2"));
    assert_eq!(one.unwrap() + two.unwrap(), 3);
    assert_eq!(store.commit_figures().groups, 1);
}
