//! The gain from combining requests that wait for a connection: `cargo bench -p knee-queue --bench combining [--
//! CONNECTIONS...]`. Clients send messages to themselves and remove them, over few connections; PostgreSQL waits for
//! the disk. The configurations take turns; the bench prints medians.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../tests/harness/mod.rs"]
mod harness;

use std::sync::Arc;
use std::time::{Duration, Instant};

use knee_queue::postgres::{Options, Postgres};

use crate::harness::cluster::{Cluster, Stop};
use crate::harness::desk::Desk;

const CLIENTS: usize = 64;
const COMBINED: [usize; 4] = [1, 4, 16, 64];
const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_secs(2);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut asked: Vec<usize> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    if asked.is_empty() {
        asked = vec![1, 4];
    }
    let mut cluster = Cluster::start();
    cluster.is_durable = true;
    cluster.stop(Stop::Fast);
    cluster.restart();
    for connections in asked {
        let mut pairs = COMBINED.map(|_| Vec::new());
        for _ in 0..ROUNDS {
            for (pairs, combine_max) in pairs.iter_mut().zip(COMBINED) {
                let options = Options { connections, combine_max, ..cluster.migrated().await };
                pairs.push(run(Desk::open(&options).await).await);
            }
        }
        for (mut pairs, combine_max) in pairs.into_iter().zip(COMBINED) {
            pairs.sort_unstable_by(f64::total_cmp);
            println!(
                "{connections} connections, at most {combine_max:>2} combined: {:>7.0} pairs/s",
                pairs[ROUNDS / 2]
            );
        }
    }
}

/// Returns pairs of a send and a remove, per second.
async fn run(desk: Desk<Postgres>) -> f64 {
    let desk = Arc::new(desk);
    let mut places = Vec::new();
    for _ in 0..CLIENTS {
        let client = desk.client().await;
        places.push((client, desk.queue(client).await));
    }
    let begun = Instant::now();
    let clients: Vec<_> = places
        .into_iter()
        .map(|(client, queue)| {
            let desk = Arc::clone(&desk);
            tokio::spawn(async move {
                let mut pairs = 0;
                while begun.elapsed() < TIME {
                    desk.send(client, client, queue, "0123456789").await;
                    assert_eq!(desk.remove(client, queue, 1).await.len(), 1);
                    pairs += 1;
                }
                pairs
            })
        })
        .collect();
    let mut pairs = 0;
    for client in clients {
        pairs += client.await.unwrap();
    }
    f64::from(pairs) / begun.elapsed().as_secs_f64()
}
