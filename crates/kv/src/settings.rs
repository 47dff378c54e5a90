//! Settings of the memcached server.

use std::time::Duration;

use knee_kv_cache::MemoryLimits;

/// Settings of the memcached server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemcachedSettings {
    /// Event loops, at least 1. With one, nothing is locked.
    pub threads: usize,
    /// Limits of the memory engine; a versioned store uses only the limit of values.
    pub limits: MemoryLimits,
    /// Memory for unfinished requests and unread answers, in bytes.
    pub buffered_bytes_max: usize,
    /// Largest number of connections served at a time; further ones are refused.
    pub connections_max: usize,
    /// A connection without traffic for this time is closed.
    pub idle_timeout: Option<Duration>,
}
