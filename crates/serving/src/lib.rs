//! What servers of gRPC have in common, on tokio.
//!
//! * [`connections`]: whom they serve, and for how long one who does nothing: its `activity`.
//! * [`Budget`]: what the messages of all calls may take together, and those of a connection.
//! * [`Bounds`]: calls that have a [`Share`] of it, from their `incoming` request, whose `fields` count,
//!   to their `outgoing` answer, for as long as they move.
//! * [`Running`]: all of it on a port, from start to end.
//! * [`Shards`]: a recorder for each thread of a [`runtime`], and the windows of the process.
//! * [`Trace`]: lines on standard error that nobody waits for.

mod activity;
mod bounded;
mod budget;
mod connections;
mod fields;
mod incoming;
mod outgoing;
mod running;
mod shards;
mod trace;

pub use bounded::{Bounded, Bounds, Unserved};
pub use budget::{Budget, CALL_BYTES, Share};
pub use connections::{Connection, Limits, connections};
pub use running::{Running, Shutdown, listening, server};
pub use shards::{Shards, recorders, runtime};
pub use trace::Trace;
