//! Load on a message queue, over gRPC.
//!
//! * `workload`: what clients do. `content`: what messages say. `talk`: what one client asks next, and what it makes of
//!   the answers, without a connection or a clock.
//! * `calls`: its requests as calls of `knee.queue.v1`.
//! * `backlog`: the phase that only stores messages.

mod backlog;
mod calls;
mod content;
mod talk;
mod workload;

pub(crate) use backlog::{Backlog, backlog};
pub(crate) use calls::QueueCalls;
pub(crate) use content::CHARACTERS_MAX;
pub(crate) use workload::{Identity, Receivers, Round, Workload};
