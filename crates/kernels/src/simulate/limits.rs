//! The limits of a call of the simulator.

/// The most customers and siblings in a network at once: some 2 GB.
pub const CUSTOMERS_MAX: usize = 1 << 24;

/// The most replications of one call.
pub const REPLICATIONS_MAX: u32 = 10_000;

/// The most events of one replication: hours of computing.
pub(super) const EVENTS_MAX: u64 = 1 << 35;
