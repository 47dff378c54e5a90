//! The keys of a run and their values.

use knee_proto::encode;

use crate::keys::KeySpace;
use crate::values::{KeyValue, ValueSize};

/// Keys, the size of their values, and their time to live.
#[derive(Debug, Clone)]
pub(crate) struct Items {
    pub(crate) keys: KeySpace,
    pub(crate) value_size: ValueSize,
    /// Seconds until a value expires; 0: never.
    pub(crate) ttl_s: u32,
}

impl Items {
    #[inline]
    pub(crate) fn value(&self, key: u32) -> KeyValue {
        KeyValue::of(self.value_size, self.keys.hash(key))
    }

    /// Appends a storage command of memcached, such as `set`, with a key's value.
    #[inline]
    pub(crate) fn append_store(&self, command: &str, key: u32, out: &mut Vec<u8>) {
        let value = self.value(key);
        out.reserve(self.keys.key_bytes_max() + value.bytes as usize + 40);
        out.extend_from_slice(command.as_bytes());
        out.push(b' ');
        self.keys.append(key, out);
        out.push(b' ');
        encode::number(u64::from(value.flags()), out);
        out.push(b' ');
        encode::number(u64::from(self.ttl_s), out);
        out.push(b' ');
        encode::number(u64::from(value.bytes), out);
        encode::line_end(out);
        value.append(out);
        encode::line_end(out);
    }
}
