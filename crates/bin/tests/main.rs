//! The programs as processes.
#![allow(clippy::unwrap_used)]

#[path = "../../queue/tests/harness/mod.rs"]
mod harness;
mod loads;
mod program;
mod queue;
mod servers;
mod space;
