//! How much is simulated.

use super::error::Error;
use super::limits::REPLICATIONS_MAX;
use super::shape::is_time;

/// How much is simulated.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Of all random numbers.
    pub seed: u64,
    /// The number of the first replication's stream; others follow it.
    pub first_stream: u64,
    /// How many replications, independent of each other.
    pub replications: u32,
    /// What is not observed.
    pub warmup: Length,
    /// What is observed thereafter.
    pub observed: Length,
    /// Whether response times are kept in their order.
    pub has_series: bool,
}

/// How long a part of a replication is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// Until so many rounds are complete, of all classes together; not if a thousand times as many are
    /// lost, and more than a million.
    Rounds(u64),
    /// So much time.
    Time(f64),
}

impl Plan {
    /// Checks what a caller could get wrong.
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
                Err(Error::Argument { name: "observed", problem: "expected more than nothing" })
            }
            _ => Ok(()),
        }
    }
}
