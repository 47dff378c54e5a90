//! Settings of the memcached front.

use std::time::Duration;

use knee_kv_cache::MemoryLimits;

/// How the memcached front serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemcachedSettings {
    /// Event loops, at least 1. With one, nothing is locked.
    pub threads: usize,
    /// Limits of the memory engine; of a versioned store, only that of the values counts.
    pub limits: MemoryLimits,
    /// Connections served at a time; further ones are refused.
    pub connections_max: usize,
    /// Connections without traffic for so long are closed.
    pub idle_timeout: Option<Duration>,
}
