//! The key-value store: a cache over the memcached protocol, or a versioned store. The versioned store serves
//! memcached, gRPC and honu's interface, from memory or from a directory.
//!
//! `knee-kv` is the default store of experiments. The cache is volatile, bounded, and so cheap that experiments
//! measure the systems in front of it. The versioned store has snapshots, can be durable, and refuses writes
//! beyond its size.
//!
//! # Layout
//!
//! * [`knee_kv_cache`]: the `Engine` trait between the memcached protocol and the items, and the volatile engine.
//! * [`knee_kv_store`]: the versioned store, in memory or in a directory; its `Items` implement `Engine` as well.
//! * [`graph`]: loads follower graphs into a versioned store.
//! * `commands`: memcached's requests as decisions on an engine's items.
//! * `server`: connections; it answers a batch of requests with one write.
//! * `counters`: the numbers of `stats`.
//! * [`grpc`]: the gRPC server of the versioned store, with honu's interface.
//! * `trace`: a line for each request of both servers. `settings`: the settings of the memcached server.
//! * [`MemcachedServer`]: the memcached server from start to end, in this process. [`cli`]: the program.
//!
//! A get allocates nothing. With one thread it also takes no lock: the thread owns its engine. The value is copied
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

pub use memcached::MemcachedServer;
pub use settings::MemcachedSettings;

/// The program's name, in messages.
pub(crate) const PROGRAM: &str = "knee-kv";
