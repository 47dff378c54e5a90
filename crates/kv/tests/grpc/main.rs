//! The gRPC front, through the network.

#![allow(clippy::unwrap_used)]

mod interfaces;
mod readers;
mod refusals;
mod seed;
mod serving;
mod telemetry;
