//! The bounds a decoder holds its peer to.

/// What a peer may send. [`Default`] is what memcached 1.6.18 enforces, as far as it bounds anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest key, in bytes. Meta keys are measured as sent, before base64 is undone.
    pub key_bytes_max: usize,
    /// Longest value, in bytes. A longer one is refused as soon as its command line is read, and its
    /// bytes are dropped as they arrive. memcached limits the whole item instead: with `-I 1m` it
    /// refuses values from about 1 MiB less the key's length less 60 bytes.
    pub value_bytes_max: usize,
    /// Longest command line, without its end, in bytes; retrieval lines excepted.
    pub line_bytes_max: usize,
    /// Longest line of `get`, `gets`, `gat` and `gats`, in bytes. memcached sets none; a server with
    /// bounded buffers needs one, and 1 MiB is more than 4000 keys of the greatest length.
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
