//! The limits of the requests that a decoder accepts.

/// Limits of requests. [`Default`] has the limits of memcached 1.6.18, where memcached has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Length of the longest key. A base64 key counts as sent, not as decoded.
    pub key_bytes_max: usize,
    /// Length of the longest value. The bytes of a longer value are dropped as they arrive; then the request is
    /// refused. memcached limits the whole item instead. With `-I 1m` it refuses values from about 1 MiB less the key's
    /// length less 60 bytes.
    pub value_bytes_max: usize,
    /// Length of the longest command line, without its end, except for `get` and `gets`.
    pub line_bytes_max: usize,
    /// Length of the longest line of `get` and `gets`. memcached has no such limit, but a server with
    /// bounded buffers needs one. 1 MiB is more than 4000 keys of the greatest length.
    pub retrieval_line_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            key_bytes_max: 250,
            value_bytes_max: 1 << 20,
            line_bytes_max: 2048,
            retrieval_line_bytes_max: 1 << 20,
        }
    }
}
