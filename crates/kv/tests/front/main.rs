//! The memcached front through real sockets, and the engines behind it.

#![allow(clippy::unwrap_used)]

mod corrupted;
mod damaged;
mod engine;
mod full;
#[path = "../harness/mod.rs"]
mod harness;
mod server;
