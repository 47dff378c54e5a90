//! What servers of gRPC have in common, on tokio.
//!
//! * [`connections`]: whom they serve, and for how long one who does nothing.
//! * [`Budget`]: what the messages of all calls may take together.
//! * [`Shards`]: a recorder for each thread of a [`runtime`], and the windows of the process.
//! * [`Trace`]: lines on standard error that nobody waits for.

mod budget;
mod connections;
mod shards;
mod trace;

pub use budget::{Bounded, Budget, CALL_BYTES, Share};
pub use connections::{Activity, Connection, Limits, connections};
pub use shards::{Shards, recorders, runtime};
pub use trace::Trace;
