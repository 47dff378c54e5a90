//! What one call of the simulator may take.

/// Customers and siblings that may be in a network at once: some 2 GB of them.
pub const CUSTOMERS_MAX: usize = 1 << 24;

/// Replications that one call may ask for.
pub const REPLICATIONS_MAX: u32 = 10_000;

/// Events that one replication may take: hours of computing.
pub(super) const EVENTS_MAX: u64 = 1 << 35;
