//! A message queue over a database.
//!
//! # Layout
//!
//! * [`operation`]: what clients may ask, and what they are answered.
//! * [`database`]: the trait of whatever keeps the messages. [`postgres`], [`sqlite`],
//!   [`null`]: those that do.
//! * [`grpc`]: `knee.queue.v1` in front of one. `workers`: who asks it, first come, first served, as
//!   `turns` come. `waiting`: who waits for a message, and who is woken when one arrives.
//! * `plain`: what may be repeated of an address. `trouble`: what is said of work that nobody asks for, where it fails.
//! * [`cli`]: the program.

pub mod cli;
pub mod database;
pub mod grpc;
pub mod null;
pub mod operation;
mod plain;
pub mod postgres;
pub mod sqlite;
mod trouble;
mod turns;
mod waiting;
mod workers;

// Those of this crate's tests that are within it call it as those beside it do.
#[cfg(test)]
extern crate self as knee_queue;
