//! The gRPC front: a database of messages behind `knee.queue.v1.Queue`.
//!
//! * [`Serving`]: the service on a port, from start to end.
//! * `service`: its calls. `message`: checks the calls' messages and converts them to requests.
//! * `asking`: waits for a worker, then asks the database. `awaiting`: calls that wait for a message.
//! * `pages`: streams all messages of a queue, as fast as the client reads.
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
pub use serving::{Serving, Settings, Tls};
