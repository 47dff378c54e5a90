//! A message queue over a database.
//!
//! # Layout
//!
//! * [`operation`]: what clients may ask, and what they are answered.
//! * [`database`]: the trait of whatever keeps the messages.

pub mod database;
pub mod operation;
