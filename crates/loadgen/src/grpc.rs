//! Load over gRPC: one driver for all kinds of calls.
//!
//! Each thread has its own runtime, and one connection for each of its clients. No request crosses threads.
//!
//! * `calls`: the trait of a kind of load. `status`: the meaning of a failed call.
//! * `connection`: HTTP/2 on one connection. `alarm`: timers as exact as the event loop's.
//! * `thread`: the state of a thread's clients: connections, calls in flight, counts. `closed` and `open`: when a
//!   client sends.
//! * `life`: a thread connects, waits for the start, runs, and waits for the last answers. `driver`: starts the
//!   threads. `phase`: what precedes a load.

mod alarm;
mod calls;
mod closed;
mod connection;
mod driver;
mod life;
mod open;
mod phase;
mod status;
mod thread;

pub(crate) use calls::{Answered, Asked, Calls, Wrong};
pub(crate) use connection::{ANSWER_BYTES_MAX, Connection};
pub(crate) use driver::OverGrpc;
pub(crate) use phase::{connect, phase};
pub(crate) use status::{Failure, Service};
