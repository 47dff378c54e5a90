//! The gRPC front, through the network.

mod copying;
mod interfaces;
mod limits;
mod loading;
mod ranges;
mod raw;
mod readers;
mod refusals;
mod repeating;
mod seed;
pub(crate) mod serving;
mod telemetry;
mod unread;
mod watching;
