//! The servers as processes, each with what its clients see of how it starts, ends and is killed.
#![allow(clippy::unwrap_used)]

#[path = "../program/mod.rs"]
mod program;

mod durable;
mod graph;
mod kv;
mod parent;
mod proxy;
