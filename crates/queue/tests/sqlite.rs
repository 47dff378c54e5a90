//! SQLite alone: its file.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use knee_queue::database::Failure;
use knee_queue::operation::QueueSettings;
use knee_queue::sqlite::{Options, Sqlite};
use knee_server::Trace;
use knee_testkit::Lines;

use crate::harness::desk::{Desk, LONG, PATIENCE, contents, settings};
use crate::harness::{Place, no_log};

fn options(place: &Place) -> Options {
    Options { file: Some(place.0.join("messages.db")), durable: true, log: no_log() }
}

#[tokio::test]
async fn reopened_file_has_its_messages() {
    let place = Place::new();
    let desk = Desk(Sqlite::open(&options(&place)).unwrap());
    let (client, queue) = desk.begin().await;
    let mut last = 0;
    for content in ["1", "2", "3"] {
        last = desk.send(client, client, queue, content).await;
    }
    desk.lease(client, queue, 1, LONG).await;
    assert_eq!(desk.remove(client, queue, 1).await.len(), 1);

    // A second server may not open an open file.
    let Err(Failure::Unavailable(why)) = Sqlite::open(&options(&place)) else { panic!("it opens") };
    assert!(why.contains("another process uses the file"), "{why}");
    // Nor may it use another name of the file.
    let link = Options { file: Some(place.0.join("other.db")), ..options(&place) };
    symlink(options(&place).file.unwrap(), link.file.as_ref().unwrap()).unwrap();
    let refused = Sqlite::open(&link);
    assert!(matches!(refused, Err(Failure::Unavailable(_))), "{refused:?}");
    drop(desk);
    // A process that another test is just starting may hold the lock for a moment.
    let begun = Instant::now();
    let desk = loop {
        match Sqlite::open(&options(&place)) {
            Ok(database) => break Desk(database),
            Err(failure) => assert!(begun.elapsed() < PATIENCE, "{failure}"),
        }
    };
    assert_eq!(contents(&desk.read(client, queue, 0, 9).await), ["3"]);
    assert_eq!(desk.counts().await.messages, 2);
    desk.remove(client, queue, 9).await;
    assert!(desk.send(client, client, queue, "4").await > last, "a number is used twice");
}

#[tokio::test]
async fn failing_upkeep_is_reported_and_disturbs_nothing_else() {
    let place = Place::new();
    let lines = Lines::default();
    let options = Options { log: Trace::to_sink("test", lines.clone()), ..options(&place) };
    let desk = Desk(Sqlite::open(&options).unwrap());
    let client = desk.client().await;
    let written = async |text: &str| {
        desk.at_last(async || lines.text().contains(text).then_some(())).await;
    };
    let other = rusqlite::Connection::open(options.file.unwrap()).unwrap();
    other.execute_batch("ALTER TABLE deleted_queue RENAME TO elsewhere").unwrap();
    written("retention fails: expired messages are kept: SQLite: no such table").await;
    let queue = desk.queue(client).await;
    desk.send(client, client, queue, "x").await;
    assert_eq!(desk.lease(client, queue, 1, Duration::ZERO).await.len(), 1);
    desk.lease_at_last(client, queue, LONG).await;
    other.execute_batch("ALTER TABLE elsewhere RENAME TO deleted_queue").unwrap();
    written("works again: retention").await;
    let fails = "CREATE TRIGGER fails BEFORE UPDATE ON message WHEN NEW.leased_until_us IS NULL
        BEGIN SELECT raise(ABORT, 'not now'); END";
    other.execute_batch(fails).unwrap();
    desk.send(client, client, queue, "y").await;
    assert_eq!(desk.lease(client, queue, 1, Duration::ZERO).await.len(), 1);
    written("ending leases fails: their messages stay hidden: SQLite: not now").await;
    let retention = Some(Duration::from_millis(1));
    let kept = desk.queue_with(client, QueueSettings { retention, ..settings() }).await;
    desk.send(client, client, kept, "old").await;
    desk.at_last(async || (desk.counts().await.messages == 2).then_some(())).await;
}

#[tokio::test]
async fn file_of_another_program_is_left_unchanged() {
    let place = Place::new();
    let file = options(&place).file.unwrap();
    for other in
        ["this is not a database, however long it goes on ", "SQLite format 3\0 and no more"]
    {
        let text = other.repeat(100);
        fs::write(&file, &text).unwrap();
        let failed = Sqlite::open(&options(&place)).unwrap_err();
        assert!(matches!(&failed, Failure::NotMigrated(_) | Failure::Broken(_)), "{failed:?}");
        assert_eq!(fs::read(&file).unwrap(), text.as_bytes());
    }
    fs::remove_file(&file).unwrap();
    let foreign = rusqlite::Connection::open(&file).unwrap();
    foreign.execute_batch("CREATE TABLE mine (x); INSERT INTO mine VALUES (1)").unwrap();
    drop(foreign);
    let failed = Sqlite::open(&options(&place)).unwrap_err();
    assert!(failed.to_string().contains("not a message queue of this version"), "{failed}");
    assert!(!file.with_extension("db-wal").exists(), "the file was changed");
}
