//! What is SQLite's own: its file.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod harness;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use knee_queue::database::Failure;
use knee_queue::operation::QueueSettings;
use knee_queue::sqlite::{Options, Sqlite};

use crate::harness::desk::{Desk, LONG, contents, settings};

/// A directory that goes with its test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("knee-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Place(path)
    }

    fn options(&self) -> Options {
        Options { file: Some(self.0.join("messages.db")), durable: true, tell: |_| {} }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn messages_are_there_when_the_file_is_opened_again() {
    let place = Place::new("sqlite-again");
    let desk = Desk(Sqlite::open(&place.options()).unwrap());
    let (client, queue) = desk.begin().await;
    let mut last = 0;
    for content in ["1", "2", "3"] {
        last = desk.send(client, client, queue, content).await;
    }
    desk.lease(client, queue, 1, LONG).await;
    assert_eq!(desk.remove(client, queue, 1).await.len(), 1);

    // As long as somebody has it, nobody else may.
    let Err(Failure::Unavailable(told)) = Sqlite::open(&place.options()) else {
        panic!("it opens")
    };
    assert!(told.contains("in use by another process"), "{told}");
    // Nor by another name.
    let link = Options { file: Some(place.0.join("other.db")), ..place.options() };
    symlink(place.options().file.unwrap(), link.file.as_ref().unwrap()).unwrap();
    let refused = Sqlite::open(&link);
    assert!(matches!(refused, Err(Failure::Unavailable(_))), "{refused:?}");
    drop(desk);
    let desk = Desk(Sqlite::open(&place.options()).unwrap());
    assert_eq!(contents(&desk.read(client, queue, 0, 9).await), ["3"]);
    assert_eq!(desk.counts().await.messages, 2);
    desk.remove(client, queue, 9).await;
    assert!(desk.send(client, client, queue, "4").await > last, "no number is used twice");
}

#[tokio::test]
async fn what_fails_though_nobody_asks_for_it_is_said_once_and_when_it_is_over() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let place = Place::new("sqlite-trouble");
    let tell = |text: &str| SAID.lock().unwrap().push(text.to_owned());
    let options = Options { tell, ..place.options() };
    let desk = Desk(Sqlite::open(&options).unwrap());
    let client = desk.client().await;
    let said = async |count| {
        desk.at_last(async || (SAID.lock().unwrap().len() == count).then_some(())).await;
    };
    let other = rusqlite::Connection::open(options.file.unwrap()).unwrap();
    other.execute_batch("ALTER TABLE deleted_queue RENAME TO elsewhere").unwrap();
    said(1).await;
    // Who asks for something else has it, and what else has to be done is.
    let queue = desk.queue(client).await;
    desk.send(client, client, queue, "x").await;
    assert_eq!(desk.lease(client, queue, 1, Duration::ZERO).await.len(), 1);
    desk.lease_at_last(client, queue, LONG).await;
    other.execute_batch("ALTER TABLE elsewhere RENAME TO deleted_queue").unwrap();
    said(2).await;
    let fails = "CREATE TRIGGER fails BEFORE UPDATE ON message WHEN NEW.leased_until_us IS NULL
        BEGIN SELECT raise(ABORT, 'not now'); END";
    other.execute_batch(fails).unwrap();
    desk.send(client, client, queue, "y").await;
    assert_eq!(desk.lease(client, queue, 1, Duration::ZERO).await.len(), 1);
    said(3).await;
    let retention = Some(Duration::from_millis(1));
    let kept = desk.queue_with(client, QueueSettings { retention, ..settings() }).await;
    desk.send(client, client, kept, "old").await;
    desk.at_last(async || (desk.counts().await.messages == 2).then_some(())).await;
    let said = SAID.lock().unwrap();
    assert!(said[0].contains("is too old"), "{said:?}");
    assert!(said[0].contains("no such table"), "{said:?}");
    assert!(said[1].contains("works again"), "{said:?}");
    assert!(said[2].contains("do not come back: SQLite: not now"), "{said:?}");
}

#[tokio::test]
async fn what_is_not_a_queue_of_this_version_is_left_alone() {
    let place = Place::new("sqlite-other");
    let file = place.options().file.unwrap();
    for other in
        ["this is not a database, however long it goes on ", "SQLite format 3\0 and no more"]
    {
        let text = other.repeat(100);
        fs::write(&file, &text).unwrap();
        let failed = Sqlite::open(&place.options()).unwrap_err();
        assert!(matches!(&failed, Failure::NotMigrated(_) | Failure::Broken(_)), "{failed:?}");
        assert_eq!(fs::read(&file).unwrap(), text.as_bytes());
    }
    fs::remove_file(&file).unwrap();
    let foreign = rusqlite::Connection::open(&file).unwrap();
    foreign.execute_batch("CREATE TABLE mine (x); INSERT INTO mine VALUES (1)").unwrap();
    drop(foreign);
    let failed = Sqlite::open(&place.options()).unwrap_err();
    assert!(failed.to_string().contains("not a message queue of this version"), "{failed}");
    assert!(!file.with_extension("db-wal").exists(), "it is as it was");
}
