//! The programs as processes, as their users meet them.
#![allow(clippy::unwrap_used)]

#[path = "../../queue/tests/harness/mod.rs"]
mod harness;
mod loads;
mod program;
mod queue;
mod servers;
