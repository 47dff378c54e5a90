//! The memcached front through real sockets, and the engines behind it.

mod corrupted;
mod damaged;
mod engine;
mod full;
mod server;
