//! The gRPC front, through the network, over a database that the tests control.

mod calls;
mod databases;
mod encrypted;
mod ledger;
mod limits;
mod refusals;
mod server;
mod tls;
mod waiting;
mod workers;
