//! The queue: one suite over every database, the gRPC front, PostgreSQL, SQLite, and random histories.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod churn;
mod conformance;
mod front;
mod harness;
mod histories;
mod postgresql;
mod sqlite;
