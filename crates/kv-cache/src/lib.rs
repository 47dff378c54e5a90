//! The storage engines of the memcached server: their trait, and the volatile engine.
//!
//! * [`engine`]: the trait, with one read, and one atomic read-decide-change.
//! * [`Memory`]: items in bounded memory, with eviction. [`Stripes`]: several of them, shared by threads.
//! * [`KeyHash`]: the seeded hash of keys.
//! * [`versions`]: figures of an engine that keeps versions.

pub mod engine;
pub mod versions;

mod memory;
mod stripes;

pub use memory::{KeyHash, Memory, MemoryLimits};
pub use stripes::Stripes;
