//! A middleware in front of real servers, and of servers that fail or lie.
#![allow(clippy::unwrap_used)]

mod absence;
mod answers;
mod batches;
mod failures;
mod near;
mod odd_lines;
mod replication;
mod support;
