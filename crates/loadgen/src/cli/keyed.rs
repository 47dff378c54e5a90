//! The flags of a load on keys and values.

use clap::Args;

use crate::items::Items;
use crate::keys::{KeyChoice, KeyFormat, KeySpace};
use crate::values::ValueSize;

/// The longest time to live. memcached takes a larger number for a second of the Unix epoch.
const TTL_S_MAX: i64 = 30 * 24 * 3600;

/// The flags of keys, their choice, and their values.
#[derive(Args, Debug)]
pub(super) struct Keyed {
    /// Number of keys.
    #[arg(long, default_value_t = 10_000)]
    pub(super) keys: u64,
    /// Prefix of every key; its number follows.
    #[arg(long, default_value = "knee-")]
    key_prefix: String,
    /// Choice of keys: sequential, uniform, zipf:THETA or hotset:SHARE:PROBABILITY.
    #[arg(long, default_value = "uniform")]
    pub(super) key_choice: KeyChoice,
    /// Size of values: BYTES, uniform:LOW:HIGH or exponential:MEAN; drawn once per key.
    #[arg(long, default_value = "32")]
    value_bytes: ValueSize,
    /// Time to live of stored values, in seconds; without it, values do not expire.
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=TTL_S_MAX))]
    pub(super) ttl_s: Option<u32>,
}

impl Keyed {
    pub(super) fn items(&self, format: KeyFormat, keys: u64) -> Result<Items, String> {
        let keys = KeySpace::new(&self.key_prefix, format, keys)?;
        Ok(Items { keys, value_size: self.value_bytes, ttl_s: self.ttl_s.unwrap_or(0) })
    }
}
