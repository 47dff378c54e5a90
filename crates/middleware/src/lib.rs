//! The memcached middleware: replicated writes, balanced reads, measured stages.
//!
//! Clients speak the memcached text protocol to it, and so does it to its servers. It runs in one of
//! two modes, see [`Mode`]: with worker slots that have one request in flight each, so that their
//! number is the m of an M/M/m queue; or pipelined, with one connection per thread and server.
//!
//! # A request's way
//!
//! ```text
//! client ─ intake ─┬─ (queue) ─ ask ─▶ servers ─ receive ─ settle ─▶ client
//!                  └─ answered here: errors, mn, quit
//! ```
//!
//! Both modes are the same but for one step. A *lane* is a connection to every server: each worker
//! slot owns one and serves a request at a time, in pipelined mode each thread owns one and serves
//! any number. A request that finds no idle slot waits in the queue, which all threads share.
//!
//! # Layout
//!
//! Pure logic, without sockets: `route` (where a request goes), `form` and `opaque` (whether an answer
//! belongs to it), `shard` (multi-gets split and joined), `verdict` and `gather` (one answer out of
//! many), `cas` (tokens over several servers).
//!
//! The state of one thread: `proxy` (its tables, and the events of its loop), `client`, `flight`
//! (requests under way), `ledger` (what is recorded of them), `server` (lanes, health, back-off),
//! `queue` (shared by all threads).
//!
//! The stations of a request: `intake`, `ask`, `receive`, `settle`; `links` makes and loses
//! connections; `trace` prints one request at a time.
//!
//! # Invariants
//!
//! * Replies to a client are in the order of its requests, and are whole answers: a server that fails
//!   leaves no half of one behind.
//! * Servers get the canonical form of a parsed request, never a client's bytes: every version of
//!   memcached reads exactly one request in it.
//! * An answer must belong to its request: retrievals are checked by key, meta commands by an opaque
//!   (`opaque`), all others by the form of their answer (`form`). A connection with an answer that
//!   does not belong is closed, and its requests fail. A wrong answer of the right form to a classic
//!   write, or a wrong `END`, is not noticed.
//! * A write is acknowledged when every server has acknowledged it. It is not begun when a server is
//!   known to be down, and never sent to a server twice.
//! * What is under way is bounded: per client, per server, and by the number of connections.

mod ask;
mod cas;
pub mod cli;
mod client;
mod config;
mod flight;
mod form;
mod frame;
mod gather;
mod intake;
mod ledger;
mod links;
mod opaque;
mod proxy;
mod queue;
mod receive;
mod route;
mod server;
mod settle;
mod shard;
mod source;
mod start;
mod trace;
mod verdict;

pub use config::{Config, Mode, ServerAddress};
pub use start::{Running, start};
