//! PostgreSQL alone: the schema, access, connections, and several servers over one database.

mod admitted;
mod connections;
mod floors;
mod leases;
mod notifier;
mod upkeep;

use std::sync::Arc;

use knee_queue::database::Database;
use knee_queue::postgres::Postgres;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::harness::desk::{Desk, PATIENCE};

/// Makes sends to a queue wait until this client's `COMMIT`.
pub(crate) async fn hold_up_senders(client: &Client, queue: u32) {
    let trigger =
        "CREATE OR REPLACE FUNCTION held_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             PERFORM pg_advisory_xact_lock_shared(7, NEW.queue); RETURN NEW; END $$;
         CREATE OR REPLACE TRIGGER held_up BEFORE INSERT ON knee_queue.message
             FOR EACH ROW EXECUTE FUNCTION held_up()";
    client.batch_execute(trigger).await.unwrap();
    let lock = format!("BEGIN; SELECT pg_advisory_xact_lock(7, {queue})");
    client.batch_execute(&lock).await.unwrap();
}

/// Returns when this many senders are held up.
pub(crate) async fn held_up<D: Database>(desk: &Desk<D>, client: &Client, senders: i64) {
    let count = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    desk.at_last(async || {
        let held_up: i64 = client.query_one(count, &[]).await.unwrap().get(0);
        (held_up == senders).then_some(())
    })
    .await;
}

/// Sends a message from a client to itself.
pub(crate) fn sending(desk: &Arc<Desk<Postgres>>, client: u32, queue: u32) -> JoinHandle<()> {
    let desk = Arc::clone(desk);
    tokio::spawn(async move {
        desk.send(client, client, queue, "x").await;
    })
}

pub(crate) async fn ends(sending: JoinHandle<()>) {
    timeout(PATIENCE, sending).await.expect("it is answered").unwrap();
}
