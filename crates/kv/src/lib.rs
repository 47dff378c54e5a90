//! The key-value store: a cache over the memcached protocol, or a store that keeps versions, in memory
//! or in a directory, over that, gRPC and honu's interface.
//!
//! `knee-kv` is the default store of the lab. The cache is volatile, bounded, and so cheap that experiments measure
//! what is in front of it. The store that keeps versions refuses writes beyond its size, has snapshots, and is
//! durable.
//!
//! # Layout
//!
//! * [`knee_kv_cache`]: the trait of an engine, between the memcached front and the items, and the volatile engine.
//! * [`knee_kv_store`]: the store that keeps versions, in memory or in a directory; its `Items` are an engine, too.
//! * [`graph`]: follower graphs, from a text into a versioned store.
//! * `commands`: memcached's requests as decisions on an engine's items.
//! * `server`: connections; batches of requests in, one write of their answers out.
//! * `counters`: the numbers of `stats`.
//! * [`grpc`]: the second front of the store that keeps versions, with honu's interface.
//! * `trace`: a line for each request of both fronts. `settings`: those of the memcached front.
//! * [`MemcachedServer`]: the memcached front from start to end, in this process. [`cli`]: the program.
//!
//! A get allocates nothing, and with one thread it locks nothing: the thread owns its engine. The value is copied
//! once, from the engine into the connection's output.

pub mod cli;
pub mod graph;
pub mod grpc;

mod commands;
mod counters;
mod memcached;
mod server;
mod settings;
mod trace;

pub use memcached::{EndError, MemcachedServer, StartError};
pub use settings::MemcachedSettings;

/// The program's name, in messages.
pub(crate) const PROGRAM: &str = "knee-kv";
