//! `knee-load` against servers.

mod kv;
mod memcached;
