//! All tests of the crate that need no more than its public interface.

#![allow(clippy::unwrap_used)]

mod backup;
mod descriptors;
mod front;
mod full_disk;
mod graph_killed;
mod grpc;
mod harness;
mod linearizability;
mod memcached;
mod unread;
mod versioned;
