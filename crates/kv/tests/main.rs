//! The tests of the crate's public interface.

#![allow(clippy::unwrap_used)]

mod company;
mod front;
mod graph;
mod graph_killed;
mod grpc;
mod harness;
mod linearizability;
mod memcached;
mod unread;
