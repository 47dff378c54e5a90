//! A message queue over a database.
//!
//! # Layout
//!
//! * [`operation`]: requests of clients, and their answers.
//! * [`database`]: the trait of a database of messages. [`postgres`], [`sqlite`], [`null`]: its implementations.
//! * [`grpc`]: `knee.queue.v1` in front of a database. `slots`: workers and connections, first come, first served.
//!   `waiters`: calls that wait for a message.
//! * `upkeep`: background jobs, and the report of their failures.
//! * [`cli`]: the program.

pub mod cli;
pub mod database;
pub mod grpc;
pub mod null;
pub mod operation;
pub mod postgres;
mod slots;
pub mod sqlite;
mod upkeep;
mod waiters;
