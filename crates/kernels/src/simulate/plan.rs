//! The length and the number of replications.

use super::error::Error;
use super::limits::REPLICATIONS_MAX;
use super::shape::is_time;

/// The length and the number of replications.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of all random numbers.
    pub seed: u64,
    /// The stream of the first replication. Further replications have the next streams.
    pub first_stream: u64,
    /// The number of independent replications.
    pub replications: u32,
    /// The part before the observation.
    pub warmup: Length,
    /// The observed part.
    pub observed: Length,
    /// Whether response times are kept in their order.
    pub has_series: bool,
}

/// The length of a part of a replication.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// Until this number of rounds, of all classes together, is complete. Fails if more than a million rounds are lost,
    /// and more than a thousand times this number.
    Rounds(u64),
    /// Simulated time.
    Time(f64),
}

impl Plan {
    /// Checks the caller's numbers.
    pub(super) fn check(&self) -> Result<(), Error> {
        if !(1..=REPLICATIONS_MAX).contains(&self.replications) {
            return Err(Error::Argument { name: "replications", problem: "expected 1 to 10,000" });
        }
        let is_right = |length| match length {
            Length::Rounds(_) => true,
            Length::Time(time) => is_time(time),
        };
        if !is_right(self.warmup) || !is_right(self.observed) {
            return Err(Error::Argument {
                name: "warmup, observed",
                problem: "expected finite times from 0",
            });
        }
        match self.observed {
            Length::Rounds(0) | Length::Time(0.0) => {
                Err(Error::Argument { name: "observed", problem: "expected more than 0" })
            }
            _ => Ok(()),
        }
    }
}
