//! What is asked of a store is about keys that have values.

use clap::Args;

use crate::items::Items;
use crate::keys::{KeyChoice, KeyFormat, KeySpace};
use crate::values::ValueSize;

/// The longest time to live: memcached takes more for a second of the Unix epoch.
const TTL_S_MAX: i64 = 30 * 24 * 3600;

/// Which keys there are, which of them are asked for, and what their values are.
#[derive(Args, Debug)]
pub(super) struct Keyed {
    /// How many keys there are.
    #[arg(long, default_value_t = 10_000)]
    pub(super) keys: u64,
    /// What every key begins with; its number follows.
    #[arg(long, default_value = "knee-")]
    key_prefix: String,
    /// sequential, uniform, zipf:THETA or hotset:SHARE:PROBABILITY.
    #[arg(long, default_value = "uniform")]
    pub(super) key_choice: KeyChoice,
    /// Size of the values: BYTES, uniform:LOW:HIGH or exponential:MEAN; drawn once for each key.
    #[arg(long, default_value = "32")]
    value_bytes: ValueSize,
    /// Let what is stored expire after so many seconds; without this it does not.
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=TTL_S_MAX))]
    pub(super) ttl_s: Option<u32>,
}

impl Keyed {
    /// So many keys, and their values.
    pub(super) fn items(&self, format: KeyFormat, keys: u64) -> Result<Items, String> {
        let keys = KeySpace::new(&self.key_prefix, format, keys)?;
        Ok(Items { keys, value_size: self.value_bytes, ttl_s: self.ttl_s.unwrap_or(0) })
    }
}
