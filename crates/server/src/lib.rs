//! The common parts of server programs: their start, and gRPC on tokio.
//!
//! * [`program`]: flags, listeners, report, and failures.
//! * [`connections`]: a limited number of connections, closed when their `activity` stops.
//! * [`Budget`]: the limit of the memory for the `messages` of all calls.
//! * [`Bounded`]: a service whose calls each have a [`Share`] of the budget.
//! * [`Interfaces`]: the services of a port; health checks and reflection stand `beside` them.
//! * [`Running`]: a server on a port, from start to end.
//! * [`Shards`]: a recorder for each thread of a [`runtime`].
//! * [`Trace`]: a line for each request, on standard error.

mod activity;
mod beside;
mod bounded;
mod budget;
mod connections;
mod messages;
pub mod program;
mod running;
mod shards;
mod trace;

pub use beside::Interfaces;
pub use bounded::{Bounded, Unserved};
pub use budget::{Budget, CALL_BYTES, Share};
pub use connections::{Connection, Limits, connections};
pub use running::{Running, Shutdown, listening, server};
pub use shards::{Shards, recorders, runtime};
pub use trace::Trace;
