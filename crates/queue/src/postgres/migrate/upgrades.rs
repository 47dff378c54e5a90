//! From one version of the schema to the next, with messages in it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../../tests/harness/mod.rs"]
mod harness;

use super::{LOCK, MIGRATIONS, Migration, check_against, checksum, install};
use crate::database::Failure;
use crate::postgres::address::{Address, address};
use crate::postgres::{Options, Postgres, migrate};
use harness::cluster::Cluster;
use harness::desk::{Desk, contents};

/// What each message gets, and all that are there have at once.
const PRIORITY: Migration = Migration {
    number: 9,
    name: "priority",
    sql: "ALTER TABLE message ADD COLUMN priority integer NOT NULL DEFAULT 0;
        UPDATE message SET priority = 1;
        CREATE FUNCTION urgent() RETURNS bigint LANGUAGE sql
            AS 'SELECT count(*) FROM knee_queue.message WHERE priority > 0'",
};

/// Fails once it has done something.
const HALF: Migration = Migration {
    number: 10,
    name: "archive",
    sql: "CREATE TABLE archive (id bigint PRIMARY KEY);
        INSERT INTO archive SELECT id FROM message;
        ALTER TABLE message DROP COLUMN content;
        SELECT * FROM no_such_table",
};

const WHOLE: Migration =
    Migration { number: 10, name: "archive", sql: "CREATE TABLE archive (id bigint PRIMARY KEY)" };

/// What a later program has.
fn later(further: &[Migration]) -> Vec<Migration> {
    MIGRATIONS.iter().chain(further).copied().collect()
}

/// A database of this version, with messages in it.
struct Old {
    cluster: std::sync::Arc<Cluster>,
    options: Options,
    address: Address,
    desk: Desk<Postgres>,
    client: u32,
    queue: u32,
}

impl Old {
    async fn new() -> Old {
        let cluster = Cluster::shared();
        let options = cluster.migrated().await;
        let desk = Desk::open(&options).await;
        let (client, queue) = desk.begin().await;
        for content in ["first", "second", "third"] {
            desk.send(client, client, queue, content).await;
        }
        let address = address(&options).unwrap();
        Old { cluster, options, address, desk, client, queue }
    }

    /// What there is one of in the database, as it answers in the catalogue or a table.
    async fn one(&self, question: &str) -> i64 {
        let database = self.options.address.rsplit('/').next().unwrap();
        self.cluster.connect(database).await.query_one(question, &[]).await.unwrap().get(0)
    }
}

#[tokio::test]
async fn messages_outlive_an_upgrade_that_two_make_at_once() {
    let old = Old::new().await;
    let newer = later(&[PRIORITY]);
    let Err(Failure::NotMigrated(told)) = check_against(&old.address, &newer).await else {
        panic!("it is served by a later version")
    };
    assert!(told.contains("has 8 of the 9 migrations"), "{told}");
    assert!(told.contains("run `knee-queue migrate`"), "{told}");

    // Both have come before either may begin.
    let database = old.options.address.rsplit('/').next().unwrap();
    let holder = old.cluster.connect(database).await;
    holder.execute("SELECT pg_advisory_lock($1)", &[&LOCK]).await.unwrap();
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let (one, two, ()) =
        tokio::join!(install(&old.address, &newer), install(&old.address, &newer), async {
            old.desk.at_last(async || (old.one(waiting).await == 2).then_some(())).await;
            holder.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
        });
    assert_eq!([one.unwrap(), two.unwrap()].concat(), ["009_priority"]);
    // Once more: nothing is left to do, and nothing is done again.
    assert!(install(&old.address, &newer).await.unwrap().is_empty());
    assert_eq!(old.one("SELECT knee_queue.urgent()").await, 3);
    check_against(&old.address, &newer).await.unwrap();

    // Who served meanwhile finds all, and what comes now as well.
    old.desk.send(old.client, old.client, old.queue, "fourth").await;
    let left = old.desk.read(old.client, old.queue, 0, 9).await;
    assert_eq!(contents(&left), ["first", "second", "third", "fourth"]);
    assert_eq!(old.one("SELECT knee_queue.urgent()").await, 3);
}

#[tokio::test]
async fn an_upgrade_that_fails_half_way_has_done_nothing_of_that_version() {
    let old = Old::new().await;
    let failed = install(&old.address, &later(&[PRIORITY, HALF])).await;
    let Err(Failure::Broken(told)) = failed else { panic!("{failed:?}") };
    assert!(told.contains("migration 010_archive"), "{told}");
    assert!(told.contains("no_such_table"), "{told}");
    assert!(!told.contains("knee-queue migrate"), "it is what has failed: {told}");
    // The version before it is whole, and of this one there is nothing.
    assert_eq!(old.one("SELECT knee_queue.urgent()").await, 3);
    assert_eq!(old.one("SELECT count(*) FROM knee_queue.migration").await, 9);
    assert_eq!(
        old.one(
            "SELECT count(*) FROM pg_class WHERE relname = 'archive' OR relname = 'archive_pkey'"
        )
        .await,
        0
    );
    let left = old.desk.read(old.client, old.queue, 0, 9).await;
    assert_eq!(contents(&left), ["first", "second", "third"]);
    // Nobody is locked out by who has failed: mended, it goes on where that ended.
    let mended = later(&[PRIORITY, WHOLE]);
    assert_eq!(install(&old.address, &mended).await.unwrap(), ["010_archive"]);
    assert_eq!(old.one("SELECT count(*) FROM knee_queue.archive").await, 0);
}

#[tokio::test]
async fn a_program_does_not_serve_nor_migrate_a_later_schema() {
    let old = Old::new().await;
    install(&old.address, &later(&[PRIORITY])).await.unwrap();
    for failed in [Postgres::open(&old.options).await.err(), migrate(&old.options).await.err()] {
        let Some(Failure::NotMigrated(told)) = failed else { panic!("{failed:?}") };
        assert!(told.contains("009_priority"), "{told}");
        assert!(told.contains("a later knee-queue"), "{told}");
    }
    // Nor one that is of another build.
    let other = Migration { sql: "SELECT 1", ..PRIORITY };
    let failed = check_against(&old.address, &later(&[other])).await;
    assert_ne!(checksum(&other), checksum(&PRIORITY));
    assert!(
        matches!(&failed, Err(Failure::NotMigrated(told)) if told.contains("different builds"))
    );
}
