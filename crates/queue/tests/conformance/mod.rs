//! One suite over every database of messages.

mod suite;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use knee_queue::postgres::{Options, Postgres};
use knee_queue::sqlite::{self, Sqlite};

use crate::harness::cluster::Cluster;
use crate::harness::desk::Desk;
use crate::harness::no_log;

macro_rules! conforms {
    ($($database:ident),*) => { $(
        mod $database {
            conforms!(@ $database:
                messages_come_in_the_order_of_their_arrival,
                a_message_is_kept_as_it_was_sent,
                missing_client_or_queue_is_named,
                messages_of_a_send_are_sent_all_or_none,
                queues_with_messages_are_listed,
                reading_takes_pages_and_removes_nothing,
                the_oldest_from_a_sender_is_read,
                a_lease_hides_a_message_until_it_ends,
                a_lease_that_is_named_twice_is_one,
                an_extended_lease_outlives_its_first_end,
                attempts_end_in_the_dead_letters,
                old_messages_are_removed,
                deleted_queue_is_gone_at_once,
                arrivals_are_announced,
                everything_is_counted,
                concurrent_removes_share_without_loss,
                as_many_messages_as_removers_leave_none_empty,
                stages_follow_each_other
            );
        }
    )* };
    (@ $database:ident: $($test:ident),*) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let (database, _place) = super::$database().await;
            super::suite::$test(super::Desk(database)).await;
        }
    )* };
}

conforms!(sqlite_in_memory, sqlite_file, postgres, postgres_combining);

async fn sqlite_in_memory() -> (Sqlite, ()) {
    (Sqlite::open(&sqlite::Options { file: None, durable: true, log: no_log() }).unwrap(), ())
}

async fn sqlite_file() -> (Sqlite, Place) {
    let place = Place::new();
    let file = Some(place.0.join("messages.db"));
    (Sqlite::open(&sqlite::Options { file, durable: true, log: no_log() }).unwrap(), place)
}

/// Whose every test has a database of its own, in one cluster.
async fn postgres() -> (Postgres, ()) {
    let cluster = Cluster::shared();
    (cluster.open().await, ())
}

async fn postgres_combining() -> (Postgres, ()) {
    let cluster = Cluster::shared();
    let options = Options { connections: 2, combine_max: 16, ..cluster.migrated().await };
    (Postgres::open(&options).await.unwrap(), ())
}

/// A directory that goes with its test.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("knee-queue-{}-{count}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
