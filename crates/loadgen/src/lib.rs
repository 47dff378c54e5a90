//! Closed- and open-loop load on memcached and versioned stores, with every response timed.
//!
//! # Layout
//!
//! What is asked for is decided without a socket or a clock, and is the same for a seed whatever the
//! answers, the timing and the number of threads:
//!
//! * `workload`: one client's stream of sets and gets, and whether an answer is right; made of
//!   `mix` (sets and gets), `keys` (with `zipf`) and `items` (with `values`), on `knee-random`.
//! * `kv`: the same for the operations of a versioned store.
//! * `queue`: what clients of a message queue ask, one thing after the other.
//! * `schedule`: thinking, and arrival times.
//!
//! When it is sent is decided on `knee-reactor`'s event loop, or, over gRPC, by `kv::grpc` and
//! `queue::thread`:
//!
//! * `run`: connect everything, start together, sum up (with `bottleneck`).
//! * `clients`: the clients of one thread, and what exactly is measured; `traffic`: what they say.
//! * `open_loop`: which requests are due, and on which connection they go.
//! * `backoff`: when a connection may be opened again.
//! * `populate`: the phase that only fills the stores.

mod backoff;
mod bottleneck;
#[cfg(test)]
mod chi_square;
pub mod cli;
mod clients;
mod complaints;
mod error;
mod items;
mod keys;
mod kv;
mod mix;
mod open_loop;
mod populate;
mod queue;
mod run;
mod schedule;
mod traffic;
mod values;
mod workload;
mod zipf;
