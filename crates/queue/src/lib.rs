//! A message queue over a database.
//!
//! # Layout
//!
//! * [`operation`]: what clients may ask, and what they are answered.
//! * [`database`]: the trait of whatever keeps the messages. [`postgres`], [`sqlite`],
//!   [`null`]: those that do.

pub mod database;
pub mod null;
pub mod operation;
pub mod postgres;
pub mod sqlite;
