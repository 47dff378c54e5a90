//! What is done though nobody asks for it.

use std::sync::Mutex;

use knee_queue::postgres::{Options, Postgres};

use crate::harness::cluster::Cluster;
use crate::harness::desk::Desk;
use crate::name;

#[tokio::test]
async fn what_fails_though_nobody_asks_for_it_is_said_once_and_when_it_is_over() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let cluster = Cluster::shared();
    let tell = |text: &str| SAID.lock().unwrap().push(text.to_owned());
    let options = Options { tell, ..cluster.migrated().await };
    let desk = Desk(Postgres::open(&options).await.unwrap());
    // A connection that is made later would find out first.
    let client = desk.client().await;
    let database = cluster.connect(name(&options)).await;
    let rename = async |from: &str, to: &str| {
        let rename = format!("ALTER FUNCTION knee_queue.{from}(integer) RENAME TO {to}");
        database.batch_execute(&rename).await.unwrap();
    };
    let said = async |count| {
        desk.at_last(async || (SAID.lock().unwrap().len() == count).then_some(())).await;
    };
    rename("end_leases", "elsewhere").await;
    said(1).await;
    // Who asks for something else has it.
    let queue = desk.queue(client).await;
    desk.send(client, client, queue, "x").await;
    rename("elsewhere", "end_leases").await;
    said(2).await;
    let said = SAID.lock().unwrap();
    assert!(said[0].contains("do not come back"), "{said:?}");
    assert!(said[0].contains("knee-queue migrate"), "{said:?}");
    assert!(said[1].contains("works again"), "{said:?}");
}
