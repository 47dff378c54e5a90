//! The roles, each with its stages, gauges and counters.

mod broker;
mod load;
mod middleware;
mod store;

pub use broker::{Broker, BrokerGauges, BrokerReading};
pub use load::{Bottleneck, BottleneckReason, LATE_NS, Load, LoadClosing, LoadGauges};
pub use middleware::{CacheCounts, Middleware, MiddlewareGauges, MiddlewareReading};
pub use store::{RequestSpan, Store, StoreGauges, VersionGauges};
