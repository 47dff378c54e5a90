//! The servers: how they start, end and are killed.

mod chaos;
mod durable;
mod graph;
mod interfaces;
mod kv;
mod memory;
mod parent;
mod proxy;
