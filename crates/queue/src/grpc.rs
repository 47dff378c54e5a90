//! The gRPC front: a database of messages behind `knee.queue.v1.Queue`.
//!
//! * [`Serving`]: the service on a port, from start to end.
//! * `service`: its calls. `message`: their messages, checked, as requests to the database.
//! * `asking`: a worker, and then the database. `awaiting`: calls that wait for a message.
//! * `pages`: all messages of a queue, at their reader's pace.
//! * `refusal`: failures as statuses. `meter`: telemetry and trace of calls.

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
