//! The gRPC front, through the network, over a database that the tests have in their hands.

#![allow(clippy::unwrap_used)]

mod calls;
mod ledger;
mod limits;
mod refusals;
mod server;
mod tls;
mod waiting;
mod workers;
