//! All tests of the crate that need no more than its public interface.

#![allow(clippy::unwrap_used)]

mod front;
mod graph;
mod graph_killed;
mod grpc;
mod harness;
mod linearizability;
mod memcached;
mod unread;
