//! The memcached front through real sockets.

mod corrupted;
mod damaged;
mod full;
mod server;
