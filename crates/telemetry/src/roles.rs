//! The roles: for each, its stages and what its threads keep besides their requests.

mod broker;
mod load;
mod middleware;
mod store;

pub use broker::{Broker, BrokerGauges, BrokerReading};
pub use load::{Bottleneck, BottleneckReason, LATE_NS, Load, LoadClosing, LoadGauges};
pub use middleware::{Middleware, MiddlewareGauges, MiddlewareReading};
pub use store::{RequestSpan, Store, StoreGauges, VersionGauges};
