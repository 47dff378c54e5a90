//! `knee-load kv` against `knee-kv`: what it counts is what the server counts.
#![allow(clippy::unwrap_used)]

#[path = "../program/mod.rs"]
mod program;

mod counts;
mod losses;
mod refusals;
mod relay;
mod store;
mod verify;
