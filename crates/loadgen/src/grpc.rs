//! Load over gRPC: one driver, whatever the calls are.
//!
//! Each thread has a runtime of its own and the connections of its clients, one each. No request crosses
//! threads.
//!
//! * `calls`: what the driver has to know of a kind of load. `status`: what a failed call means.
//! * `connection`: HTTP/2 on one connection. `alarm`: timers as exact as the event loop's.
//! * `thread`: what the clients of a thread share: connections, calls in flight, counts. `closed` and `open`: when a
//!   client sends.
//! * `life`: a thread connects, waits for the start, runs, and waits for the last answers. `driver`: starts the threads.

mod alarm;
mod calls;
mod closed;
mod connection;
mod driver;
mod life;
mod open;
mod status;
mod thread;

pub(crate) use calls::{Answered, Asked, Calls, Wrong};
pub(crate) use connection::{ANSWER_BYTES_MAX, Connection};
pub(crate) use driver::OverGrpc;
pub(crate) use status::{Failure, Service};
