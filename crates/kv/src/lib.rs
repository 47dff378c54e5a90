//! The key-value store behind the memcached protocol.

pub mod cli;
