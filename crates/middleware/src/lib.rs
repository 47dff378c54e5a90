//! The memcached middleware: replicated writes, balanced reads, measured stages.
//!
//! The middleware speaks the memcached text protocol with clients and with servers. It has two modes, see [`Mode`].
//! Each worker slot has one request in flight, so the number of slots is the m of an M/M/m queue. In pipelined mode,
//! each thread has one connection to each server.
//!
//! # A request's way
//!
//! ```text
//! client ─ intake ─┬─ (queue) ─ ask ─▶ servers ─ receive ─ settle ─▶ client
//!                  └─ answered here: errors, mn, quit
//! ```
//!
//! The modes differ in one step. A *lane* is a set of connections, one to every server. Each worker slot owns a lane
//! and serves one request at a time. Without an idle slot, a request waits in the queue, which all threads share. In
//! pipelined mode, each thread owns a lane and serves any number of requests.
//!
//! # Layout
//!
//! Pure logic, without sockets:
//!
//! * `route`: the servers for a request. `form`, `opaque`: whether an answer belongs to a request.
//! * `trail`: what a flight has begun at the near cache. `shard`: splits and joins multi-gets. `verdict`, `gather`: one
//!   answer out of many. `cas`: tokens over several servers.
//!
//! The state of a thread:
//!
//! * `proxy`: its tables, and the events of its loop. `client`. `flight`: requests in flight.
//! * `near`: shared by all threads: the near cache, if it is on.
//! * `health`: shared by all threads: which servers are in, and what the others have missed. `deletion`: makes up for
//!   it.
//! * `ledger`: records of answered requests. `server`: lanes, health, back-off. `queue`: shared by all threads.
//!
//! The stations of a request: `intake`, `fast_path` (if the near cache is on), `ask`, `receive`, `settle`. `links` opens
//! and closes connections to servers, `probe` tests slow ones, and `returning` lets a server in again. `trace` prints
//! single requests.
//!
//! # Invariants
//!
//! * Replies to a client are complete, and in the order of its requests. A failing server leaves no partial answer.
//! * Servers get the canonical form of a parsed request, never a client's bytes. Every version of memcached reads
//!   exactly one request in the canonical form.
//! * An answer must belong to its request. Retrievals are checked by key, meta commands by an opaque, other commands by
//!   the form of their answer. If an answer does not belong, the connection is closed, and its requests fail. The
//!   middleware does not notice a wrong `END`, or a wrong answer of the right form to a classic write.
//! * A write is acknowledged when every server that is in has acknowledged it, and these servers reach the quorum
//!   ([`WriteQuorum`]). If the servers that are in are too few for the quorum, the write does not begin. A write is
//!   never sent to a server twice.
//! * The near cache keeps a value only if no write of its key was in flight through this middleware while it was read.
//!   Other writers are seen after the value's lifetime.
//! * A server is in for all threads or for none. Reads go only to servers that are in. A server that may lack a write
//!   is out before the client is answered, and comes in again without that key: a read may miss, but is never stale.
//! * Requests in flight are limited for each client and each server, and by the number of connections.

mod ask;
mod cas;
pub mod cli;
mod client;
mod config;
mod deletion;
mod fast_path;
mod flight;
mod form;
mod frame;
mod gather;
mod health;
mod intake;
mod ledger;
mod links;
mod near;
mod opaque;
mod probe;
mod proxy;
mod queue;
mod receive;
mod returning;
mod route;
mod server;
mod settle;
mod shard;
mod source;
mod start;
mod trace;
mod trail;
mod verdict;

pub use config::{Cache, Config, Mode, ServerAddress, WriteQuorum};
pub use start::{Running, start};
