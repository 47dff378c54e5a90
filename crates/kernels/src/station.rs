//! A station of the solvers.

use crate::Error;

/// The rates of a station with a queue, with 1, 2, … customers present.
///
/// A single server has the rates `[1.0]`, and m servers have `[1.0, 2.0, …, m]`. Callers pass the service time
/// in the demand. The solvers count stations without a queue as think time.
#[derive(Clone, Debug, PartialEq)]
pub struct Station {
    rates: Vec<f64>,
}

impl Station {
    /// A station that works at the rate `rates[j - 1]` with j customers, and at the last rate with more customers.
    pub fn new(rates: Vec<f64>) -> Result<Station, Error> {
        if rates.is_empty() {
            return Err(Error::Argument { name: "rates", problem: "expected at least one rate" });
        }
        if !rates.iter().all(|rate| rate.is_finite() && *rate > 0.0) {
            return Err(Error::Argument { name: "rates", problem: "expected rates above 0" });
        }
        Ok(Station { rates })
    }

    pub(crate) fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// The rate with many customers.
    pub(crate) fn last_rate(&self) -> f64 {
        self.rates[self.rates.len() - 1]
    }

    pub(crate) fn largest_rate(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    /// Whether the rate depends on the number of customers.
    pub(crate) fn is_load_dependent(&self) -> bool {
        self.rates.iter().any(|&rate| rate != self.rates[0])
    }
}

pub(crate) fn checked_time(name: &'static str, time: f64) -> Result<(), Error> {
    if time.is_finite() && time >= 0.0 {
        return Ok(());
    }
    Err(Error::Argument { name, problem: "expected finite times from 0" })
}
