//! The engines that a memcached front serves: their trait, and the volatile one.
//!
//! * [`engine`]: one read, and one atomic read-decide-change.
//! * [`Memory`]: items in bounded memory, the least useful evicted. [`Stripes`] shares several of them among threads.
//! * [`KeyHash`]: the seeded hash of keys.
//! * [`versions`]: figures of an engine that keeps versions.

pub mod engine;
pub mod versions;

mod memory;
mod stripes;

pub use memory::{KeyHash, Memory, MemoryLimits};
pub use stripes::Stripes;
