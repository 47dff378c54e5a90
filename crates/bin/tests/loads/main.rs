//! `knee-load` against stores: apart from the servers' tests, so that these take no processor from what it times.
#![allow(clippy::unwrap_used)]

#[path = "../program/mod.rs"]
mod program;

mod kv;
mod memcached;
mod peers;
