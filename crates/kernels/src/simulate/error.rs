//! The errors of the simulator.

use std::fmt;

use super::limits::{CUSTOMERS_MAX, EVENTS_MAX};

/// Why a network cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// An argument is invalid.
    Argument {
        /// The argument's name.
        name: &'static str,
        /// The expected form, or the error.
        problem: &'static str,
    },
    /// More customers and siblings are present at once than allowed.
    Crowded,
    /// A replication takes more events than allowed.
    Endless,
    /// Far more rounds are lost than completed, so the replication would take hours.
    Lost {
        /// The number of lost rounds.
        lost: u64,
        /// The number of rounds that were completed in the same time.
        completed: u64,
    },
    /// Customers wait in each other's servers for a place, for ever.
    Deadlock,
    /// The caller ended the simulation early.
    Interrupted,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Argument { name, problem } => write!(f, "{name}: {problem}"),
            Error::Crowded => {
                write!(f, "more than {CUSTOMERS_MAX} requests are in the network at once")
            }
            Error::Endless => write!(f, "a replication takes more than {EVENTS_MAX} events"),
            Error::Lost { lost, completed } => {
                write!(f, "{lost} rounds were lost while {completed} were completed")
            }
            Error::Deadlock => f.write_str(
                "customers in a circle of full stations wait for each other for ever: give these stations more \
                 places, or simulate fewer customers",
            ),
            Error::Interrupted => f.write_str("the simulation was interrupted"),
        }
    }
}

impl std::error::Error for Error {}
