//! The key-value store: a cache over the memcached protocol, or a store that keeps versions, in memory
//! or in a directory, over that, gRPC and honu's interface.
//!
//! `knee-kv` is the default store of the lab. The cache is volatile, bounded, and cheap enough that it
//! is not what an experiment measures; the store that keeps versions refuses what does not fit it,
//! shows snapshots, and makes what it is given durable.
//!
//! # Layout
//!
//! * [`engine`]: the trait between the server and whatever keeps the items, one read and one
//!   atomic read-decide-change.
//! * [`Memory`]: the volatile engine. `stripes` shares several of them among threads.
//! * [`graph`]: follower graphs, from a text into a versioned store.
//! * [`versioned`]: the store that keeps versions, in memory or in a directory; its `Items` are an
//!   engine, too.
//! * `commands`: what memcached means by a request, said as decisions on an engine's items.
//! * `server`: connections; batches of requests in, one write of their answers out.
//! * `counters`: what `stats` counts.
//! * [`grpc`]: the front that the store that keeps versions has besides, with honu's interface.
//! * `trace`: a line for each request, of both fronts.
//! * [`MemcachedServer`]: the memcached front from start to end, in this process. [`cli`]: the program.
//!
//! On the path of a get nothing is allocated, and with one thread nothing is locked: the thread
//! owns its engine, and the value is copied once, from the engine into the connection's output.

pub mod cli;
pub mod engine;
pub mod graph;
pub mod grpc;

mod calendar;
mod commands;
mod counters;
mod memcached;
mod memory;
mod server;
mod settings;
mod stripes;
mod trace;
pub mod versioned;

pub use memcached::{EndError, MemcachedServer, StartError};
pub use memory::{Memory, MemoryLimits};
pub use settings::MemcachedSettings;

/// The program's name, in messages.
pub(crate) const PROGRAM: &str = "knee-kv";
