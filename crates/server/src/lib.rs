//! What server programs have in common: their start, and gRPC on tokio.
//!
//! * [`program`]: flags, listeners, report and reasons of failures.
//! * [`connections`]: at most so many at a time, closed when their `activity` stops.
//! * [`Budget`]: the bytes that the `messages` of all calls may take together.
//! * [`Bounded`]: a service whose calls each have a [`Share`] of it.
//! * [`Running`]: all of it on a port, from start to end.
//! * [`Shards`]: a recorder for each thread of a [`runtime`], and the windows of the process.
//! * [`Trace`]: lines on standard error.

mod activity;
mod bounded;
mod budget;
mod connections;
mod messages;
pub mod program;
mod running;
mod shards;
mod trace;

pub use bounded::{Bounded, Unserved};
pub use budget::{Budget, CALL_BYTES, Share};
pub use connections::{Connection, Limits, connections};
pub use running::{Running, Shutdown, listening, server};
pub use shards::{Shards, recorders, runtime};
pub use trace::Trace;
