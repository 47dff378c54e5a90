//! `knee-queue`: a middleware of messages, with workers and connections to a database.

use std::time::Instant;

use serde::{Serialize, Serializer};

use super::middleware::{Middleware, MiddlewareGauges, MiddlewareReading};
use crate::level::{Level, LevelReading};
use crate::metric::Metric;
use crate::role::{Gauges, Reading, Role};
use crate::stage::BrokerTimes;

/// A middleware whose workers share connections to a database.
#[derive(Clone, Copy, Debug)]
pub struct Broker;

impl Role for Broker {
    const NAME: &'static str = Middleware::NAME;
    type Times = BrokerTimes;
    type Gauges = BrokerGauges;
    type Reading = BrokerReading;
    type Closing = ();
}

/// Gauges of a broker's thread.
#[derive(Debug)]
pub struct BrokerGauges {
    /// The gauges of any middleware.
    pub middleware: MiddlewareGauges,
    /// Requests that wait for a message. They neither have a worker nor wait for one.
    pub awaiting: Level,
}

impl BrokerGauges {
    /// The gauges of a thread that reports this many workers.
    pub fn new(now: Instant, workers: u32) -> BrokerGauges {
        let middleware = MiddlewareGauges::new(now, workers, &[]);
        BrokerGauges { middleware, awaiting: Level::new(now) }
    }
}

impl Gauges for BrokerGauges {
    type Reading = BrokerReading;

    fn read(&mut self, now: Instant) -> BrokerReading {
        BrokerReading { middleware: self.middleware.read(now), awaiting: self.awaiting.read(now) }
    }
}

/// A broker's gauges over a window.
#[derive(Clone, Debug, Serialize)]
pub struct BrokerReading {
    /// The gauges of any middleware.
    #[serde(flatten)]
    pub middleware: MiddlewareReading,
    /// Requests that wait for a message.
    #[serde(rename = "messages_awaited", serialize_with = "end")]
    pub awaiting: LevelReading,
}

/// Threads' windows end at slightly different instants, so their sum can be negative.
fn end<S: Serializer>(level: &LevelReading, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_i64(level.end.max(0))
}

impl Reading for BrokerReading {
    fn then(&mut self, later: &BrokerReading) {
        self.middleware.then(&later.middleware);
        self.awaiting.then(&later.awaiting);
    }

    fn beside(&mut self, other: &BrokerReading) {
        self.middleware.beside(&other.middleware);
        self.awaiting.beside(&other.awaiting);
    }

    fn queue_length_mean(&self) -> f64 {
        self.middleware.queue_length_mean()
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = self.middleware.metrics();
        metrics.push(Metric::gauge(
            "knee_messages_awaited",
            "Requests that wait for a message.",
            self.awaiting.end.max(0) as f64,
        ));
        metrics
    }
}
