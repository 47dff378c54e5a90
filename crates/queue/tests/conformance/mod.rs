//! One suite over all databases of messages.

mod suite;

use std::sync::Arc;

use knee_queue::database::Database;
use knee_queue::postgres::{Options, Postgres};
use knee_queue::sqlite::{self, Sqlite};

use crate::harness::cluster::Cluster;
use crate::harness::desk::Desk;
use crate::harness::{Place, no_log};

macro_rules! conforms {
    ($database:expr, $($test:ident),* $(,)?) => {
        let desk = Arc::new(Desk($database));
        $(
            println!(stringify!($test));
            suite::$test(&desk).await;
        )*
    };
}

/// One database for the whole suite: opening one takes longer than most of the tests.
async fn conforms(database: impl Database) {
    conforms!(
        database,
        // These two need a database without messages for any client.
        messages_clients_and_queues_are_counted,
        queues_with_messages_are_listed,
        messages_come_in_the_order_of_their_arrival,
        content_is_kept_as_it_was_sent,
        missing_client_or_queue_is_named,
        messages_of_a_send_are_sent_all_or_none,
        reading_takes_pages_and_removes_nothing,
        oldest_message_from_a_sender_is_read,
        lease_hides_a_message_until_it_ends,
        repeated_lease_counts_once,
        extended_lease_outlives_its_first_end,
        message_after_its_last_attempt_is_a_dead_letter,
        expired_messages_are_removed,
        deleted_queue_disappears_at_once,
        arrivals_are_announced,
        concurrent_removes_share_without_loss,
        each_of_as_many_removers_as_messages_gets_one,
        stages_follow_each_other,
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_in_memory() {
    let options = sqlite::Options { file: None, durable: true, log: no_log() };
    conforms(Sqlite::open(&options).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_file() {
    let place = Place::new();
    let file = Some(place.0.join("messages.db"));
    let options = sqlite::Options { file, durable: true, log: no_log() };
    conforms(Sqlite::open(&options).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    conforms(Cluster::shared().open().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_combining() {
    let migrated = Cluster::shared().migrated().await;
    let options = Options { connections: 2, combine_max: 16, ..migrated };
    conforms(Postgres::open(&options).await.unwrap()).await;
}
