//! The memcached middleware: replicated writes, balanced reads, measured stages.

pub mod cli;
