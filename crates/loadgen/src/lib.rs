//! Closed- and open-loop load on stores, queues and disks, with every response timed.
//!
//! # Layout
//!
//! Requests are drawn without a socket or a clock. They depend on the seed, not on answers, timing or threads:
//!
//! * `workload`: a client's sets and gets, and the check of their answers. It uses `mix`, `keys` (with `zipf`), `items`
//!   and `values`.
//! * `kv`: the same for the operations of a versioned store. `queue`: the same for messages. `blocks`: the same for the
//!   blocks of a disk over NBD.
//! * `schedule`: think times and arrival times.
//!
//! Requests are sent on `knee-reactor`'s event loop, or over gRPC by `grpc`:
//!
//! * `run`: connect everything, start together, sum up (with `bottleneck`).
//! * `on_reactor`: the threads. `clients`: the clients of one thread, and the definition of a response time. `traffic`:
//!   the interface to the protocol.
//! * `grpc`: the same over gRPC, for `kv` and `queue`.
//! * `open_loop`: which requests are due, and which connection carries each.
//! * `backoff`: when a connection may be opened again.
//! * `populate`: the phase that only fills the stores.

mod backoff;
mod blocks;
mod bottleneck;
#[cfg(test)]
mod chi_square;
pub mod cli;
mod clients;
mod complaints;
mod error;
mod grpc;
mod items;
mod keys;
mod kv;
mod mix;
mod on_reactor;
mod open_loop;
mod populate;
mod queue;
mod run;
mod schedule;
mod traffic;
mod values;
mod workload;
mod zipf;
