//! Closed- and open-loop load on memcached servers, with every response timed.

pub mod cli;
