//! Load on a message queue, over gRPC.
//!
//! * `workload`: the rounds of clients. `content`: the content of messages. `talk`: one client's requests, and the
//!   check of their answers, without a connection or a clock.
//! * `calls`: the requests as calls of `knee.queue.v1`.
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
