//! The gRPC front, through the network, over a database that the tests have in their hands.

#![allow(clippy::unwrap_used)]

mod calls;
mod databases;
mod encrypted;
#[path = "../harness/mod.rs"]
mod harness;
mod ledger;
mod limits;
mod refusals;
mod server;
mod shares;
mod tls;
mod waiting;
mod workers;
