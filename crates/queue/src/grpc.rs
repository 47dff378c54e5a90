//! The gRPC front: a database of messages behind `knee.queue.v1.Queue`.
//!
//! * [`Serving`]: the service on a port, from start to end.
//! * `service`: what it is asked. `message`: its messages, checked, as the database has them.
//! * `asking`: a turn for a worker, and then the database. `awaiting`: until there is a message.
//! * `pages`: all messages of a queue, as fast as their reader takes them.
//! * `refusal`: what went wrong, as a status. `meter`: how long calls took, and in which stage.

mod asking;
mod awaiting;
mod message;
mod meter;
mod pages;
mod refusal;
mod service;
mod serving;

pub use meter::{Telemetry, recorders};
pub use serving::{Serving, Settings, StartError, Tls};
